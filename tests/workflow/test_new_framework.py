"""Frameworks that are added as add-a-framework.md says go through the whole graph, together with `torch`."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from clones import ROOT, Clone, job_counts
from framework_lab import register
from throughline.records import read_equivalence, read_summary

README, FRAMEWORKS = "README.md", "docs/reference/frameworks.md"
TOY = ROOT / "tests/toy_framework"
CONFIGURATION = """
corpus: {name: little, parts: 2, shards: {training: 2, test: 1}, sequences: {32: 5}}
runs: {device: cpu, repeats: 1, steps: {warmup: 2, timed: 4}}
benchmarks:
  both:
    model: bert-tiny
    sequence_length: 32
    frameworks: [fake, torch]
    topologies: [1n1g]
    batch: {fp32: [2]}
    options: {data: synthetic}
"""
OF_TOY = """
runs: {device: abacus, repeats: 1, steps: {warmup: 2, timed: 4}}
benchmarks:
  toys:
    model: bert-tiny
    sequence_length: 32
    frameworks: [toy]
    topologies: [1n1g, 1n2g]
    batch: {fp32: [2]}
    options: {data: synthetic, pause_ms: 3}
"""


def test_a_framework_with_a_new_library_is_compared(clone: Callable[[str], Clone]) -> None:
    made = clone(CONFIGURATION)
    register(made.path)
    made.made("results/report.html")
    summary = read_summary(made.path / "results/both/bz2_fp32.json")
    assert {name: cells["1n1g"].n_ok for name, cells in summary.frameworks.items()} == {"fake": 1, "torch": 1}
    found = read_equivalence(made.path / "results/both/equivalence.json")
    assert {name: compared["1n1g"].verdict for name, compared in found.frameworks.items()} == {
        "fake": "different",
        "torch": "equal",
    }
    assert (made.path / "results/both/equivalence.svg").is_file()
    assert any("they do not do the same work" in text for text in summary.frameworks["torch"]["1n1g"].warnings)
    report = (made.path / "results/report.html").read_text(encoding="utf-8")
    assert "fake (unequal)" in report
    tables = made.path / "results/both/tables"
    assert ",different," in (tables / "throughput.csv").read_text()
    assert all("fake (unequal)" in (tables / name).read_text() for name in ("throughput.md", "throughput.tex"))
    assert "Nothing to be done" in made.made("results/report.html").stdout


def with_toy(clone: Callable[[str], Clone]) -> Clone:
    """Return a clone with the folder and the pins of `toy`, and with the files of conda that `make lock` writes."""
    made = clone(OF_TOY)
    shutil.copytree(TOY / "toy", made.path / "src/throughline/frameworks/toy", ignore=shutil.ignore_patterns("__py*"))
    shutil.copy(TOY / "toy.txt", made.path / "envs")
    called(made, "throughline.installation.conda_files")
    return made


def called(made: Clone, module: str) -> str:
    """Run a module of the clone's library as a program, and return its output."""
    command, variables = [sys.executable, "-m", module], os.environ | {"PYTHONPATH": str(made.path / "src")}
    done = subprocess.run(command, cwd=made.path, env=variables, capture_output=True, text=True, check=True)
    return done.stdout


def test_a_folder_is_a_framework(clone: Callable[[str], Clone]) -> None:
    """Nothing beside the folder and the pins is touched: runs, options, devices and refusals come from them."""
    made = with_toy(clone)
    made.made("results/report.html")
    # The files are read as JSON, because this process does not know the framework.
    runs = made.path / "results/toys/bz2_fp32/toy"
    record = json.loads((runs / "1n1g/run1.json").read_text())
    assert (record["status"], record["spec"]["options"]["pause_ms"]) == ("ok", 3)
    assert record["device"] == {"kind": "abacus", "name": "wooden abacus", "count": 2, "fp16_native": False}
    assert record["settings"]["pause_s"] == 0.003 and record["environment"]["framework"]["toy"] == "1.0"
    refused = json.loads((runs / "1n2g/run1.json").read_text())
    assert (refused["status"], refused["reason"]) == ("unsupported", "an abacus computes alone")
    assert "toy" in (made.path / "results/report.html").read_text(encoding="utf-8")


def digests(folder: Path) -> dict[str, str]:
    """Map each file of a clone to its digest, without what programs leave behind."""
    files = (path for path in folder.rglob("*") if path.is_file())
    names = {str(path.relative_to(folder)): path for path in files}
    left = ("__pycache__", ".snakemake", "logs/")
    kept = {name: path for name, path in names.items() if not any(word in name for word in left)}
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in kept.items()}


def test_generated_pages_and_environments_know_a_new_framework(clone: Callable[[str], Clone]) -> None:
    made = with_toy(clone)
    assert "- -r toy.txt" in (made.path / "envs/toy.yaml").read_text()
    before = digests(made.path)
    called(made, "throughline.study.config_reference")
    called(made, "throughline.frameworks.reference")
    texts = {name: (made.path / name).read_text(encoding="utf-8") for name in (README, FRAMEWORKS)}
    assert "`torch-horovod`, `toy`" in " ".join(texts[README].split()) and "| `toy` |" in texts[FRAMEWORKS]
    reference = (made.path / "docs/reference/configuration.md").read_text(encoding="utf-8")
    assert "options.pause_ms` (integer 0 to 1,000; `0`): milliseconds that the toy framework rests" in reference
    assert "(auto, cuda, abacus, cpu; `auto`)" in reference
    changed = {name for name, digest in digests(made.path).items() if before.get(name) != digest}
    assert changed == {*texts, "docs/reference/configuration.md", "resources/config.schema.json"}

    (made.path / "envs/toy.toml").write_text('python = "3.11"\ncheck = ["json"]\n')
    (made.path / "envs/toy.txt").write_text("")
    called(made, "throughline.installation.conda_files")
    assert "toy" in called(made, "throughline.installation.recipe").split()
    assert "installs the pins of toy.txt" in (made.path / "envs/toy.yaml").read_text()
    own = {"XDG_CACHE_HOME": str(made.path / "cache")}
    planned = made.made("--dry-run", "results/toys/bz2_fp32/toy/1n1g/run1.json", **own).stdout
    assert job_counts(planned) == {"environment": 1, "run": 1}, planned
    command = [sys.executable, "workflow/scripts/environment.py"]
    variables = os.environ | own | {"PYTHONPATH": str(made.path / "src")}
    done = subprocess.run([*command, "toy"], cwd=made.path, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "toy 2/2: check" in done.stderr, done.stderr
