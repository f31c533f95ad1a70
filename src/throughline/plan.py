"""What is about to run and how long it will take; what came out of it, and what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from throughline import records
from throughline.files import UserError
from throughline.runs import RunSpec

START_S = 8.0
"""Seconds a run takes before its first step where nothing was measured yet: starting processes, loading a model."""


def describe(specs: Sequence[RunSpec], root: Path = Path()) -> str:
    """The plan as text: a line per configuration with what is there already, then the time it will take."""
    lines = ["The plan:"]
    by_cell: dict[str, list[RunSpec]] = {}
    for spec in specs:
        by_cell.setdefault(spec.summary, []).append(spec)
    remaining: list[float | None] = []
    for summary, runs in by_cell.items():
        missing = [spec for spec in runs if not (root / spec.record).exists()]
        durations = [estimate_s(spec, runs, root) for spec in missing]
        remaining += durations
        spec = runs[0]
        frameworks = ", ".join(dict.fromkeys(run.framework for run in runs))
        topologies = ", ".join(dict.fromkeys(run.topology for run in runs))
        lines.append(
            f"  {summary}: {spec.model}, {frameworks}, {topologies}, {len(runs)} runs, "
            f"{len(runs) - len(missing)} there already{_time(durations)}"
        )
    if not specs:
        return "The plan: no benchmark is configured, only the corpus is made"
    if not remaining:
        return "\n".join([*lines, "  every run is there already; nothing trains unless it is forced"])
    unknown = sum(duration is None for duration in remaining)
    total = sum(duration for duration in remaining if duration is not None)
    known = f"about {_span(total)}" if unknown < len(remaining) else "not known before the first repeat"
    rest = (
        f" (and {unknown} runs whose time is not known before their first repeat)"
        if 0 < unknown < len(remaining)
        else ""
    )
    return "\n".join([*lines, f"  training time on one machine: {known}{rest}"])


def estimate_s(spec: RunSpec, siblings: Sequence[RunSpec], root: Path = Path()) -> float | None:
    """Seconds that `spec` will take: like its finished repeats, else at most its time cap; None where unknown."""
    finished = [
        seconds
        for other in siblings
        if (other.framework, other.topology) == (spec.framework, spec.topology)
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
    return f", {_span(sum(known))} to go" if known and len(known) == len(durations) else ""


def _span(seconds: float) -> str:
    minutes = seconds / 60
    if minutes < 2:
        return f"{seconds:.0f} s"
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"
