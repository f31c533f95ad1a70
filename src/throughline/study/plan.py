"""What is about to run and how long it will take; what came out of it, and what to do next."""

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
        durations = estimates_s(siblings, pending, root)
        if not durations:
            continue
        total += durations
        frameworks = ", ".join(dict.fromkeys(spec.framework for spec in siblings))
        topologies = ", ".join(dict.fromkeys(spec.topology for spec in siblings))
        lines.append(
            f"  {summary}: {siblings[0].model}, {frameworks}, {topologies}: {len(durations)} "
            f"run{'s' if len(durations) > 1 else ''} to make, {len(siblings) - len(durations)} there already, "
            f"{_time(durations)}"
        )
    if not total:
        return "The plan: no training run is to be made."
    return "\n".join([*lines, f"  training in all, one run at a time: {_time(total)}"])


def estimates_s(specs: Sequence[RunSpec], pending: Collection[str], root: Path = Path()) -> list[float | None]:
    """Seconds of each pending run: like its finished repeats, else at most its time cap; None where unknown."""
    finished: dict[tuple[str, str], list[float]] = {}
    for spec in specs:
        if spec.record not in pending and (seconds := _duration_s(root / spec.record)) is not None:
            finished.setdefault((spec.framework, spec.topology), []).append(seconds)
    estimates: list[float | None] = []
    for spec in specs:
        if spec.record in pending:
            cap = spec.steps.at_most_s
            repeats = finished.get((spec.framework, spec.topology))
            estimates.append(median(repeats) if repeats else None if cap is None else START_S + cap)
    return estimates


def outcome(report: str) -> str:
    """What a finished workflow says last."""
    where = f" The report: {report} (open it in a browser; it needs no network)" if Path(report).exists() else ""
    return f"Finished.{where}"


def failures(logs: Mapping[str, str], root: Path = Path()) -> str:
    """What a failed workflow says last: each file of `logs` that is missing and has a log, and the next step.

    logs: what was to be made -> its log.
    """
    failed = [
        f"  failed: {made}; why: {log}"
        for made, log in logs.items()
        if not (root / made).exists() and (root / log).exists()
    ]
    named = ["Not everything could be made; what is there is kept.", *failed[:FAILURES_AT_MOST]]
    if len(failed) > FAILURES_AT_MOST:
        named.append(f"  and {len(failed) - FAILURES_AT_MOST} more")
    mend = "mend what the log says" if len(failed) == 1 else "mend what the logs say" if failed else "mend the cause"
    return "\n".join([*named, f"  next: {mend}, and run the same command again: only the rest is made"])


def check_places(outputs: Iterable[str], root: Path = Path()) -> None:
    """UserError where a folder that something is about to be written to cannot be written: before hours of training."""
    wanted = {root / os.path.dirname(output) for output in outputs}
    there = {next(place for place in (folder, *folder.parents) if place.is_dir()) for folder in wanted}
    for folder in sorted(there):
        if not os.access(folder, os.W_OK | os.X_OK):
            raise UserError(
                f"{folder}{os.sep} cannot be written, and results belong there",
                why="this user may not write there, or the file system is mounted read-only",
                next_step="correct the rights or the mount, and run the same command again; nothing was started",
            )


def _duration_s(path: Path) -> float | None:
    """Seconds between a record's start and end; None where there is no readable record, or the clock was set back."""
    try:
        record = json.loads(path.read_bytes())
        started, ended = (datetime.fromisoformat(record[key]) for key in ("started", "ended"))
        seconds = (ended - started).total_seconds()
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return seconds if seconds >= 0 else None


def _time(durations: Sequence[float | None]) -> str:
    known = [duration for duration in durations if duration is not None]
    if not known:
        return "time not known before the first repeat"
    seconds, rest = sum(known), len(durations) - len(known)
    minutes = seconds / 60
    span = f"{seconds:.0f} s" if minutes < 2 else f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"
    return f"about {span}" + (f" and {rest} runs whose time is not known yet" if rest else "")
