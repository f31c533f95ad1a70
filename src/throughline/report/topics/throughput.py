"""Throughput, the primary figure: the results on the page, tables as DLPerf prints them, and plots over devices.

Two more tables have all batches of a block with one global batch, and throughput in other units beside the additional
figures that a workload declares.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter, methodcaller
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Plot
from matplotlib.transforms import offset_copy

from throughline.numbers import percent, reading
from throughline.records import PredictedSeries
from throughline.report.analysis.advice import not_compiled, notes
from throughline.report.analysis.baseline import ONE_DEVICE
from throughline.report.analysis.cells import STATUS_LABELS, STATUS_MEANINGS, Cell, Group
from throughline.report.analysis.titles import title
from throughline.report.render import cell_columns, plots, tables
from throughline.report.render.plots import MEASURED, Point, Series, Theme
from throughline.report.render.tables import CSV, PAGE, TEXT, Column, Entry, Table, ends_in_csv, in_csv
from throughline.report.topic import Drawing, Scope, Topic
from throughline.report.topics import checks
from throughline.spec import Topology, job
from throughline.study import runs


def results(group: Group, link: cell_columns.Link) -> Table:
    """Return the results of one group as the page shows them."""
    small = "strong scaling" if group.strong else "range"
    scaling = [replace(cell_columns.SPEEDUP, small=small), cell_columns.EFFICIENCY]
    columns = [
        cell_columns.FRAMEWORK,
        cell_columns.TOPOLOGY,
        cell_columns.DEVICES,
        *_where_told(group, "batch", "per device / global" if group.by_iteration else "per replica"),
        Column(heading=group.unit, small="median", read=cell_columns.median, by_value=True),
        *(scaling if any(cell.scales for cell in group.cells) else []),
        cell_columns.repeats(group.measured),
        cell_columns.VALID,
        cell_columns.STEPS,
        cell_columns.MEMORY,
        cell_columns.logs(link),
    ]
    shown, lines, before = Table.of(group.cells, columns, style="results", forms=(PAGE,)), [], ""
    for line, cell in zip(shown.lines, group.cells, strict=True):
        style = f"{cell.status} {tables.series(cell)}{'' if cell.framework == before else ' first'}"
        lines.append(replace(line, name=str(cell.topology), style=style))
        before = cell.framework
    return replace(shown, lines=lines)


def _where_told(group: Group, heading: str, small: str = "") -> list[Column]:
    """Return the columns of the device and of the batch, where the title cannot say it for all lines."""

    def batch(cell: Cell) -> str:
        return cell.batch if group.by_iteration else str(cell.size.batch_per_replica)

    def device(cell: Cell) -> str:
        return cell.device.name if cell.ok and cell.device else ""

    columns = [Column(heading="device", read=device, style="text")] if len(group.devices) > 1 else []
    has_batches = group.strong or group.by_iteration
    return columns + ([Column(heading=heading, small=small, read=batch)] if has_batches else [])


def table(group: Group) -> Table:
    """Return a group's results as DLPerf prints them, with warnings. A cell without a figure says why."""
    device = group.summary.device
    kind = "gpu_num" if device and device.kind == "cuda" else "device_num"
    scaling = "speedup (strong scaling)" if group.strong else "speedup"
    seen = dict.fromkeys(cell.status for cell in group.cells)
    below = [f"{STATUS_LABELS[status]}: {STATUS_MEANINGS[status]}" for status in seen if status in STATUS_MEANINGS]
    below += [f"{note.where}: {note.text}" for note in [*checks.coverage(group), *notes(group)]]
    columns = [
        Column(heading="framework", read=lambda cell: cell.shown),
        Column(
            heading="node_num", read=lambda cell: f"{cell.topology.nodes}{' (simulated)' * cell.topology.simulated}"
        ),
        Column(heading=kind, read=lambda cell: str(cell.topology.world)),
        *_where_told(group, tables.batch_heading([group]) if group.by_iteration else "batch per replica"),
        Column(heading=group.unit, read=lambda cell: _hundredths(cell, "median_speed") or cell.label),
        Column(heading=scaling, read=lambda cell: _hundredths(cell, "speedup")),
        Column(heading="average", read=lambda cell: _hundredths(cell, "average_speed")),
        Column(heading="range", read=lambda cell: f"{cell.record.min:.2f} to {cell.record.max:.2f}" if cell.ok else ""),
        Column(heading="repeats", read=lambda cell: f"{cell.record.n_ok}/{cell.record.n}" * bool(cell.record.statuses)),
        Column(heading="efficiency", read=lambda cell: percent(cell.record.efficiency) if cell.ok else ""),
    ]
    return replace(Table.of(group.cells, columns), notes=below, heading=title(group), forms=(TEXT,))


def _hundredths(cell: Cell, name: str) -> str:
    value = getattr(cell.record, name) if cell.ok else None
    return "" if value is None else f"{value:.2f}"


FIELDS = {
    "repeats_asked": "n",
    "repeats_ok": "n_ok",
    "median_samples_per_s": "median_speed",
    "average_samples_per_s": "average_speed",
    "min_samples_per_s": "min",
    "max_samples_per_s": "max",
    "speedup": "speedup",
    "efficiency": "efficiency",
    "median_absolute_deviation_samples_per_s": "median_absolute_deviation",
    "coefficient_of_variation": "coefficient_of_variation",
    "range_coverage": "range_coverage",
}
"""Map columns of the CSV to the fields of a record."""


def csv(scope: Scope) -> Table:
    """Return a line for each cell."""
    units = dict.fromkeys(unit for cell in scope.cells for unit in cell.record.other_units)
    columns = [
        *(Column(key, read=attrgetter(f"record.{name}"), whole=name == "n") for key, name in FIELDS.items()),
        *ends_in_csv("speedup_at_least", "speedup_at_most", attrgetter("record.speedup_range")),
        Column("repeats_left_out", read=lambda cell: sum(len(p.repeats) for p in cell.record.left_out), whole=True),
        in_csv("reasons", lambda cell: "; ".join(cell.record.reasons)),
        *(in_csv(f"median_{unit.replace('/', '_per_')}", partial(speed, unit, False)) for unit in units),
    ]
    return Table.of(scope.cells, columns, forms=(CSV,), of_cells=True)


def drawings(scope: Scope) -> Iterator[Drawing]:
    """Yield throughput and speedup of every group."""
    for group in scope.groups:
        beyond = scope.predicted(group)
        scales = any(cell.record.speedup and cell.scales for cell in group.measured)
        for what, draw, shown in (
            ("throughput", partial(plot, group, predicted=beyond), len({cell.topology for cell in group.measured}) > 1),
            ("speedup", partial(speedup, group), scales),
        ):
            heading = f"{group.benchmark}: {what}, {group.settings}"
            yield Drawing(f"{group.name}_{what}", heading, draw, group, on_page=shown)


def plot(
    group: Group, theme: Theme, elsewhere: Sequence[Series] = (), predicted: Sequence[PredictedSeries] = ()
) -> Plot:
    """Draw throughput over devices: medians as a line, repeats as dots, ranges as whiskers, ideal scaling dotted.

    `elsewhere`: series that were not measured here, such as published ones. Their markers are hollow, and their
    labels name the source. `predicted`: predictions, which are crosses on a dashed line in a band.
    """
    figure, axes = plots.blank(theme, f"{group.benchmark}: throughput, {group.settings}", group.unit)
    here = [
        Series(name, tuple(Point(cell.topology, cell.median, cell.repeats) for cell in group.series(name)))
        for name in group.frameworks
    ]
    every = [series for series in [*here, *elsewhere] if series.points]
    labels: list[plots.Label] = []
    beyond = {series.framework: series for series in predicted if series.predicted}
    for series in every:
        index = group.frameworks.index(series.name) if series.name in group.frameworks else len(labels)
        colour, marker, measured = theme.colour(index), theme.marker(index), series.source == MEASURED
        labels.append(plots.line(axes, series, colour, theme, marker, marked=not measured))
        if measured:
            # What one device gives times the devices, as far as a cell has a speedup over one device.
            most = max((cell.topology.world for cell in group.series(series.name) if cell.record.speedup), default=0)
            first = series.points[0]
            if first.topology.world == 1 < most:
                axes.plot([1, most], [first.median, first.median * most], ":", color=colour, lw=1.0, alpha=0.7)
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


def _beyond(axes: Axes, series: Series, predicted: PredictedSeries, colour: str, marker: str) -> plots.Label:
    """Draw predictions as crosses on a dashed line in a band, which begins at the measured point before them
    that they are made from.

    Returns the label at the line's end, which says that it is predicted.
    """
    cells = {Topology.parse(cell.topology).world: cell for cell in predicted.predicted}
    used = {point.topology for point in predicted.measured}
    before = [p for p in series.points if p.topology.world < min(cells) and str(p.topology) in used][-1:]
    points = [(point.topology.world, point.low, point.high, point.median) for point in before]
    points += [(world, cell.low, cell.high, cell.samples_per_s) for world, cell in cells.items()]
    worlds, lows, highs, middles = zip(*points, strict=True)
    axes.fill_between(worlds, lows, highs, color=colour, alpha=0.15, lw=0, zorder=1)
    axes.plot(worlds, middles, "--", color=colour, lw=1.1, zorder=3)
    axes.plot([*cells], middles[len(before) :], "x", color=colour, ms=7, mew=1.6, zorder=5)
    return worlds[-1], middles[-1], series.name, f"predicted {reading(middles[-1])}", colour, marker


def speedup(group: Group, theme: Theme) -> Plot:
    """Draw the speedup over the same framework's baseline with its range, and the ideal line."""
    bases = list(dict.fromkeys(group.summary.baselines.values()))
    unit = f"speedup over {', '.join(bases) or ONE_DEVICE}"
    figure, axes = plots.blank(theme, f"{group.benchmark}: speedup, {group.settings}", unit)
    labels, topologies = [], []
    for index, framework in enumerate(group.frameworks):
        cells, colour = [cell for cell in group.series(framework) if cell.record.speedup], theme.colour(index)
        if cells:
            series = Series(framework, tuple(Point(cell.topology, cell.record.speedup or 0.0) for cell in cells))
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


TOPIC = Topic(
    "throughput",
    "Throughput",
    order=10,
    csv=csv,
    text=lambda scope: list(map(table, scope.groups)),
    drawings=drawings,
    notes=lambda _, group: [*notes(group), *not_compiled(group)],
)


def by_batch(scope: Scope) -> Table | None:
    """Return all batches of a block with a global batch: a line for each topology, a column for each batch.

    Studies with a global batch print their figures like this. The runs without accumulation of a block that is
    otherwise the same stand beside them. None for a block without a global batch, or with a single batch.
    """
    own = {group.name: group for group in scope.groups if group.summary.global_batch}
    if len(own) < 2:
        return None
    others = (group for group in scope.everything if group.name in own)
    without = [group for group in others if runs.without_accumulation(own[group.name].summary, group.summary)]
    steps = dict.fromkeys(map(_step, [*own.values(), *without]))
    lines: dict[tuple[Any, ...], dict[str, Cell]] = {}
    for cell in (cell for group in [*own.values(), *without] for cell in group.cells):
        key = cell.shown, [*steps].index(_step(cell.group)), cell.topology.world, cell.topology
        lines.setdefault(key, {})[cell.group.name] = cell
    columns = [
        Column("framework", "framework", read=lambda cells: _any(cells).shown, names=True),
        Column("topology", "topology", read=lambda cells: str(_any(cells).topology)),
        Column("devices", "devices", read=lambda cells: _any(cells).topology.world, whole=True),
        Column("step", "step", read=lambda cells: _step(_any(cells).group)),
        *map(_column, own.values()),
    ]
    return Table.of([lines[key] for key in sorted(lines)], columns)


def _any(cells: dict[str, Cell]) -> Cell:
    return next(iter(cells.values()))


def _step(group: Group) -> str:
    samples = group.summary.global_batch
    return f"{samples:,} samples" if samples else "no accumulation"


def _column(group: Group) -> Column:
    """Return the column of one batch and precision."""

    def read(cells: dict[str, Cell]) -> Entry:
        cell = cells.get(group.name)
        if cell is None:
            return Entry(reason="not asked for")
        if not cell.ok:
            return Entry.outcome(cell)
        return Entry(reading(cell.median), cell.median, f"{cell.size.gradient_accumulation:,} micro-batches")

    key = f"{group.precision}_batch_{group.batch}_samples_per_s"
    return Column(key, f"{group.precision}, batch {group.batch} ({group.unit})", read=read, by_value=True)


ONE_BATCH = (
    "Throughput of all batches and topologies. Every step takes the same samples, so the number of micro-batches "
    "follows from batch and topology. Lines without accumulation are of a block that is otherwise the same."
)
GLOBAL_BATCH = Topic("global_batch", "One global batch", ONE_BATCH, order=15, table=by_batch)


TOO_FEW = "the runs have too few steps for it"
"""Why a percentile of the steps' times is not known."""


def other_figures(scope: Scope) -> Table | None:
    """Return a row for each cell; None if no record has such a figure or another unit.

    The figures of single calls have a topic of their own.
    """
    figures = [figure for cell in scope.cells if cell.group.trains for figure in cell.record.figures]
    declared = {(figure.name, figure.at): figure for figure in figures if figure.name not in job.FIGURES}
    columns = []
    for unit in dict.fromkeys(unit for cell in scope.cells for unit in cell.record.other_units):
        name = unit.replace("/", "_per_")
        columns += [
            Column(name, unit, "median", partial(speed, unit, False), reading, forms=(TEXT, CSV)),
            Column(f"{name}_per_device", unit, "per device", partial(speed, unit, True), reading),
        ]
    for place, figure in declared.items():
        parts = [str(part) for part in (figure.name, figure.at, figure.unit) if part is not None]
        size = [] if figure.at is None else [f"at {figure.at}"]
        small = ", ".join([*size, figure.unit, f"{figure.better} is better"])
        why = TOO_FEW if figure.unit == "ms" else "not recorded"
        columns.append(Column("_".join(parts), figure.name, small, methodcaller("figure", *place), reading, why))
    return Table.of_groups(scope.groups, columns) if columns else None


def speed(unit: str, per_device: bool, cell: Cell) -> float | None:
    """Return the median throughput of all devices, or of each, in another unit than samples; None if unknown."""
    median = cell.record.other_units.get(unit)
    return median / cell.topology.world if median and per_device else median


FIGURES = Topic("figures", "Other figures", order=60, table=other_figures)
