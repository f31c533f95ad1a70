"""A long run on real text that is killed in the middle ends where an uninterrupted one does."""

from __future__ import annotations

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
from framework_lab import python
from process_helpers import until, variable, workers_below
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


def command(framework: str, topology: str, manifest: Path, output: Path, settings: Convergence = SETTINGS) -> list[str]:
    """The rate changes with every step, so that a run that resumes has to go on in the middle of its schedule."""
    spec = training_fixtures.spec(
        framework=framework, topology=topology, batch=8, steps={"warmup": 0, "timed": settings.steps},
        optimizer={
            "learning_rate": 2e-3,
            "schedule": {"name": "cosine", "warmup_steps": 3, "total_steps": settings.steps, "last": 0.1},
        },
        options={"dropout": 0.1},
    )  # fmt: skip
    return [
        *(sys.executable, "src/start.py", "workflow/scripts/convergence.py", "--spec", spec.canonical),
        *("--settings", canonical(settings.model_dump(exclude={"against", "tolerance", "begin_from"}))),
        *("--manifest", str(manifest), "--python", python(framework)),
        *("--output", str(output), "--log", str(output.with_suffix(".log"))),
    ]


def start(words: list[str], **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)


def checkpoints(folder: Path) -> list[dict[str, Any]]:
    state = folder / "state.json"
    return list(json.loads(state.read_text())["checkpoints"] if state.exists() else [])


def ends(words: list[str], status: int = 0) -> str:
    process = start(words)
    said, _ = process.communicate(timeout=300)
    assert process.returncode == status, said
    return said


def last_checkpoint(check: Path) -> Path:
    """The checkpoint of a finished check."""
    (last,) = checkpoints(check.with_name("last"))
    return check.with_name("last") / str(last["file"])


def arrays(check: Path) -> dict[str, np.ndarray]:
    """What a checkpoint of numpy arrays holds."""
    with np.load(last_checkpoint(check)) as found:
        return dict(found)


def weights(check: Path) -> dict[str, np.ndarray]:
    """The weights of a finished check in PyTorch."""
    states = torch.load(last_checkpoint(check), weights_only=True)["weights"]
    return {name: tensor.numpy() for name, tensor in states.items()}


def begins_from(first: Path, words: list[str]) -> None:
    """A second phase starts where the first one has ended, with an optimizer and a schedule of its own."""
    second = Path(words[words.index("--output") + 1])
    said = ends([*words, "--begin", str(first)])
    assert "begins with the weights of" in said and "after step 30" in said
    ended, begun = records.read_curve(first), records.read_curve(second)
    assert begun.curve[0].figures == ended.curve[-1].figures
    assert begun.begun_from is not None and "step 30" in begun.begun_from


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
    ends(command("torch", "1n2g", manifest, whole))

    words, folder = command("torch", "1n2g", manifest, cut), cut.with_suffix(".checkpoints")
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
    script = [
        "src/start.py",
        "workflow/scripts/convergence_verdict.py",
        str(cut),
        "--against",
        str(tmp_path / "stated.csv"),
    ]
    ends([sys.executable, *script, "--tolerance=0.01", "--output", str(place)])
    assert checks.read(place).verdict.verdict == "pass"
    assert place.with_suffix(".svg").stat().st_size > 5000

    words = command("torch", "1n2g", manifest, tmp_path / "second/curve.json", FEW)
    begins_from(cut, words)
    begins_from_no_other(cut)


def test_a_run_goes_on_from_what_a_kill_leaves(tmp_path: Path) -> None:
    """On a small corpus. The folder of checkpoints is copied while rank 0, which writes it, stands still."""
    manifest = training_fixtures.corpus(tmp_path / "data", held_out=1)
    often = SETTINGS.model_copy(update={"evaluate_every": 3, "samples": 8})
    few = often.model_copy(update={"steps": 3})
    whole, cut = tmp_path / "whole/curve.json", tmp_path / "cut/curve.json"
    words, folder = command("tensorflow", "1n2g", manifest, whole, often), whole.with_suffix(".checkpoints")
    process = start(words)
    until(lambda: checkpoints(folder) or process.poll() is not None)
    (first,) = [pid for pid in workers_below(process.pid) if variable(pid, "RANK") == "0"]
    os.kill(first, signal.SIGSTOP)
    shutil.copytree(folder, cut.with_suffix(".checkpoints"))
    os.kill(first, signal.SIGCONT)
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, said

    said = ends(command("tensorflow", "1n2g", manifest, cut, often))
    ours, theirs = records.read_curve(whole), records.read_curve(cut)
    assert theirs.resumed_after_step in range(3, 30) and f"resumes after step {theirs.resumed_after_step}" in said
    assert theirs.loss == ours.loss and len(ours.loss) == often.steps
    assert [look.figures for look in theirs.curve] == [look.figures for look in ours.curve]
    after, resumed = arrays(whole), arrays(cut)
    assert after.keys() == resumed.keys() and len(after) > 30  # with the optimizer's states
    assert all(np.array_equal(after[name], resumed[name]) for name in after)
    begins_from(cut, command("tensorflow", "1n2g", manifest, tmp_path / "second/curve.json", few))
