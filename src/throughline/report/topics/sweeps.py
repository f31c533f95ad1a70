"""Latency and memory over the batch, or over a parameter such as the vocabulary: two plots for each sweep.

The number is the batch, within one benchmark, or a parameter such as a vocabulary, over benchmarks that have everything
else in common. Only workloads whose published tables state single iterations have sweeps.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any

from matplotlib.figure import Figure as Plot
from matplotlib.ticker import EngFormatter, FuncFormatter, NullLocator

from throughline.numbers import reading
from throughline.report.analysis.cells import Cell, Group
from throughline.report.render import plots as draws
from throughline.report.topic import Drawing, Scope, Topic
from throughline.report.topics.off_and_on import figures

LEAST = 3
"""The fewest points of a sweep."""
Read = Callable[[Cell], float | None]
SHOWN: dict[str, tuple[str, Read]] = {
    "latency": ("ms", lambda cell: cell.figure("latency", "median")),
    "memory": ("GB", lambda cell: (used := figures(cell.record)["memory_bytes"]) and used / 1e9),
}
"""Map each quantity that is drawn to its unit and to the function that reads it. The latency is of the median step."""
Points = list[tuple[float, Cell]]
"""Cells, each with its value of the swept number."""
CROWDED = 9
"""With more values than this, only every second one has a tick."""
FAR = 16
"""The y axis is logarithmic if the largest value is more than so many times the smallest one."""


@dataclass(frozen=True)
class Sweep:
    """The points of a swept number (`key`), in the order of its values, for each framework and topology."""

    key: str
    benchmark: str
    words: str
    lines: dict[str, Points]


def sweeps(groups: Sequence[Group]) -> list[Sweep]:
    """Return all sweeps over these groups, each with the first benchmark that it includes."""
    swept: dict[tuple[Any, ...], dict[str, Points]] = {}
    for group in (group for group in groups if group.by_iteration):
        summary, parameters = group.summary, group.summary.parameters
        common = (
            summary.model, group.precision, summary.scaling, summary.optimizer, summary.options, summary.global_batch,
        )  # fmt: skip
        numbers = {name: value for name, value in parameters.items() if type(value) is int}
        for cell in group.measured:
            keys = {("batch", group.benchmark, *common, *parameters.items()): int(group.batch)}
            for name, value in numbers.items():
                rest = (item for item in parameters.items() if item[0] != name)
                keys[name, None, *common, *rest, group.batch] = value
            for key, value in keys.items():
                swept.setdefault(key, {}).setdefault(cell.name, []).append((float(value), cell))
    found = []
    for (key, *_), lines in swept.items():
        long = {
            name: sorted(points, key=itemgetter(0))
            for name, points in lines.items()
            if len({value for value, _ in points}) >= LEAST
        }
        if long:
            first = next(iter(lines.values()))[0][1].group
            batch = "" if key == "batch" else f", {first.batch_text}"
            found.append(Sweep(key, first.benchmark, f"{first.summary.model}, {first.precision}{batch}", long))
    return found


def drawings(scope: Scope) -> Iterator[Drawing]:
    """Yield the plots of the sweeps that begin with this benchmark.

    A sweep over several benchmarks is only on the page, not in files.
    """
    for number, sweep in enumerate(sweep for sweep in sweeps(scope.everything) if sweep.benchmark == scope.benchmark):
        swept = [cell for points in sweep.lines.values() for _, cell in points]
        whole = all(cell.group.benchmark == scope.benchmark for cell in swept)
        for name, (unit, read) in SHOWN.items():
            if any(read(cell) is not None for cell in swept):
                heading = f"{name} over {sweep.key}"
                drawn = partial(draw, sweep, heading, unit, read)
                title = f"{heading}: {sweep.words}"
                yield Drawing(f"{name}_over_{sweep.key}_{number}", title, drawn, in_files=whole)


def draw(sweep: Sweep, heading: str, unit: str, read: Read, theme: draws.Theme) -> Plot:
    """Draw a sweep. The x axis is logarithmic; so is the y axis if values lie far apart."""
    plot, axes = draws.blank(theme, heading, unit)
    axes.set_xlabel(sweep.key, color=theme.muted, fontsize=9)
    axes.set_xscale("log", base=2)
    labels, ticks = [], set()
    for index, (name, points) in enumerate(sweep.lines.items()):
        known = [(at, value) for at, cell in points if (value := read(cell)) is not None]
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
    axes.set_xticks(every, list(map(EngFormatter(sep=""), every)))
    axes.xaxis.set_minor_locator(NullLocator())
    return draws.finish(plot, axes, labels, theme, f"{sweep.words}; less is better")


TOPIC = Topic("sweeps", "Latency and memory over size", order=70, drawings=drawings)
