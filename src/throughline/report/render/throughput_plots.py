"""Throughput and speedup over devices as plots, and their numbers in words."""

from collections.abc import Iterable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Plot

from throughline.numbers import percent, reading
from throughline.records import PredictedSeries
from throughline.report.analysis.baseline import ONE_DEVICE
from throughline.report.analysis.cells import Group
from throughline.report.render import plots
from throughline.report.render.head import over
from throughline.report.render.plots import MEASURED, Series, Theme
from throughline.spec import Topology


def describe(group: Group, what: str, predicted: Sequence[PredictedSeries] = ()) -> str:
    """Return a plot's numbers in words, for people who cannot see it. predicted: what the plot draws beside them."""
    parts = []
    for framework in group.frameworks:
        cells = group.series(framework)
        if what == "throughput":
            values = [f"{cell.topology} {reading(cell.median)} {group.unit}" for cell in cells]
        else:
            faster = [(cell, cell.record.speedup) for cell in cells if cell.record.speedup]
            values = [f"{cell.topology} {speedup:.2f} times {over(cell.baseline)}" for cell, speedup in faster]
        parts += [f"{framework}: {', '.join(values)}."] if values else []
    for series in predicted:
        values = [
            f"{cell.topology} predicted {reading(cell.samples_per_s)} {series.unit}, predicted range "
            f"{reading(cell.low)} to {reading(cell.high)}"
            for cell in series.predicted
        ]
        parts += [f"Predicted and not measured, {series.framework}: {'; '.join(values)}."] if values else []
    return " ".join(parts)


def throughput(
    group: Group, theme: Theme, elsewhere: Sequence[Series] = (), predicted: Sequence[PredictedSeries] = ()
) -> Plot:
    """Draw throughput over devices: medians as a line, repeats as dots, ranges as whiskers, ideal scaling dotted.

    `elsewhere`: series that were not measured here, such as published ones. Their markers are hollow, and their
    labels name the source. `predicted`: predictions, which are crosses on a dashed line in a band.
    """
    figure, axes = plots.blank(theme, f"{group.benchmark}: throughput, {settings(group)}", group.unit)
    every = [
        series for series in [*(plots.series(group, name) for name in group.frameworks), *elsewhere] if series.points
    ]
    labels: list[plots.Label] = []
    beyond = {series.framework: series for series in predicted if series.predicted}
    for series in every:
        index = group.frameworks.index(series.name) if series.name in group.frameworks else len(labels)
        colour, marker = theme.colour(index), theme.marker(index)
        measured, first, most = series.source == MEASURED, series.points[0], _widest(group, series.name)
        if measured and first.topology.world == 1 < most:
            ideal = [first.median, first.median * most]
            axes.plot([1, most], ideal, ":", color=colour, lw=1.0, alpha=0.7)
        labels.append(plots.line(axes, series, colour, theme, marker, marked=not measured))
        for point in series.points if measured else ():
            plots.repeats(axes, point, colour, theme, marker)
        if measured and series.name in beyond:
            labels[-1] = _beyond(axes, series, beyond[series.name], colour, marker)
    topologies = [point.topology for series in every for point in series.points]
    ends = [Topology.parse(cell.topology) for series in beyond.values() for cell in series.predicted]
    plots.device_axis(axes, [*topologies, *ends], theme)
    scales = len(topologies) > 1 and any(topology.world == 1 for topology in topologies)
    meaning = "1n1g times devices" if elsewhere or beyond else "the framework's own 1n1g times devices"
    repeated = any(len(point.repeats) > 1 for series in every for point in series.points)
    words = ["dots: repeats"] if repeated else []
    words += [f"dotted: ideal, {meaning}"] if scales else []
    words += ["hollow: not measured here"] if elsewhere else []
    words += [f"crosses, band: predicted ({_level(beyond.values())})"] if beyond else []
    return plots.finish(figure, axes, labels, theme, "; ".join(words))


def _widest(group: Group, framework: str) -> int:
    """Return the most devices whose throughput may be compared with that of one: those with a speedup."""
    return max((cell.topology.world for cell in group.series(framework) if cell.record.speedup), default=0)


def _beyond(axes: Axes, series: Series, predicted: PredictedSeries, colour: str, marker: str) -> plots.Label:
    """Draw predictions as crosses on a dashed line in a band, which begins at the measured point before them
    that they are made from.

    Returns the label at the line's end, which says that it is predicted.
    """
    cells = {Topology.parse(cell.topology).world: cell for cell in predicted.predicted}
    used = {point.topology for point in predicted.measured}
    before = [p for p in series.points if p.topology.world < min(cells) and str(p.topology) in used][-1:]
    worlds = [*(point.topology.world for point in before), *cells]
    lows = [*(point.low for point in before), *(cell.low for cell in cells.values())]
    highs = [*(point.high for point in before), *(cell.high for cell in cells.values())]
    middles = [*(point.median for point in before), *(cell.samples_per_s for cell in cells.values())]
    axes.fill_between(worlds, lows, highs, color=colour, alpha=0.15, lw=0, zorder=1)
    axes.plot(worlds, middles, "--", color=colour, lw=1.1, zorder=3)
    axes.plot([*cells], middles[len(before) :], "x", color=colour, ms=7, mew=1.6, zorder=5)
    return worlds[-1], middles[-1], series.name, f"predicted {reading(middles[-1])}", colour, marker


def _level(predicted: Iterable[PredictedSeries]) -> str:
    """Return the probability of the predicted intervals."""
    return percent(next(cell.level for series in predicted for cell in series.predicted))


def speedup(group: Group, theme: Theme) -> Plot:
    """Draw the speedup over the same framework's baseline, for each number of devices, and the ideal line."""
    bases = list(dict.fromkeys(group.summary.baselines.values()))
    figure, axes = plots.blank(
        theme, f"{group.benchmark}: speedup, {settings(group)}", f"speedup over {', '.join(bases) or ONE_DEVICE}"
    )
    labels, topologies = [], []
    for index, framework in enumerate(group.frameworks):
        series = plots.series(group, framework, lambda cell: cell.record.speedup)
        if series.points:
            last = series.points[-1]
            cell = group.cell(framework, last.topology)
            text = f"{last.median:.2f}× ({percent(cell.record.efficiency) if cell else ''})"
            labels.append(plots.line(axes, series, theme.colour(index), theme, theme.marker(index), text))
            topologies += [point.topology for point in series.points]
    plots.device_axis(axes, topologies, theme)
    most, legend = max((topology.world for topology in topologies), default=1), ""
    if most > 1 and len(bases) == 1:
        least = Topology.parse(bases[0]).world
        axes.plot([least, most], [1, most / least], ":", color=theme.muted, lw=1.2, zorder=2)
        legend = "dotted: ideal; in brackets: efficiency, speedup over devices"
    return plots.finish(figure, axes, labels, theme, legend)


def settings(group: Group) -> str:
    """Return what a figure's title says about its group."""
    return f"{group.precision}, {group.batch_text}" + ("" if group.exchanges else ", no exchange")
