"""Throughput, the primary figure: tables as DLPerf prints them, plots over devices, and precisions side by side."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from matplotlib.figure import Figure as Plot

from throughline.numbers import percent, reading
from throughline.records import Cell
from throughline.report.analysis.baseline import ONE_DEVICE
from throughline.report.analysis.cells import PRECISIONS, STATUS_LABELS, STATUS_MEANINGS, Group, Row, notes, title
from throughline.report.analysis.values import MEASURED, Series, Value, of_cell
from throughline.report.render import plots as draws
from throughline.report.render import tables
from throughline.report.render.head import baseline, over
from throughline.report.render.plots import Theme
from throughline.report.render.tables import TEXT, CellLine, Column, Entry, Table
from throughline.report.topic import Drawing, Scope, Topic
from throughline.report.topics import equal_mathematics
from throughline.spec import Topology

COLUMNS = {
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
"""Map the columns of the CSV to the fields of a cell."""


def csv(scope: Scope) -> Table:
    """Return a line for each cell."""
    cells = [row.cell for group in scope.groups for row in group.rows if row.cell]
    units = list(dict.fromkeys(unit for cell in cells for unit in cell.other_units))
    columns = [
        *(Column(key, whole=key == "repeats_asked") for key in COLUMNS),
        *map(Column, ("speedup_at_least", "speedup_at_most")),
        Column("repeats_left_out", whole=True),
        Column("reasons"),
        *(Column(f"median_{unit.replace('/', '_per_')}") for unit in units),
    ]
    lines = [CellLine(_values(row.cell, units), group, row) for group in scope.groups for row in group.rows]
    return Table(columns, lines)


def _values(cell: Cell | None, units: Sequence[str]) -> list[Entry]:
    figures = {key: getattr(cell, name, None) for key, name in COLUMNS.items()}
    figures["repeats_ok"] = cell.n_ok if cell else 0
    low, high = (cell.speedup_range if cell else None) or (None, None)
    left_out = sum(len(part.repeats) for part in cell.left_out) if cell else None
    reasons = "; ".join(cell.reasons) if cell else None
    others = [cell.other_units.get(unit) if cell else None for unit in units]
    return [Entry(value=value) for value in (*figures.values(), low, high, left_out, reasons, *others)]


def text(scope: Scope) -> list[Table]:
    """Return a table for each batch size and precision, with its remarks and warnings."""
    return [table(group) for group in scope.groups]


def table(group: Group) -> Table:
    """Return header and rows as DLPerf prints them. A cell without a figure says why."""
    device = group.summary.device if group.summary else None
    devices = "gpu_num" if device and device.kind == "cuda" else "device_num"
    each = [tables.batch_heading([group]) if group.by_iteration else "batch per replica"] if _states(group) else []
    over = "speedup (strong scaling)" if group.strong else "speedup"
    header = ["framework", "node_num", devices, *each, group.unit, over, "average", "range", "repeats", "efficiency"]
    shown = tables.texts(header, [_row(group, row) for row in group.rows])
    return replace(shown, heading=title(group), notes=_below(group), forms=(TEXT,))


def _row(group: Group, row: Row) -> list[str]:
    nodes = f"{row.topology.nodes} (simulated)" if row.topology.simulated else str(row.topology.nodes)
    batch = group.batch_of(row) if group.by_iteration else str(group.batch_per_replica(row))
    each = [batch] if _states(group) else []
    start = [row.shown, nodes, str(row.topology.world), *each]
    cell = row.cell
    if cell is None or cell.median_speed is None:
        return [*start, row.label, "", "", "", f"0/{cell.n}" if cell else "", ""]
    speeds = [
        "" if value is None else f"{value:.2f}" for value in (cell.median_speed, cell.speedup, cell.average_speed)
    ]
    ends = f"{cell.min:.2f} to {cell.max:.2f}"
    return [*start, *speeds, ends, f"{cell.n_ok}/{cell.n}", percent(cell.efficiency)]


def _states(group: Group) -> bool:
    """True if each row states its batch, because the title cannot say it for all rows."""
    return group.strong or group.by_iteration


def _below(group: Group) -> list[str]:
    """Return remarks, the meaning of the words in the table, what a proof covers, and the warnings about the cells."""
    seen = dict.fromkeys(row.status for row in group.rows)
    lines = [group.summary.remarks] if group.summary and group.summary.remarks else []
    lines += [f"{STATUS_LABELS[status]}: {STATUS_MEANINGS[status]}" for status in seen if status in STATUS_MEANINGS]
    return lines + [f"{note.where}: {note.text}" for note in [*equal_mathematics.proofs(group), *notes(group)]]


def drawings(scope: Scope) -> Iterator[Drawing]:
    """Yield throughput and speedup of every group."""
    for group in scope.groups:
        rows = [row for name in group.frameworks for row in group.series(name)]
        scales = any(
            row.cell and row.cell.speedup and str(row.topology) != baseline(group, row.framework) for row in rows
        )
        for what, draw, shown in (("throughput", throughput, bool(rows)), ("speedup", speedup, scales)):
            name, heading = f"{group.name}_{what}", f"{group.benchmark}: {what}, {group.precision}, {group.batch_text}"
            yield Drawing(name, heading, partial(draw, group), describe(group, what), group, on_page=shown)


def describe(group: Group, what: str) -> str:
    """Return a plot's numbers in words, for people who cannot see it."""
    parts = []
    for framework in group.frameworks:
        base = over(baseline(group, framework))
        measured = [(row.topology, row.cell) for row in group.series(framework) if row.cell]
        if what == "throughput":
            values = [f"{topology} {reading(cell.median_speed)} {group.unit}" for topology, cell in measured]
        else:
            values = [f"{topology} {cell.speedup:.2f} times {base}" for topology, cell in measured if cell.speedup]
        parts += [f"{framework}: {', '.join(values)}."] if values else []
    return " ".join(parts)


def throughput(group: Group, theme: Theme, elsewhere: Sequence[Series] = ()) -> Plot:
    """Draw throughput over devices: medians as a line, repeats as dots, ranges as whiskers, ideal scaling dotted.

    `elsewhere`: series that were not measured here, such as published ones. Their markers are hollow, and their
    labels name the source.
    """
    figure, axes = draws.blank(theme, f"{group.benchmark}: throughput, {settings(group)}", group.unit)
    every = [
        one
        for one in [*(draws.series(group, name, partial(of_cell, name)) for name in group.frameworks), *elsewhere]
        if one.points
    ]
    labels: list[draws.Label] = []
    for one in every:
        place = group.frameworks.index(one.name) if one.name in group.frameworks else len(labels)
        colour, marker = theme.colour(place), theme.marker(place)
        measured, first, most = one.source == MEASURED, one.points[0], one.points[-1].topology.world
        if measured and first.topology.world == 1 < most:
            ideal = [first.value.median, first.value.median * most]
            axes.plot([1, most], ideal, ":", color=colour, lw=1.0, alpha=0.7)
        labels.append(draws.line(axes, one, colour, theme, marker, marked=not measured))
        for point in one.points if measured else ():
            draws.repeats(axes, point, colour, theme, marker)
    topologies = [point.topology for one in every for point in one.points]
    draws.device_axis(axes, topologies, theme)
    scales = len(topologies) > 1 and any(topology.world == 1 for topology in topologies)
    own = "1n1g times devices" if elsewhere else "the framework's own 1n1g times devices"
    words = ["dots: repeats"] if any(len(point.value.repeats) > 1 for one in every for point in one.points) else []
    words += [f"dotted: ideal, {own}"] if scales else []
    words += ["hollow: not measured here"] if elsewhere else []
    return draws.finish(figure, axes, labels, theme, "; ".join(words))


def speedup(group: Group, theme: Theme) -> Plot:
    """Draw the speedup over the same framework's baseline, for each number of devices, and the ideal line."""
    bases = list(dict.fromkeys(group.summary.baselines.values())) if group.summary else [ONE_DEVICE]
    figure, axes = draws.blank(
        theme, f"{group.benchmark}: speedup, {settings(group)}", f"speedup over {', '.join(bases) or ONE_DEVICE}"
    )
    labels, topologies = [], []
    for index, framework in enumerate(group.frameworks):
        one = draws.series(group, framework, lambda cell: Value("", cell.speedup) if cell.speedup else None)
        if one.points:
            last = group.row(framework, one.points[-1].topology)
            share = percent(last.cell.efficiency) if last and last.cell else ""
            text = f"{one.points[-1].value.median:.2f}× ({share})"
            labels.append(draws.line(axes, one, theme.colour(index), theme, theme.marker(index), text))
            topologies += [point.topology for point in one.points]
    draws.device_axis(axes, topologies, theme)
    most, legend = max((topology.world for topology in topologies), default=1), ""
    if most > 1 and len(bases) == 1:
        least = Topology.parse(bases[0]).world
        axes.plot([least, most], [1, most / least], ":", color=theme.muted, lw=1.2, zorder=2)
        legend = "dotted: ideal; in brackets: efficiency, speedup over devices"
    return draws.finish(figure, axes, labels, theme, legend)


def settings(group: Group) -> str:
    """Return what a figure's title says about its group."""
    return f"{group.precision}, {group.batch_text}" + ("" if group.exchanges else ", no exchange")


def drawings_of_precisions(scope: Scope) -> Iterator[Drawing]:
    """Yield one figure with all precisions for the files, and one per framework for the page.

    The page has them only if there are several precisions.
    """
    yield Drawing("precisions", "", partial(precisions, scope.groups), on_page=False)
    measured = [(group, row) for group in scope.groups for row in group.rows if row.cell and row.cell.median_speed]
    if len({group.precision for group, _ in measured}) > 1:
        for index, name in enumerate(dict.fromkeys(row.framework for _, row in measured)):
            words = " ".join(
                f"{point.topology} {group.precision} {group.batch_name}: {reading(point.value.median)} {group.unit}."
                for group in scope.groups
                for point in draws.series(group, name, _per_device).points
            )
            heading = f"{name}: throughput per device by precision"
            draw = partial(precisions, scope.groups, only=name)
            yield Drawing(f"precisions-{index}", heading, draw, words, in_files=False)


def precisions(groups: Sequence[Group], theme: Theme, only: str | None = None) -> Plot:
    """Draw throughput per device over devices: a panel for each framework, a line for each precision and batch size.

    `only` is the name of a framework that is drawn alone. All panels have the same axes, also when drawn alone.
    """
    every = [
        (name, group.precision, theme.marker(order), one)
        for order, group in enumerate(groups)
        for name in group.frameworks
        if (one := draws.series(group, name, _per_device, f"{group.precision}, {group.batch_name}")).points
    ]
    points = [point for *_, one in every for point in one.points]
    frameworks = [only] if only else list(dict.fromkeys(name for name, *_ in every)) or [""]
    size = (theme.size[0], theme.size[1] * (1 if len(frameworks) == 1 else 0.82 * len(frameworks)))
    figure = Plot(figsize=size)
    for index, framework in enumerate(frameworks):
        axes = figure.add_axes(draws.inside(size, index, len(frameworks)))
        heading = f"{groups[0].benchmark if groups else ''}: throughput per device, {framework}"
        draws.style(axes, theme, heading.removesuffix(", "), f"{groups[0].unit if groups else 'throughput'} per device")
        draws.device_axis(axes, (point.topology for point in points), theme, share_scale=False)
        axes.set_ylim(0, 1.12 * max((point.value.high for point in points), default=1.0))
        labels = []
        for _, precision, marker, one in (drawn for drawn in every if drawn[0] == framework):
            colour = theme.colour(PRECISIONS.index(precision))
            labels.append(draws.line(axes, one, colour, theme, marker))
            for world, value in ((point.topology.world, point.value) for point in one.points):
                axes.vlines(world, value.low, value.high, color=colour, lw=1.2, zorder=2)
        words = "a flat line scales without loss; whiskers: range of the repeats"
        draws.finish(figure, axes, labels, theme, words)
    return figure


def _per_device(cell: Cell) -> Value | None:
    """Return the median of a cell per device, and the range of its repeats."""
    ends = (cell.min / cell.world_size, cell.max / cell.world_size) if cell.min and cell.max else ()
    return Value("", cell.median_speed / cell.world_size, ends) if cell.median_speed else None


TOPIC = Topic(
    "throughput",
    "Throughput",
    order=10,
    csv=csv,
    text=text,
    drawings=drawings,
    notes=lambda _, group: notes(group),
)
COMPARED = Topic("precisions", "precisions compared", order=230, drawings=drawings_of_precisions)
