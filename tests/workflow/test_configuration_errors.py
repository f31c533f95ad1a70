"""Mistakes give an error before anything starts, and no text of the configuration is run by a shell."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable

import pytest

from throughline import files, handover
from throughline.launch import machine
from throughline.study import runs
from throughline.study.config import load

from .conftest import ROOT, SMALL, Clone, job_counts

SNAKEMAKE_S_OWN = ("Exception", "Traceback", "WorkflowError", ".smk", "/Snakefile", "throughline/workflow")
"""What Snakemake adds to an error: its name of it, and places in the workflow's own code."""


def test_every_mistake_is_named_before_anything_starts(clone: Callable[[str], Clone]) -> None:
    wrong = clone(SMALL.replace("repeats: 2", "repeats: many").replace("parts: 2", "partz: 2"))
    failed = wrong.snakemake()
    assert failed.returncode != 0
    assert "runs.repeats = 'many': Input should be a valid integer" in failed.stdout
    assert "corpus.partz: unknown key" in failed.stdout
    assert failed.stdout.splitlines()[-1].startswith("  next: correct it")
    assert not any(words in failed.stdout for words in SNAKEMAKE_S_OWN), failed.stdout
    assert not wrong.files("data/*/*")


def test_a_machine_without_the_devices_is_noticed_before_data_are_made(clone: Callable[[str], Clone]) -> None:
    if any(map(os.path.exists, machine.DEVICE_FILES["cuda"])):
        pytest.skip("there is a GPU")
    failed = clone(SMALL.replace("device: cpu", "device: cuda")).snakemake()
    assert failed.returncode != 0
    assert "runs.device is cuda, but the framework sees no GPU here" in failed.stdout
    assert "Traceback" not in failed.stdout and "rule extract" not in failed.stdout


@pytest.mark.parametrize(
    ("target", "instead"),
    [
        ("results/quick/bz5_fp32.json", "results/quick/bz4_fp32.json"),
        ("data/little/seq48/training_0000.hdf5", "32, 64"),
        ("data/little/seq32/training_0009.hdf5", "training_0000, training_0001, test_0000"),
        ("data/big/seq32/manifest.json", "little"),
        ("corpsu", "error: nothing makes corpsu"),
    ],
)
def test_a_target_that_is_not_configured_is_answered_with_those_there_are(
    finished: tuple[Clone, str], target: str, instead: str
) -> None:
    failed = finished[0].snakemake("--dry-run", target)
    assert failed.returncode != 0
    assert instead in failed.stdout
    assert not any(words in failed.stdout for words in SNAKEMAKE_S_OWN), failed.stdout


def test_a_dump_by_a_hostile_name_is_only_a_missing_file(clone: Callable[[str], Clone]) -> None:
    hostile = clone(SMALL.replace("name: little", 'name: little\n  dump: "$(touch pwned)/x.xml"'))
    failed = hostile.snakemake("corpus")
    assert failed.returncode != 0
    assert "Missing input files for rule cut" in failed.stdout and "$(touch pwned)/x.xml" in failed.stdout
    assert not list(hostile.path.parent.rglob("pwned"))


def test_a_dry_run_says_that_the_logs_of_an_import_are_not_there(clone: Callable[[str], Clone]) -> None:
    importing = clone(f"imports: {{theirs: {{logs: their_logs}}}}\n{SMALL}")
    failed = importing.snakemake("--dry-run")
    assert failed.returncode != 0
    assert "error: imports.theirs.logs: their_logs is no folder" in failed.stdout
    (importing.path / "their_logs").mkdir()
    assert "imports.theirs.logs: their_logs holds no file" in importing.snakemake("--dry-run").stdout
    (importing.path / "their_logs/a.log").touch()
    assert job_counts(importing.made("--dry-run").stdout)["imported"] == 1


@pytest.mark.parametrize("preset", ["nvidia-bert-phases", "dlperf-insightface", "accept-cpu"])
def test_presets_pass_a_dry_run(preset: str, planned: Clone) -> None:
    """tests/unit/study expands all presets."""
    command = [sys.executable, "-m", "snakemake", "--dry-run", "--configfile", f"presets/{preset}.yaml"]
    done = subprocess.run(command, cwd=planned.path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    planned_runs = job_counts(done.stdout + done.stderr).get("run", 0)
    assert planned_runs == len(runs.expand(load([ROOT / f"presets/{preset}.yaml"])))


def test_the_command_that_repeats_a_run_of_a_preset_plans_that_run(
    planned: Clone, monkeypatch: pytest.MonkeyPatch
) -> None:
    preset, values = ROOT / "presets/dlperf-mxnet-bert.yaml", {"runs": {"repeats": "3", "steps": {"timed": "9"}}}
    spec = runs.expand(load([preset], values))[-1]
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv(handover.VARIABLE, handover.packed(started_with=files.started_with([preset], values)))
    said = shlex.split(files.snakemake("--dry-run", "--printshellcmds", "--quiet", "host", "--force", spec.record))
    done = subprocess.run([sys.executable, "-m", *said], cwd=planned.path, capture_output=True, text=True)
    printed = done.stdout + done.stderr
    assert done.returncode == 0, printed
    assert job_counts(printed)["run"] == 1 and spec.canonical in printed
