"""One run as the launcher was asked for it, and its log."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from throughline import files
from throughline.files import UserError
from throughline.messages import Training
from throughline.study.runs import RunSpec


@dataclass
class Job:
    """One run. `command` is what repeats it. With `weights` (an .npz file) it starts from these, and the record holds
    every rank's losses. `telemetry` off is for measuring what it costs. `strict`: what would be a warning before the
    run refuses it. With `convergence` nothing is measured, and no record is written. `part_of`: what Snakemake makes
    of this run and others."""

    spec: RunSpec
    record: Path
    log: Path
    manifest: Path | None = None
    python: str = sys.executable
    repair: str | None = None
    command: str = ""
    hang_after_s: float | None = None
    hosts: Sequence[str] = ()
    weights: Path | None = None
    telemetry: bool = True
    convergence: Training | None = None
    strict: bool = False
    part_of: str | None = None

    @property
    def target(self) -> str:
        """What Snakemake is asked for."""
        return self.part_of or (str(self.record) if self.convergence else self.spec.record)

    @property
    def full(self) -> dict[str, Any]:
        """The specification with its defaults, as JSON values."""
        value: dict[str, Any] = json.loads(self.spec.model_dump_json())
        return value

    def failed(self, what: str, why: str | None) -> UserError:
        """The run's end by an infrastructure failure."""
        return UserError(
            f"{self.target}: {what}",
            why=why,
            next_step=f"read {self.log}; run snakemake again, only this run is made again",
        )


class Log:
    """The run's log: written at once; every line scrubbed."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("w", encoding="utf-8", buffering=1)
        self._guard = threading.Lock()

    def write(self, text: str) -> None:
        with self._guard, contextlib.suppress(OSError):  # a full disk ends no run before its record is written
            self._file.write(files.scrub(text) + "\n")

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()


def is_strict(benchmark: str) -> bool:
    """Whether the workflow hands over `runs.strict` for a benchmark, derived or not."""
    return benchmark.split("__")[0] in os.environ.get("THROUGHLINE_STRICT", "").split()
