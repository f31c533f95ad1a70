"""What is about to run and how long it will take; what came out of it, and what to do next."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from datetime import datetime
from pathlib import Path
from statistics import median

from throughline.runs import RunSpec

START_S = 8.0
"""Seconds a run takes before its first step where nothing was measured yet: starting processes, loading a model."""


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


def failures(specs: Sequence[RunSpec], root: Path = Path()) -> str:
    """What a failed workflow says last: the runs without a record that have a log, and the next step."""
    lines = ["Not everything could be made; what is there is kept. Run the same command again: only the rest is made."]
    failed = [spec for spec in specs if (root / spec.log).exists() and not (root / spec.record).exists()]
    lines += [f"  failed: {spec.record}; why: {spec.log}" for spec in failed]
    return "\n".join(lines)


def _duration_s(path: Path) -> float | None:
    """Seconds between a record's start and end; None where there is no readable record."""
    try:
        record = json.loads(path.read_bytes())
        return (datetime.fromisoformat(record["ended"]) - datetime.fromisoformat(record["started"])).total_seconds()
    except (OSError, ValueError, KeyError, TypeError):
        return None


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
