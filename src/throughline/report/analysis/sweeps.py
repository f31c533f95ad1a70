"""Find cells that differ in one number only, to show how a step's latency and memory depend on that number.

The number is the batch, within one benchmark, or a parameter such as a vocabulary, over benchmarks that have everything
else in common. Only workloads that declare latency have sweeps, because their sizes decide it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from throughline.report.analysis.cells import Group, Row
from throughline.report.analysis.pairs import Figures

LEAST = 3
"""The fewest points of a sweep."""


@dataclass(frozen=True)
class Point:
    """A cell at one value of the swept number. latency_ms: that of the median step; None if it is not known."""

    value: float
    group: Group
    row: Row
    latency_ms: float | None
    memory_bytes: float | None


@dataclass(frozen=True)
class Sweep:
    """The points of a swept number (`key`), in the order of its values, for each framework and topology."""

    key: str
    benchmark: str
    words: str
    lines: dict[str, list[Point]]


def sweeps(groups: Sequence[Group]) -> list[Sweep]:
    """Return all sweeps over these groups, each with the first benchmark that it includes."""
    found: dict[tuple[Any, ...], list[Point]] = {}
    for group in groups:
        summary = group.summary
        if summary is None or not group.by_iteration:
            continue
        settings = summary.optimizer, summary.options
        common = summary.model, group.precision, summary.scaling, *settings
        own = summary.parameters
        keys = {name: value for name, value in own.items() if isinstance(value, int) and not isinstance(value, bool)}
        for row in group.measured:
            line = row.shown, str(row.topology)
            within = ("batch", group.benchmark, *common, *line, tuple(own.items()))
            found.setdefault(within, []).append(_point(float(group.batch), group, row))
            for name, value in keys.items():
                rest = tuple(item for item in own.items() if item[0] != name)
                across = (name, None, *common, *line, rest, group.batch)
                found.setdefault(across, []).append(_point(float(value), group, row))
    return _joined(found)


def _joined(found: dict[tuple[Any, ...], list[Point]]) -> list[Sweep]:
    """Join lines into sweeps: lines of one sweep differ only in framework and topology."""
    made: dict[tuple[Any, ...], Sweep] = {}
    for (
        key,
        benchmark,
        model,
        precision,
        scaling,
        optimizer,
        options,
        shown,
        topology,
        *rest,
    ), points in found.items():
        if len({point.value for point in points}) < LEAST:
            continue
        first = points[0].group
        batch = "" if key == "batch" else f", {first.batch_text}"
        place = key, benchmark, model, precision, scaling, optimizer, options, *rest
        sweep = made.setdefault(place, Sweep(key, first.benchmark, f"{model}, {precision}{batch}", {}))
        sweep.lines[f"{shown} {topology}"] = sorted(points, key=lambda point: point.value)
    return list(made.values())


def _point(value: float, group: Group, row: Row) -> Point:
    assert row.cell
    figures: Iterable[Any] = row.cell.figures
    latency = next((one.value for one in figures if (one.name, one.at) == ("latency", "median")), None)
    return Point(value, group, row, latency, Figures.of(row.cell).memory_bytes)
