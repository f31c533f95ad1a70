"""Latency and memory over the batch, or over a parameter such as the vocabulary: two plots for each sweep.

Find cells that differ in one number only, to show how a step's latency and memory depend on that number.

The number is the batch, within one benchmark, or a parameter such as a vocabulary, over benchmarks that have everything
else in common. Only workloads whose published tables state single iterations have sweeps.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from matplotlib.figure import Figure as Plot
from matplotlib.ticker import FuncFormatter, NullLocator

from throughline.numbers import reading
from throughline.report.analysis.cells import Group, Row
from throughline.report.analysis.option_changes import Figures
from throughline.report.render import plots as draws
from throughline.report.render.plots import Theme
from throughline.report.topic import Drawing, Scope, Topic

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
    lines: dict[tuple[Any, ...], list[Point]] = {}
    for group in groups:
        summary = group.summary
        if summary is None or not group.by_iteration:
            continue
        settings = summary.optimizer, (summary.options, summary.global_batch)
        common = summary.model, group.precision, summary.scaling, *settings
        parameters = summary.parameters
        numbers = {name: value for name, value in parameters.items() if type(value) is int}
        for row in group.measured:
            line = row.shown, str(row.topology)
            within = ("batch", group.benchmark, *common, *line, tuple(parameters.items()))
            lines.setdefault(within, []).append(_point(float(group.batch), group, row))
            for name, value in numbers.items():
                rest = tuple(item for item in parameters.items() if item[0] != name)
                across = (name, None, *common, *line, rest, group.batch)
                lines.setdefault(across, []).append(_point(float(value), group, row))
    return _joined(lines)


def _joined(lines: dict[tuple[Any, ...], list[Point]]) -> list[Sweep]:
    """Join lines into sweeps: lines of one sweep differ only in framework and topology."""
    joined: dict[tuple[Any, ...], Sweep] = {}
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
    ), points in lines.items():
        if len({point.value for point in points}) < LEAST:
            continue
        first = points[0].group
        batch = "" if key == "batch" else f", {first.batch_text}"
        identity = key, benchmark, model, precision, scaling, optimizer, options, *rest
        sweep = joined.setdefault(identity, Sweep(key, first.benchmark, f"{model}, {precision}{batch}", {}))
        sweep.lines[f"{shown} {topology}"] = sorted(points, key=lambda point: point.value)
    return list(joined.values())


def _point(value: float, group: Group, row: Row) -> Point:
    assert row.cell
    figures: Iterable[Any] = row.cell.figures
    latency = next((figure.value for figure in figures if (figure.name, figure.at) == ("latency", "median")), None)
    return Point(value, group, row, latency, Figures.of(row.cell).memory_bytes)


Read = Callable[[Point], float | None]
CROWDED = 9
"""With more values than this, only every second one has a tick."""
FAR = 16


def _memory_gb(point: Point) -> float | None:
    return None if point.memory_bytes is None else point.memory_bytes / 1e9


SHOWN: dict[str, tuple[str, Read]] = {
    "latency": ("ms", lambda point: point.latency_ms),
    "memory": ("GB", _memory_gb),
}
"""Map each quantity that is drawn to its unit and to the function that reads it."""


def drawings(scope: Scope) -> Iterator[Drawing]:
    """Yield the plots of the sweeps that begin with this benchmark.

    A sweep over several benchmarks is only on the page, not in files.
    """
    for number, sweep in enumerate(sweep for sweep in sweeps(scope.everything) if sweep.benchmark == scope.benchmark):
        points = [point for line in sweep.lines.values() for point in line]
        whole = all(point.group.benchmark == scope.benchmark for point in points)
        for name, (unit, read) in SHOWN.items():
            if any(read(point) is not None for point in points):
                heading = f"{name} over {sweep.key}"
                drawn = partial(draw, sweep, heading, unit, read)
                words = f"{heading}: {sweep.words}; a line for each framework and topology"
                yield Drawing(f"{name}_over_{sweep.key}_{number}", heading, drawn, words, in_files=whole)


def draw(sweep: Sweep, heading: str, unit: str, read: Read, theme: Theme) -> Plot:
    """Draw a sweep. The x axis is logarithmic; so is the y axis if values lie far apart."""
    plot, axes = draws.blank(theme, heading, unit)
    axes.set_xlabel(sweep.key, color=theme.muted, fontsize=9)
    axes.set_xscale("log", base=2)
    labels, ticks = [], set()
    for index, (name, points) in enumerate(sweep.lines.items()):
        known = [(point.value, value) for point in points if (value := read(point)) is not None]
        if known:
            values, figures = zip(*known, strict=True)
            colour, marker = theme.colour(index), theme.marker(index)
            axes.plot(values, figures, marker=marker, color=colour, ms=6, lw=1.6, ls=draws.dashes(marker))
            labels.append((values[-1], figures[-1], name, f"{reading(figures[-1])} {unit}", colour, marker))
            ticks |= set(values)
    low, high = axes.dataLim.y0, axes.dataLim.y1
    if low > 0 and high > FAR * low:
        axes.set_yscale("log", base=2)
        axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.4g}"))
    every = sorted(ticks)[:: 1 if len(ticks) <= CROWDED else 2]
    axes.set_xticks(every, [_short(value) for value in every])
    axes.xaxis.set_minor_locator(NullLocator())
    return draws.finish(plot, axes, labels, theme, f"{sweep.words}; less is better")


def _short(value: float) -> str:
    """Return a number in short form, such as `3.2M` for 3,200,000."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:g}"


TOPIC = Topic("sweeps", "Latency and memory over size", order=70, drawings=drawings)
