"""The checkpoints of a convergence check: files with digests, and the curve and losses up to the newest of them.

Standard library only.
"""

import hashlib
import io
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from throughline import files
from throughline.messages import Checkpoint
from throughline.rank.heartbeat import Heart
from throughline.spec import read

STATE = "state.json"
KEPT = 2
"""How many checkpoints we keep, because one may be damaged."""
PIECE = 1 << 25
"""How many bytes we write and sync at a time."""


class Watched(io.FileIO):
    """A file that reports progress to the watchdog for every piece that is read, or written and synced. So a large
    checkpoint on a slow disk does not look like a hang."""

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


class Checkpoints:
    """The checkpoints of one check in a folder. A checkpoint exists as soon as state.json lists it, with its digest.

    state.json also has the curve and the losses up to the newest checkpoint. It is ignored if its `identity` is that of
    another check (None: any is accepted).
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
                checkpoint = read(Checkpoint, entry)
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
