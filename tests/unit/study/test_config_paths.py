"""Relative paths of a configuration lead into the working directory first, then into the workflow's folder."""

import shutil
from pathlib import Path

import pytest

from clones import ROOT
from throughline.launch.auto_topologies import AutoTopologies
from throughline.study.config import ConfigError, load
from throughline.study.section import ConfigPaths
from throughline.workflow import call

EVERY = """
corpus: {dump: [enwiki-20261101, [part1.xml, part2.xml], {text: [books.txt]}], vocabulary: {path: v.txt, sha256: SHA}}
images: {source: pictures}
faces: {source: people}
clicks: {source: [day_0.gz]}
imports: {theirs: {logs: logs_of_others}}
benchmarks:
  llama: {model: {transformers: shape.json, task: clm}, frameworks: [hf-loop]}
  bert: {model: bert-tiny, sequence_length: 32, convergence: {against: curve.csv}}
""".replace("SHA", "a" * 64)
PATHS = {
    *("part1.xml", "part2.xml", "books.txt", "v.txt", "pictures", "people", "day_0.gz", "logs_of_others", "shape.json"),
    "curve.csv",
}


@pytest.fixture
def workflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a workflow that has every file; the working directory is another one, and has none."""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    for path in PATHS:
        shutil.copy(ROOT / "resources/shapes/llama-3.1-8b.json", there / path)
    (there / "config.yaml").write_text(EVERY)
    monkeypatch.chdir(here)
    return there


def test_every_path_leads_into_the_workflow_s_folder_if_nothing_is_here(workflow: Path) -> None:
    config_paths = ConfigPaths(workflow)
    config = load(["config.yaml"], config_paths=config_paths)
    assert config_paths.taken == {path: str(workflow / path) for path in {*PATHS, "config.yaml"}}
    assert not config_paths.missing
    first, *others = config.corpus.sources
    assert first.name == "enwiki-20261101"
    assert others[0].files == (str(workflow / "part1.xml"), str(workflow / "part2.xml"))
    assert config.images.source == str(workflow / "pictures")
    assert config.model_files().popitem()[1] == str(workflow / "shape.json")
    used = f"curve.csv is not in this folder; the workflow's own is used: {workflow / 'curve.csv'}"
    assert used in config_paths.remarks()


def test_what_is_here_comes_first(workflow: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing leads elsewhere if the files are here, or if the workflow is here, or if the value is no path."""
    for path in {*PATHS, "config.yaml"}:
        shutil.copy(workflow / path, path)
    for name in ("sample", "synthetic"):
        (workflow / name).mkdir()
    config_paths = ConfigPaths(workflow)
    config = load(["config.yaml"], {"images": {"source": "sample"}}, config_paths)
    assert config.clicks.logs == ["day_0.gz"] and config.imports["theirs"].logs == "logs_of_others"
    assert load([], {"clicks": {}, "corpus": {"dump": "sample"}}, config_paths) and not config_paths.remarks()
    monkeypatch.chdir(workflow)
    assert load(["config.yaml"], config_paths=config_paths) == load(["config.yaml"]) and not config_paths.remarks()
    monkeypatch.chdir(workflow.parent)
    assert ConfigPaths(workflow).find("part1.xml") == "there/part1.xml"
    monkeypatch.setenv("HOME", "/home")
    assert load([], {"images": {"source": "~/pictures"}}).images.source == "/home/pictures"


def test_a_path_that_leads_nowhere_is_named_with_both_folders(workflow: Path) -> None:
    remarks: list[str] = []
    values = {"corpus": {"dump": "lost.xml"}, "benchmarks": {}}
    call.read([], values, workflow, AutoTopologies(), say=remarks.append)
    assert remarks == [f"lost.xml is neither in this folder nor in {workflow}"]
    block = {"model": {"transformers": "lost.json", "task": "clm"}}
    with pytest.raises(ConfigError, match=r"lost\.json is neither in this folder nor in "):
        load([], {"benchmarks": {"mine": block}}, config_paths=ConfigPaths(workflow))
