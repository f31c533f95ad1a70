"""Throughput and speedup over devices as plots."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Plot
from matplotlib.transforms import offset_copy

from throughline.numbers import percent, reading
from throughline.records import PredictedSeries
from throughline.report.analysis.baseline import ONE_DEVICE
from throughline.report.analysis.cells import Group
from throughline.report.render import plots
from throughline.report.render.plots import MEASURED, Series, Theme
from throughline.spec import Topology


def throughput(
    group: Group, theme: Theme, elsewhere: Sequence[Series] = (), predicted: Sequence[PredictedSeries] = ()
) -> Plot:
    """Draw throughput over devices: medians as a line, repeats as dots, ranges as whiskers, ideal scaling dotted.

    `elsewhere`: series that were not measured here, such as published ones. Their markers are hollow, and their
    labels name the source. `predicted`: predictions, which are crosses on a dashed line in a band.
    """
    figure, axes = plots.blank(theme, f"{group.benchmark}: throughput, {settings(group)}", group.unit)
    here = [plots.series(group, name) for name in group.frameworks]
    every = [series for series in [*here, *elsewhere] if series.points]
    labels: list[plots.Label] = []
    beyond = {series.framework: series for series in predicted if series.predicted}
    for series in every:
        index = group.frameworks.index(series.name) if series.name in group.frameworks else len(labels)
        colour, marker, measured = theme.colour(index), theme.marker(index), series.source == MEASURED
        labels.append(plots.line(axes, series, colour, theme, marker, marked=not measured))
        if measured:
            _ideal(axes, group, series, colour)
            plots.repeats(axes, series, colour, theme, marker)
            if series.name in beyond:
                labels[-1] = _beyond(axes, series, beyond[series.name], colour, marker)
    topologies = [point.topology for series in every for point in series.points]
    ends = [Topology.parse(cell.topology) for series in beyond.values() for cell in series.predicted]
    plots.device_axis(axes, [*topologies, *ends])
    words = ["dots: repeats"] if any(len(point.repeats) > 1 for series in every for point in series.points) else []
    words += ["dotted: ideal"] if len(topologies) > 1 and any(topology.world == 1 for topology in topologies) else []
    words += ["hollow: not measured here"] if elsewhere else []
    if beyond:
        level = next(cell.level for series in beyond.values() for cell in series.predicted)
        words += [f"crosses, band: predicted ({percent(level)})"]
    return plots.finish(figure, axes, labels, theme, "; ".join(words))


def _ideal(axes: Axes, group: Group, series: Series, colour: str) -> None:
    """Draw what one device gives times the devices, as far as a cell has a speedup over one device."""
    most = max((cell.topology.world for cell in group.series(series.name) if cell.record.speedup), default=0)
    first = series.points[0]
    if first.topology.world == 1 < most:
        axes.plot([1, most], [first.median, first.median * most], ":", color=colour, lw=1.0, alpha=0.7)


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


def speedup(group: Group, theme: Theme) -> Plot:
    """Draw the speedup over the same framework's baseline with its range, and the ideal line."""
    bases = list(dict.fromkeys(group.summary.baselines.values()))
    unit = f"speedup over {', '.join(bases) or ONE_DEVICE}"
    figure, axes = plots.blank(theme, f"{group.benchmark}: speedup, {settings(group)}", unit)
    labels, topologies = [], []
    for index, framework in enumerate(group.frameworks):
        series, colour = plots.series(group, framework, lambda cell: cell.record.speedup), theme.colour(index)
        cells = [cell for cell in group.series(framework) if cell.record.speedup]
        if cells:
            text = f"{series.points[-1].median:.2f}× ({percent(cells[-1].record.efficiency)})"
            labels.append(plots.line(axes, series, colour, theme, theme.marker(index), text))
            topologies += [cell.topology for cell in cells]
        beside = offset_copy(axes.transData, figure, x=3.0 * index, units="points")
        for cell in cells:
            if ends := cell.record.speedup_range:
                axes.vlines(cell.topology.world, ends[0], ends[1], color=colour, lw=1.4, zorder=4, transform=beside)
                axes.update_datalim([(cell.topology.world, ends[1])])
    plots.device_axis(axes, topologies)
    most, legend = max((topology.world for topology in topologies), default=1), ""
    if most > 1 and len(bases) == 1:
        least = Topology.parse(bases[0]).world
        axes.plot([least, most], [1, most / least], ":", color=theme.muted, lw=1.2, zorder=2)
        legend = "bars: ranges; dotted: ideal; in brackets: efficiency"
    return plots.finish(figure, axes, labels, theme, legend)


def settings(group: Group) -> str:
    """Return what a figure's title says about its group."""
    return f"{group.precision}, {group.batch_text}" + ("" if group.exchanges else ", no exchange")
