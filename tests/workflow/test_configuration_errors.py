"""Mistakes of the configuration get an error of a few lines before anything starts, and no shell runs its texts."""

import os
import shlex
from collections.abc import Callable

import pytest

from clones import ROOT, SMALL, Clone, job_counts
from throughline import files, handover
from throughline.files import UserError
from throughline.launch import machine
from throughline.study import runs
from throughline.study.config import load
from throughline.study.presets import of_a_preset
from throughline.study.targets import Targets

SNAKEMAKE_S_OWN = ("Exception", "Traceback", "WorkflowError", ".smk", "/Snakefile", "throughline/workflow")
"""What Snakemake adds to an error: its name of it, and places in the workflow's own code."""


def test_a_target_of_a_preset_is_answered_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    config = load([ROOT / "config.yaml"])
    targets = Targets(config, runs.expand(config), {}, {}, {})
    with pytest.raises(UserError) as caught:
        targets.records(benchmark="gpt2", batch="2", precision="fp32")
    *listed, command = str(caught.value).splitlines()
    target = "results/gpt2/bz2_fp32.json"
    assert command == f"  next: gpt2-cpu.yaml asks for it: snakemake {target} --configfile presets/gpt2-cpu.yaml"
    assert listed[0] == f"{target} is not in the configuration. It holds:"
    assert [line.strip() for line in listed[1:]] == list(dict.fromkeys(spec.summary for spec in runs.expand(config)))
    assert of_a_preset("results/nobody/bz2_fp32.json") is None


def test_every_mistake_is_named_before_anything_starts(clone: Callable[[str], Clone]) -> None:
    wrong = clone(SMALL.replace("repeats: 2", "repeats: many").replace("parts: 2", "partz: 2"))
    failed = wrong.snakemake()
    assert failed.returncode != 0 and not wrong.files("data/*/*")
    assert "runs.repeats = 'many': Input should be" in failed.stdout and "corpus.partz: unknown key" in failed.stdout
    assert failed.stdout.splitlines()[-1].startswith("  next: correct it")
    assert not any(words in failed.stdout for words in SNAKEMAKE_S_OWN), failed.stdout


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
    assert "error: $(touch pwned)/x.xml is not there, and corpus.dump names it" in failed.stdout
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


@pytest.mark.parametrize("preset", ["nvidia-bert-phases", "dlperf-insightface"])
def test_presets_pass_a_dry_run(preset: str, planned: Clone) -> None:
    """tests/unit/study expands all presets."""
    printed = planned.made("--dry-run", "--configfile", f"presets/{preset}.yaml").stdout
    assert job_counts(printed)["run"] == len(runs.expand(load([ROOT / f"presets/{preset}.yaml"])))


def test_the_command_that_repeats_a_run_of_a_preset_plans_that_run(
    planned: Clone, monkeypatch: pytest.MonkeyPatch
) -> None:
    preset, values = ROOT / "presets/dlperf-mxnet-bert.yaml", {"runs": {"repeats": "3", "steps": {"timed": "9"}}}
    spec = runs.expand(load([preset], values))[-1]
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv(handover.VARIABLE, handover.packed(started_with=files.started_with([preset], values)))
    said = shlex.split(files.snakemake("--dry-run", "--printshellcmds", "--quiet", "host", "--force", spec.record))
    printed = planned.made(*said[1:]).stdout
    assert job_counts(printed)["run"] == 1 and spec.canonical in printed
