"""The workflow in another folder than its own: with --directory, as a module, deployed by snakedeploy; and the page
that Snakemake makes of it.

One small job is made with --directory. The module gets a copy of its files, so it makes only what is new.
"""

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from clones import ROOT, Clone, job_counts
from throughline.records import read_compared, read_run

TEXT = "texts/words.txt"
ASKED = f"""
corpus:
  {{name: little, dump: {{text: {TEXT}}}, parts: 1, shards: {{training: 1, test: 0}}, sequences: {{32: 5}}}}
runs: {{device: cpu, repeats: 1, steps: {{warmup: 1, timed: 2}}}}
benchmarks:
  quick: {{model: bert-tiny, sequence_length: 32, batch: {{fp32: [4]}}, optimizer: {{name: adamw,
      learning_rate: 1e-4}}}}
"""
SUMMARY, RECORD = "results/quick/bz4_fp32.json", "results/quick/bz4_fp32/torch/1n1g/run1.json"
OUTER = """
rule all:
    input: "report.txt"

rule run:
    output: "started.txt"
    shell: "echo outer > {output}"

rule report:
    input: "started.txt", "results/quick/bz8_fp32.json"
    output: "report.txt"
    shell: "cp {input[1]} {output}"

onstart: throughline.onstart()
onsuccess: print("the outer workflow has ended")

module throughline:
    snakefile: SNAKEFILE
    config: config["throughline"]

use rule * from throughline as throughline_*
"""


def snakemake(folder: Path, *words: str, **variables: str) -> str:
    """Run Snakemake in a folder; it has to succeed."""
    known = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-m", "snakemake", "--cores", "2", *words]
    done = subprocess.run(
        command, cwd=folder, env=known | variables, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def workflow(clone: Callable[[], Clone]) -> Path:
    """The workflow's folder, with a text that a configuration names by a relative path."""
    folder = clone().path
    (folder / TEXT).parent.mkdir()
    documents = ["".join(f"Word {one} and word {one * two} are here.\n" for two in range(6)) for one in range(300)]
    (folder / TEXT).write_text("\n".join(documents))
    return folder


@pytest.fixture(scope="module")
def elsewhere(workflow: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder in which the whole job was made, and what Snakemake printed."""
    folder = tmp_path_factory.mktemp("elsewhere")
    (folder / "config.yaml").write_text(ASKED)
    printed = snakemake(folder.parent, "--snakefile", str(workflow / "Snakefile"), "--directory", str(folder))
    return folder, printed


def test_results_lie_in_the_folder_and_a_log_says_how_to_repeat_a_run_there(
    workflow: Path, elsewhere: tuple[Path, str]
) -> None:
    folder, printed = elsewhere
    made = {str(path.relative_to(folder)) for path in folder.glob("[!.]*/**/*")} | {"config.yaml"}
    assert {"config.yaml", "results/report.html", SUMMARY, RECORD, "data/little/seq32/training_0000.hdf5"} <= made
    assert {path.name for path in folder.glob("[!.]*")} == {"config.yaml", "data", "results", "logs"}
    assert not any((workflow / name).exists() for name in (".snakemake", "data/little", "results/quick", "logs"))
    assert f"{TEXT} is not in this folder; the workflow's own is used: {workflow / TEXT}" in printed
    assert read_run(folder / RECORD).status == "ok"
    report = (folder / "results/report.html").read_text(encoding="utf-8")
    assert str(workflow) not in report and str(folder) not in report
    first = (folder / RECORD).with_suffix(".log").read_text().splitlines()[0]
    snakefile = os.path.relpath(workflow / "Snakefile", folder)
    assert first == f"# again: snakemake --force {RECORD} --snakefile '{snakefile}'".replace("it's", "it'\"'\"'s")
    again = ["--force", RECORD, "--snakefile", snakefile, "--dry-run"]
    assert job_counts(snakemake(folder, *again)) == {"run": 1}


def test_its_own_files_come_before_those_of_the_workflow(
    workflow: Path, elsewhere: tuple[Path, str], tmp_path: Path
) -> None:
    folder, snakefile = elsewhere[0], str(workflow / "Snakefile")
    assert "Nothing to be done" in snakemake(folder, "--snakefile", str(workflow / "workflow" / "Snakefile"), "-n")
    shutil.copytree((workflow / TEXT).parent, (folder / TEXT).parent)
    try:
        printed = snakemake(folder, "--snakefile", snakefile, "--dry-run")
    finally:
        shutil.rmtree((folder / TEXT).parent)
    assert "is not in this folder" not in printed and "cut" in job_counts(printed)
    printed = snakemake(tmp_path, "--snakefile", snakefile, "--dry-run")  # here is no configuration
    assert f"config.yaml is not in this folder; the workflow's own is used: {workflow / 'config.yaml'}" in printed
    assert job_counts(printed)["run"] == 20


def copied(elsewhere: tuple[Path, str], to: Path) -> None:
    """Copy what the job has made, with what Snakemake knows of it."""
    for name in ("data", "results", "logs", ".snakemake/metadata"):
        shutil.copytree(elsewhere[0] / name, to / name)


def test_a_folder_of_results_is_compared(workflow: Path, elsewhere: tuple[Path, str], tmp_path: Path) -> None:
    copied(elsewhere, tmp_path)
    shutil.copytree(elsewhere[0] / "results", tmp_path / "there/results")
    (tmp_path / "config.yaml").write_text(f"{ASKED}\ncompare: {{against: [there/results]}}\n")
    words = ("compare", "--snakefile", str(workflow / "Snakefile"))
    assert job_counts(snakemake(tmp_path, *words)) == {"compared": 1, "compare": 1}
    assert read_compared(tmp_path / "results/compare.json").archives[0].cells[0].ratio == 1.0
    assert (tmp_path / "results/tables/machines.csv").is_file()
    os.utime(tmp_path / "there/results/quick/bz4_fp32.json")
    assert job_counts(snakemake(tmp_path, *words, "--dry-run")) == {"compared": 1, "compare": 1}


def test_another_workflow_uses_it_as_a_module(workflow: Path, elsewhere: tuple[Path, str], tmp_path: Path) -> None:
    copied(elsewhere, tmp_path)
    (tmp_path / "Snakefile").write_text(OUTER.replace("SNAKEFILE", repr(str(workflow / "Snakefile"))))
    handed = YAML(typ="safe").load(ASKED.replace("[4]", "[4, 8]").replace("1e-4", "'1e-4'"))
    with (tmp_path / "outer.yaml").open("w") as stream:
        YAML().dump({"throughline": handed}, stream)
    profile = str(workflow / "profiles/default")
    printed = snakemake(tmp_path, "--configfile", "outer.yaml", "--workflow-profile", profile, THROUGHLINE_CONSOLE="")
    assert job_counts(printed) == {
        "all": 1, "report": 1, "run": 1, "throughline_run": 1, "throughline_summary": 1,
    }  # fmt: skip
    assert printed.count("The plan:") == 1 and "the outer workflow has ended" in printed
    assert (tmp_path / "started.txt").read_text() == "outer\n"
    assert (tmp_path / "report.txt").read_text() == (tmp_path / "results/quick/bz8_fp32.json").read_text()
    record = read_run(tmp_path / RECORD.replace("bz4", "bz8"))
    assert record.status == "ok" and record.spec.optimizer.learning_rate == 1e-4
    rest = snakemake(tmp_path, "throughline_all", "--configfile", "outer.yaml", "-n", "--workflow-profile", profile)
    assert set(job_counts(rest)) == {f"throughline_{name}" for name in ("tables", "plots", "report", "all")}


def test_a_module_cannot_move_its_files(workflow: Path, tmp_path: Path) -> None:
    text = OUTER.replace("SNAKEFILE", repr(str(workflow / "Snakefile")) + '\n    prefix: "inner"')
    (tmp_path / "Snakefile").write_text(text)
    with pytest.raises(AssertionError, match="cannot be used as a module with prefix"):
        snakemake(tmp_path, "--dry-run", "--config", "throughline={}")


@pytest.mark.skipif(not shutil.which("snakedeploy"), reason="needs pip install snakedeploy==0.17.1")
def test_snakedeploy_deploys_it(workflow: Path, tmp_path: Path) -> None:
    """git takes the address of the public repository for that of a local one, as behind a mirror."""
    name, repository = "https://github.com/example/throughline", tmp_path / "throughline.git"
    variables = {
        "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": f"url.file://{repository}.insteadOf", "GIT_CONFIG_VALUE_0": name,
        "XDG_CACHE_HOME": str(tmp_path / "cache"), "GITHUB_TOKEN": "",
    }  # fmt: skip
    author = ["-c", "user.name=nobody", "-c", "user.email=nobody@example.org"]
    subprocess.run(["git", "init", "--quiet", "--bare", repository], check=True)
    here = ["git", "--git-dir", repository, "--work-tree", workflow, *author]
    subprocess.run([*here, "add", "--all"], check=True)
    subprocess.run([*here, "commit", "--quiet", "--message", "All"], check=True)
    subprocess.run([*here, "tag", "v1"], check=True)
    deployed = tmp_path / "deployed"
    deploy = ["snakedeploy", "deploy-workflow", name, str(deployed), "--tag", "v1"]
    subprocess.run(deploy, env=os.environ | variables, check=True, capture_output=True)
    assert (deployed / "config/config.yaml").read_bytes() == (ROOT / "config.yaml").read_bytes()
    (deployed / "config/config.yaml").write_text(ASKED)
    made = job_counts(snakemake(deployed, SUMMARY, **variables))
    assert made.keys() >= {"vocabulary", "shard", "manifest", "run", "summary"} and set(made.values()) == {1}
    assert read_run(deployed / RECORD).status == "ok"
    (checkout,) = (tmp_path / "cache/throughline/workflows").iterdir()
    assert (checkout / TEXT).is_file()


def test_snakemake_s_report_has_tables_and_plots_with_captions(
    workflow: Path, elsewhere: tuple[Path, str], tmp_path: Path
) -> None:
    folder, page = elsewhere[0], tmp_path / "report.zip"
    snakemake(folder, "--snakefile", str(workflow / "Snakefile"), "--report", str(page))
    with zipfile.ZipFile(page) as archive:
        names = {Path(name).name for name in archive.namelist()}
        shown = archive.read("report/report.html").decode()
    assert {"report.html", "throughput.csv", "memory.csv", "bz4_fp32_throughput.svg"} <= names
    for caption in ("A table of the benchmark", "A plot of the benchmark", "The report of all benchmarks"):
        assert caption in shown
    assert "Throughline measures how fast this hardware trains a model" in shown
