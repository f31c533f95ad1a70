"""What is about to run and how long it will take; what came out of it, and what to do next."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from statistics import median

from throughline.files import UserError
from throughline.study.runs import RunSpec

START_S = 8.0
"""Seconds a run takes before its first step where nothing was measured yet: starting processes, loading a model."""
FAILURES_AT_MOST = 20
"""How many of them are named at the end; the logs of all are there."""


def describe(specs: Sequence[RunSpec], pending: Collection[str], root: Path = Path()) -> str:
    """The plan as text: a line per configuration with runs to make, then the time they will take.

    `pending` holds the records that are about to be made; every other record counts as there already.
    """
    by_summary: dict[str, list[RunSpec]] = {}
    for spec in specs:
        by_summary.setdefault(spec.summary, []).append(spec)
    lines = ["The plan:"]
    total: list[float | None] = []
    for summary, siblings in by_summary.items():
        missing = [spec for spec in siblings if spec.record in pending]
        if not missing:
            continue
        durations = estimates_s(missing, siblings, pending, root)
        total += durations
        frameworks = ", ".join(dict.fromkeys(spec.framework for spec in siblings))
        topologies = ", ".join(dict.fromkeys(spec.topology for spec in siblings))
        lines.append(
            f"  {summary}: {siblings[0].model}, {frameworks}, {topologies}: {_count(missing)} to make, "
            f"{len(siblings) - len(missing)} there already, {_time(durations)}"
        )
    if not total:
        return "The plan: no training run is to be made."
    return "\n".join([*lines, f"  training in all, one run at a time: {_time(total)}"])


def estimates_s(
    missing: Sequence[RunSpec], siblings: Sequence[RunSpec], pending: Collection[str], root: Path = Path()
) -> list[float | None]:
    """Seconds of each missing run: like its finished repeats, else at most its time cap; None where unknown."""
    finished: dict[tuple[str, str], list[float]] = {}
    for spec in siblings:
        if spec.record not in pending and (seconds := _duration_s(root / spec.record)) is not None:
            finished.setdefault((spec.framework, spec.topology), []).append(seconds)
    return [
        median(known) if (known := finished.get((spec.framework, spec.topology))) else _cap_s(spec) for spec in missing
    ]


def _cap_s(spec: RunSpec) -> float | None:
    return None if spec.steps.at_most_s is None else START_S + spec.steps.at_most_s


def outcome(report: str) -> str:
    """What a finished workflow says last."""
    if Path(report).exists():
        return f"Finished. The report: {report} (open it in a browser; it needs no network)"
    return "Finished."


def failures(logs: Mapping[str, str], root: Path = Path()) -> str:
    """What a failed workflow says last: each file of `logs` that is missing and has a log, and the next step.

    logs: what was to be made -> its log.
    """
    failed = [f"  failed: {made}; why: {log}" for made, log in logs.items() if _failed(root / made, root / log)]
    named = [
        "Not everything could be made; what is there is kept.",
        *failed[:FAILURES_AT_MOST],
        *([f"  and {len(failed) - FAILURES_AT_MOST} more"] if len(failed) > FAILURES_AT_MOST else []),
    ]
    mend = "mend what the log says" if len(failed) == 1 else "mend what the logs say" if failed else "mend the cause"
    return "\n".join([*named, f"  next: {mend}, and run the same command again: only the rest is made"])


def _failed(made: Path, log: Path) -> bool:
    return not made.exists() and log.exists()


def check_places(outputs: Iterable[str], root: Path = Path()) -> None:
    """UserError where a folder that something is about to be written to cannot be written: before hours of training."""
    for folder in sorted({_there(root / folder) for folder in {os.path.dirname(output) for output in outputs}}):
        if not os.access(folder, os.W_OK | os.X_OK):
            raise UserError(
                f"{folder}{os.sep} cannot be written, and results belong there",
                why="this user may not write there, or the file system is mounted read-only",
                next_step="correct the rights or the mount, and run the same command again; nothing was started",
            )


def _there(folder: Path) -> Path:
    """`folder`, or the innermost folder above it that exists."""
    return next(place for place in (folder, *folder.parents) if place.is_dir())


def _duration_s(path: Path) -> float | None:
    """Seconds between a record's start and end; None where there is no readable record, or the clock was set back."""
    try:
        record = json.loads(path.read_bytes())
        taken = datetime.fromisoformat(record["ended"]) - datetime.fromisoformat(record["started"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return taken.total_seconds() if taken.total_seconds() >= 0 else None


def _time(durations: Sequence[float | None]) -> str:
    known = [duration for duration in durations if duration is not None]
    if not known:
        return "time not known before the first repeat"
    rest = len(durations) - len(known)
    return f"about {_span(sum(known))}" + (f" and {rest} runs whose time is not known yet" if rest else "")


def _span(seconds: float) -> str:
    minutes = seconds / 60
    if minutes < 2:
        return f"{seconds:.0f} s"
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"


def _count(runs: Sequence[RunSpec]) -> str:
    return "1 run" if len(runs) == 1 else f"{len(runs)} runs"
