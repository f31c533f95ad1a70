"""What the launcher has to do for one run (RunRequest), and the log that the run leaves (Log)."""

import contextlib
import os
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from throughline import files, handover, workloads
from throughline.files import UserError
from throughline.installation import choose
from throughline.messages import Training
from throughline.spec import RunSpec


@dataclass
class RunRequest:
    """One run that the launcher has to do.

    command: the command that repeats this run; weights: an .npz file with the weights to start from, which also makes
    the record keep the losses of every rank; updates: an .npz file with what the reference adds to these weights;
    telemetry: off to measure what telemetry costs; strict: refuse the run if there is any warning before it;
    convergence: the training of a convergence check, without a measurement or a record; part_of: the file that
    Snakemake makes from this run and other runs; visible: the indices of the devices that it sees of its machine, None
    for all; side_by_side: other runs may take place at the same time, on other hosts behind ssh;
    checkpoints: the folder for checkpoints of options.checkpoint; restart: begin again from the last one there.
    """

    spec: RunSpec
    record: Path
    log: Path
    manifest: Path | None = None
    python: str = sys.executable
    command: str = ""
    hang_after_s: float | None = None
    hosts: Sequence[str] = ()
    weights: Path | None = None
    updates: Path | None = None
    telemetry: bool = True
    convergence: Training | None = None
    strict: bool = False
    part_of: str | None = None
    visible: Sequence[int] | None = None
    side_by_side: bool = False
    checkpoints: Path | None = None
    restart: bool = False

    @property
    def target(self) -> str:
        """The file that Snakemake has to make."""
        return self.part_of or (str(self.record) if self.convergence else self.spec.record)

    @property
    def of_program(self) -> dict[str, Any]:
        """What a run of a program needs beside its specification (handover.py)."""
        usual: dict[str, Any] = {"folder": os.getcwd(), "files": [], "python": None, "variables": {}}
        usual |= {"silent_for": 600.0, "timeout": None}
        return usual | dict(handover.get("programs", {}).get(self.spec.framework, {}))

    @property
    def with_content(self) -> RunSpec:
        """The specification with the content of the files that it names by digest, as ranks get it."""
        return replace(self.spec, content=workloads.of(self.spec.model).content(self.spec))

    def failed(self, what: str, why: str | None) -> UserError:
        """Return the UserError for a run that an infrastructure failure ended."""
        return UserError(
            f"{self.target}: {what}",
            why=why,
            next_step=f"read {self.log}; run snakemake again, only this run is made again",
        )


def lacks_environment(spec: RunSpec, python: str) -> str | None:
    """Return why this machine has no environment for a run; None if there is one, or if it needs none.

    Either it cannot be built, or none of its builds runs on the GPUs that are here. A CPU run needs no such build.
    """
    if spec.program:
        return None
    if python == sys.executable and (lacking := choose.lacking(spec.framework)):
        return lacking
    if spec.device == "cpu" or not (reason := choose.no_build(spec.framework)):
        return None
    return f"{reason}; runs.device: cpu measures it on the CPU"


def is_strict(benchmark: str) -> bool:
    """True if the configuration has `runs.strict` for a benchmark (derived or not)."""
    return benchmark.split("__")[0] in handover.get("strict", ())


class Log:
    """The run's log. Every line is scrubbed and written immediately."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("w", encoding="utf-8", buffering=1)
        self._guard = threading.Lock()

    def write(self, text: str) -> None:
        with self._guard, contextlib.suppress(OSError):  # if the disk is full, the run continues and writes its record
            self._file.write(files.scrub(text) + "\n")

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()
