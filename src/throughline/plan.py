"""What is about to run and how long it will take; what came out of it, and what to do next."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from throughline import records
from throughline.files import UserError
from throughline.runs import RunSpec

START_S = 8.0
"""Seconds a run takes before its first step where nothing was measured yet: starting processes, loading a model."""


def describe(specs: Sequence[RunSpec], pending: Collection[str], root: Path = Path()) -> str:
    """The plan as text: a line per configuration with runs to make, then the time they will take.

    `pending` holds the records that are about to be made; every other record counts as there already.
    """
    runs = [spec for spec in specs if spec.record in pending]
    if not runs:
        return "The plan: no training run is to be made."
    by_summary: dict[str, list[RunSpec]] = {}
    for spec in specs:
        by_summary.setdefault(spec.summary, []).append(spec)
    lines = ["The plan:"]
    for summary, siblings in by_summary.items():
        missing = [spec for spec in siblings if spec.record in pending]
        if missing:
            durations = [estimate_s(spec, siblings, root) for spec in missing]
            frameworks = ", ".join(dict.fromkeys(spec.framework for spec in siblings))
            topologies = ", ".join(dict.fromkeys(spec.topology for spec in siblings))
            lines.append(
                f"  {summary}: {siblings[0].model}, {frameworks}, {topologies}: {_count(missing)} to make, "
                f"{len(siblings) - len(missing)} there already, {_time(durations)}"
            )
    return "\n".join(
        [*lines, f"  training in all, one run at a time: {_time([estimate_s(s, specs, root) for s in runs])}"]
    )


def estimate_s(spec: RunSpec, siblings: Sequence[RunSpec], root: Path = Path()) -> float | None:
    """Seconds that `spec` will take: like its finished repeats, else at most its time cap; None where unknown."""
    finished = [
        seconds
        for other in siblings
        if (other.summary, other.framework, other.topology) == (spec.summary, spec.framework, spec.topology)
        and (seconds := _duration_s(root / other.record)) is not None
    ]
    if finished:
        return median(finished)
    return START_S + spec.steps.at_most_s if spec.steps.at_most_s is not None else None


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
    if not path.exists():
        return None
    try:
        record = records.read_run(path)
    except UserError:
        return None
    return (_instant(record.ended) - _instant(record.started)).total_seconds()


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


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
