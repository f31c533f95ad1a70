"""Compute the reference of a proof (reference.py) in a process of its own, which ends before any rank starts.

A process that has trained on a GPU holds memory there until it ends, and a run refuses a GPU that another process uses.
Therefore the launcher's process does not train the reference itself. The reference waits for the devices of this
machine in the same way as a run.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from throughline import processes
from throughline.files import UserError
from throughline.launch import lock, machine
from throughline.launch.supervision import Interrupted, interruptible
from throughline.spec import RunSpec


class Trained(NamedTuple):
    """The loss of every step, and the number of steps at which clipping changed a gradient."""

    losses: list[float]
    clipped_steps: int


def initial(spec: RunSpec, manifest: Path | None, weights: Path, target: str) -> None:
    """Write the weights that the reference and all frameworks start from.

    `target` is the file that Snakemake makes; errors name it.
    """
    _answer("initial", spec, manifest, weights, target)


def train(spec: RunSpec, manifest: Path | None, weights: Path, target: str) -> Trained:
    """Train the reference from these weights."""
    return Trained(*_answer("train", spec, manifest, weights, target))


def _answer(what: str, spec: RunSpec, manifest: Path | None, weights: Path, target: str) -> Any:
    variables = machine.worker_variables(spec)
    words = [what, json.dumps(spec.values()), str(weights)] + ([str(manifest)] if manifest else [])
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
