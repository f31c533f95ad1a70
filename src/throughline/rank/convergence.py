"""A convergence check in a rank: train, evaluate held-out data every `evaluate_every` steps, and resume after a kill.

It uses the same step as the measured loop (worker.py) and nothing else of it, and it times nothing. The training is cut
into segments of `evaluate_every` steps. At the start of each segment, we seed the dropout with the step number. So a
training that resumes between two segments computes exactly the same as one without an interruption. Standard library
and numpy only.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from throughline import files, frameworks, messages, workloads
from throughline.messages import Checkpoint, Trained, Training
from throughline.rank.data import Manifest
from throughline.rank.heartbeat import Heart
from throughline.spec import Options

if TYPE_CHECKING:
    from throughline.rank.worker import Run

STATE = "state.json"
KEPT = 2
"""How many checkpoints we keep. We keep two, because one may be damaged."""
PIECE = 1 << 25
"""How many bytes we write and sync at a time."""


def train(run: Run, order: Training) -> Trained:
    """Train to the last step, from the start or from the checkpoint that the launcher has verified."""
    framework, heart = run.framework, run.heart
    if "convergence" not in frameworks.features(run.spec.framework, run.spec.model):
        raise workloads.Unsupported(f"{run.spec.framework} has no checkpoints that are safe to load")
    if run.options.tensor > 1 or run.options.sharding != "none":
        whole = "a convergence check looks at whole replicas, with all states of the optimizer"
        raise workloads.Unsupported(f"{whole}: train it without options.tensor and options.sharding")
    if split := [
        name for name, value in workloads.whole(run.spec.model).items() if getattr(run.spec.parameters, name) != value
    ]:
        raise workloads.Unsupported(
            f"a convergence check looks at whole models, and {', '.join(split)} splits this one"
        )
    book = Book(Path(order.folder), order.identity, heart)
    done = 0
    curve: list[dict[str, Any]] = []
    losses: list[float | None] = []
    held_out = list(_held_out(run, order.samples)) if run.rank == 0 else []
    if order.resume:
        done = run.steps_made = order.resume.step
        with book.verified(order.resume) as stream:
            framework.restore(stream)
        curve, losses = book.until(done)
    else:
        if order.begin:
            with book.verified(order.begin) as stream:
                framework.restore(stream, weights_alone=True)
        if run.rank == 0:
            curve.append({"step": 0, **_looked(run, held_out)})
    while done < order.steps:
        heart.phase("training", order.steps)
        heart.step(done)
        # Each rank and segment has its own seed.
        framework.seed((run.spec.seed * 1_000_003 + run.rank) * 1_000_003 + done + 1 & 2**63 - 1)
        until = min(order.steps, (done // order.evaluate_every + 1) * order.evaluate_every)
        values = []
        for step in range(done + 1, until + 1):
            values.append(run.step())
            heart.step(step)
        framework.sync()
        done = until
        losses += map(_number, framework.losses(values))
        framework.barrier()
        if run.rank == 0:
            curve.append({"step": done, **_looked(run, held_out)})
            book.add(done, framework.save, curve, losses)
        framework.barrier()
        if not framework.broadcast(int(None not in losses[-len(values) :])):
            break
    heart.phase("end")
    return Trained(curve, losses)


def _held_out(run: Run, samples: int) -> Iterator[Any]:
    """Yield the first `samples` rows of the test shards, as batches on the device."""
    assert run.manifest
    for rows in run.decoded(_first(run.manifest, samples, run.size.batch_per_replica)):
        yield run.framework.deliver(run.framework.data(run.workload.batch(rows, Options())))


def _first(manifest: Manifest, samples: int, size: int) -> Iterator[dict[str, Any]]:
    """Yield the first `samples` rows of the test shards, at most `size` at a time."""
    import numpy as np

    left = samples
    for shard in manifest.held_out:
        rows, count = manifest.reader.read(shard, 0), min(left, manifest.reader.rows(shard))
        for start in range(0, count, size):
            until = min(start + size, count)
            yield {name: np.ascontiguousarray(array[start:until]) for name, array in rows.items()}
        left -= count


def _looked(run: Run, held_out: list[Any]) -> dict[str, float | None]:
    """Return the workload's figures of the held-out samples, from sums over all batches.

    Each batch counts as progress for the watchdog.
    """
    sums: dict[str, float] = {}
    run.heart.phase("evaluation", len(held_out))
    for number, batch in enumerate(held_out, 1):
        for name, value in run.framework.form.sums(run.framework.network, batch).items():
            sums[name] = sums.get(name, 0.0) + value
        run.heart.step(number)
    figures = {name: _number(value) for name, value in run.workload.look(sums).items()}
    return {**figures, "samples": int(sums["samples"])}


def _number(value: float) -> float | None:
    """Return the value, or None if it is not finite and JSON cannot express it."""
    return value if math.isfinite(value) else None


class Watched(io.FileIO):
    """A file that reports progress to the watchdog for every piece that is read or written.

    So a large checkpoint on a slow disk does not look like a hang. Each written piece is synced, because a single sync
    at the end could take too long without any progress.
    """

    def __init__(self, path: Path, mode: str, heart: Heart | None) -> None:
        super().__init__(path, mode)
        self._heart, self._moved = heart, 0
        if heart:
            heart.phase("checkpoint")

    def write(self, data: Any) -> int:
        written = super().write(memoryview(data)[:PIECE])
        os.fdatasync(self.fileno())
        return self._lives(written)

    def readinto(self, buffer: Any) -> int:
        return self._lives(super().readinto(memoryview(buffer)[:PIECE]))

    def _lives(self, count: int) -> int:
        self._moved += count
        if self._heart:
            self._heart.step(self._moved)
        return count


class Book:
    """The checkpoints of one check in a folder. state.json lists the complete checkpoints with their digests.

    The file of a checkpoint is written and synced first. The checkpoint exists as soon as state.json lists it.
    state.json also has the curve and the losses up to the newest checkpoint. We ignore a state.json whose `identity` is
    not this one (None: any is accepted), because it belongs to another check.
    """

    def __init__(self, folder: Path, identity: str | None, heart: Heart | None = None) -> None:
        self.folder, self.identity, self.heart = folder, identity, heart

    def read(self) -> dict[str, Any]:
        """Return the content of state.json. It has no checkpoints if there is no readable state.json of this check."""
        try:
            state: dict[str, Any] = json.loads((self.folder / STATE).read_text(encoding="utf-8"))
            if self.identity in (None, state["identity"]):
                return state
        except (OSError, ValueError, KeyError, TypeError):
            pass
        return {"identity": self.identity, "checkpoints": [], "curve": [], "losses": []}

    def newest(self) -> tuple[Checkpoint | None, list[str]]:
        """Return the newest undamaged checkpoint (None without one), and what is wrong with the newer checkpoints."""
        faults: list[str] = []
        for entry in reversed(self.read()["checkpoints"]):
            try:
                checkpoint = messages.parsed(Checkpoint, entry)
                with self.verified(checkpoint):
                    return checkpoint, faults
            except (OSError, ValueError) as error:
                faults.append(f"checkpoint of step {entry['step']} is not used: {error}")
        return None, faults

    @contextmanager
    def verified(self, checkpoint: Checkpoint) -> Iterator[IO[bytes]]:
        """Yield the opened file of a checkpoint. Raise ValueError if its digest is not that of state.json."""
        path = self.folder / checkpoint.file
        if self._sha256(path) != checkpoint.sha256:
            raise ValueError(f"the sha256 of {path.name} differs")
        with io.BufferedReader(Watched(path, "r", self.heart)) as stream:
            yield stream

    def until(self, step: int) -> tuple[list[dict[str, Any]], list[float | None]]:
        """Return the curve and the losses up to `step`."""
        state = self.read()
        return [point for point in state["curve"] if point["step"] <= step], state["losses"][:step]

    def add(self, step: int, save: Any, curve: list[dict[str, Any]], losses: list[float | None]) -> None:
        """Write a checkpoint with `save(stream)`, then add it to state.json, and remove the oldest checkpoints."""
        path = self.folder / f"step_{step:09d}.checkpoint"
        with (
            files.atomic(path) as partial,
            io.BufferedWriter(Watched(partial, "w", self.heart), PIECE) as stream,
        ):
            save(stream)
        older = [entry for entry in self.read()["checkpoints"] if entry["step"] < step]
        kept = [*older, {"step": step, "file": path.name, "sha256": self._sha256(path)}][-KEPT:]
        state = {"identity": self.identity, "checkpoints": kept, "curve": curve, "losses": losses}
        files.write_json(self.folder / STATE, state)
        for other in set(self.folder.glob("*.checkpoint")) - {self.folder / entry["file"] for entry in kept}:
            other.unlink(missing_ok=True)

    def _sha256(self, path: Path) -> str:
        with Watched(path, "r", self.heart) as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()

    def leave_last(self, folder: Path) -> None:
        """Move the newest checkpoint to `folder`, which is replaced, and remove all others."""
        shutil.rmtree(folder, ignore_errors=True)
        state = self.read()
        for entry in state["checkpoints"][:-1]:
            (self.folder / entry["file"]).unlink(missing_ok=True)
        if state["checkpoints"]:
            files.write_json(self.folder / STATE, {**state, "checkpoints": state["checkpoints"][-1:]})
            self.folder.rename(folder)
        self.clear()

    def clear(self) -> None:
        """Remove the folder and all checkpoints in it."""
        shutil.rmtree(self.folder, ignore_errors=True)
