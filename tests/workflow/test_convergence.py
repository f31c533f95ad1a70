"""A long run on real text that is killed in the middle ends where an uninterrupted one does."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import training_fixtures
from clones import ROOT, SMALL, Clone
from process_helpers import until
from throughline import records
from throughline.checks import convergence_check
from throughline.files import UserError
from throughline.report.topics import checks
from throughline.spec import canonical
from throughline.study.benchmark import Convergence

SETTINGS = Convergence(steps=30, evaluate_every=6, samples=50)
FEW = Convergence(steps=2, evaluate_every=2, samples=50)


@pytest.fixture(scope="module")
def manifest(clone: Callable[[str], Clone]) -> Path:
    """The sample of Wikipedia."""
    made = "data/little/seq32/manifest.json"
    small = clone(SMALL.replace("parts: 2", "parts: 1"))
    small.made(made)
    return small.path / made


def command(manifest: Path, output: Path, settings: Convergence = SETTINGS) -> list[str]:
    """The rate changes with every step, so that a run that resumes has to go on in the middle of its schedule."""
    spec = training_fixtures.spec(
        topology="1n2g", batch=8, steps={"warmup": 0, "timed": settings.steps},
        optimizer={
            "learning_rate": 2e-3,
            "schedule": {"name": "cosine", "warmup_steps": 3, "total_steps": settings.steps, "last": 0.1},
        },
        options={"dropout": 0.1},
    )  # fmt: skip
    return [
        *(sys.executable, "src/start.py", "workflow/scripts/convergence.py", "--spec", spec.canonical),
        *("--settings", canonical(settings.model_dump(exclude={"against", "tolerance", "begin_from"}))),
        *("--manifest", str(manifest), "--output", str(output), "--log", str(output.with_suffix(".log"))),
    ]


def start(words: list[str], **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)


def checkpoints(folder: Path) -> list[dict[str, Any]]:
    state = folder / "state.json"
    return list(json.loads(state.read_text())["checkpoints"] if state.exists() else [])


def ends(words: list[str]) -> str:
    process = start(words)
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, said
    return said


def weights(check: Path) -> dict[str, np.ndarray]:
    """The weights of a finished check."""
    (last,) = checkpoints(check.with_name("last"))
    states = torch.load(check.with_name("last") / last["file"], weights_only=True)["weights"]
    return {name: tensor.numpy() for name, tensor in states.items()}


def begins_from_no_other(first: Path) -> None:
    """A second phase does not start without a checkpoint that it could start from."""

    def refused(why: str) -> None:
        with pytest.raises(UserError, match=why):
            convergence_check._last_weights(first, "bert-tiny")

    newest = next(first.with_name("last").glob("*.checkpoint"))
    newest.write_bytes(newest.read_bytes()[:-1])
    refused(r"(?s)has no checkpoint to begin with.*the sha256 of step_000000030\.checkpoint differs")
    shutil.rmtree(newest.parent)
    refused("it was removed")
    first.write_text(first.read_text().replace("bert-tiny", "bert-mini"))
    refused("(?s)no weights for bert-tiny.*they are those of bert-mini")


def test_a_killed_run_resumes_and_ends_at_the_same_losses(tmp_path: Path, manifest: Path) -> None:
    """tests/frameworks/test_contract.py goes on from checkpoints of the other frameworks."""
    whole, cut = tmp_path / "whole/curve.json", tmp_path / "cut/curve.json"
    ends(command(manifest, whole))

    words, folder = command(manifest, cut), cut.with_suffix(".checkpoints")
    process = start(words, start_new_session=True)
    until(lambda: len(checkpoints(folder)) >= 2)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    assert not cut.exists()
    before, last = checkpoints(folder)
    assert 0 < last["step"] < SETTINGS.steps
    newest = folder / last["file"]
    newest.write_bytes(newest.read_bytes()[:-100])  # as a disk that lies would leave it: the one before is used
    said = ends(words)
    assert "is not used: the sha256" in said
    assert f"resumes after step {before['step']}" in said

    first, second = records.read_curve(whole), records.read_curve(cut)
    assert first.resumed_after_step is None
    assert second.resumed_after_step == before["step"]
    assert second.loss == pytest.approx(first.loss, rel=1e-6) and len(second.loss) == SETTINGS.steps
    for mine, theirs in zip(first.curve, second.curve, strict=True):
        assert mine.figures == pytest.approx(theirs.figures, rel=1e-6)
    assert [look.step for look in first.curve] == list(range(0, 31, 6))
    assert first.curve[-1].samples == 50
    start_loss, end_loss = first.curve[0].figures["loss"], first.curve[-1].figures["loss"]
    assert start_loss and end_loss and end_loss < start_loss - 1  # it learns
    assert not folder.exists()
    ours, theirs = weights(whole), weights(cut)
    assert ours.keys() == theirs.keys() and len(ours) > 10
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)

    place = tmp_path / "convergence.json"
    (tmp_path / "stated.csv").write_text(f"step,loss\n30,{end_loss}\n")
    script = ["src/start.py", "workflow/scripts/convergence_verdict.py", str(cut), "--tolerance=0.01"]
    ends([sys.executable, *script, "--against", str(tmp_path / "stated.csv"), "--output", str(place)])
    assert checks.read(place).verdict.verdict == "pass"
    assert place.with_suffix(".svg").stat().st_size > 5000

    # A second phase starts where the first one has ended, with an optimizer and a schedule of its own.
    said = ends([*command(manifest, tmp_path / "second/curve.json", FEW), "--begin", str(cut)])
    assert "begins with the weights of" in said and "after step 30" in said
    begun = records.read_curve(tmp_path / "second/curve.json")
    assert begun.curve[0].figures == second.curve[-1].figures
    assert begun.begun_from is not None and "step 30" in begun.begun_from
    begins_from_no_other(cut)
