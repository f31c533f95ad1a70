"""Compute the reference of an equivalence check (reference.py) in a process that ends before any rank starts.

A process that has trained on a GPU holds memory there until it ends, and a run refuses a GPU that another process uses.
The reference waits for the devices of this machine in the same way as a run.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from throughline import processes
from throughline.files import UserError
from throughline.launch import lock, survey
from throughline.launch.supervision import Interrupted, interruptible
from throughline.spec import RunSpec


class Asked(NamedTuple):
    """How the reference trains, and what it leaves.

    updates: map steps (as text) to the files that get what training has added to the weights after them; skipped: steps
    that change no weight, because a loss scaler has skipped them.
    """

    updates: Mapping[str, str] = {}
    skipped: Sequence[int] = ()


class Trained(NamedTuple):
    """The loss of every step, the number of steps at which clipping changed a gradient, and the names of the tensors
    whose true gradient is zero, and of those that have one."""

    losses: list[float]
    clipped_steps: int
    without_gradient: Sequence[str] = ()
    with_gradient: Sequence[str] = ()


def initial(spec: RunSpec, manifest: Path | None, weights: Path, target: str) -> None:
    """Write the weights that the reference and all frameworks start from. Errors name `target`, Snakemake's file."""
    _answer("initial", spec, manifest, weights, target, Asked())


def train(spec: RunSpec, manifest: Path | None, weights: Path, target: str, asked: Asked) -> Trained:
    """Train the reference from these weights."""
    return Trained(*_answer("train", spec, manifest, weights, target, asked))


def _answer(what: str, spec: RunSpec, manifest: Path | None, weights: Path, target: str, asked: Asked) -> Any:
    variables = survey.worker_variables(spec)
    words = [what, json.dumps(spec.values()), str(weights), json.dumps(asked._asdict())]
    words += [str(manifest)] if manifest else []
    command = processes.module(sys.executable, "throughline.checks.reference", *words)
    try:
        with interruptible() as parent, lock.device(target, print, parent.is_gone):
            done = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=False)
    except (Interrupted, InterruptedError):
        raise UserError(f"{target}: stopped from outside", next_step="run snakemake again") from None
    if done.returncode:
        print(done.stderr, file=sys.stderr)
        raise UserError(
            f"{target}: the reference could not be computed",
            why=(done.stderr.strip().splitlines() or [f"its process ended with status {done.returncode}"])[-1],
            next_step="end what uses the memory of this machine and its GPUs, and run snakemake again",
        )
    return json.loads(done.stdout.splitlines()[-1])
