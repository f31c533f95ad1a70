"""Throughput, the primary figure: the results on the page, tables as DLPerf prints them, and plots over devices."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any

from markupsafe import Markup
from matplotlib.figure import Figure as Plot

from throughline.numbers import mebibytes, percent, reading, span
from throughline.records import Cell
from throughline.report.analysis.baseline import ONE_DEVICE
from throughline.report.analysis.cells import STATUS_LABELS, STATUS_MEANINGS, Group, Row, notes, title
from throughline.report.analysis.values import MEASURED, Series, Value, of_cell
from throughline.report.render import plots as draws
from throughline.report.render import sparks, tables
from throughline.report.render.head import baseline, over
from throughline.report.render.plots import Theme
from throughline.report.render.tables import CSV, NOT_KNOWN, PAGE, TEXT, CellLine, Column, Entry, Line, Table
from throughline.report.topic import Drawing, Scope, Topic
from throughline.report.topics import equal_mathematics
from throughline.spec import Topology

Link = Callable[[Group, str], str | None]
"""Returns the address of a log of a group; None if the log is not there."""


def columns(groups: Sequence[Group], link: Link = lambda group, log: None) -> list[Column]:
    """Return the columns of the results: on the page, in Markdown and LaTeX as DLPerf prints them, and in the CSV.

    Only the CSV has several groups in one table.
    """
    return [*_on_page(groups[0], link), *_as_dlperf(groups[0]), *_in_csv(groups)] if groups else []


def _on_page(group: Group, link: Link) -> list[Column]:
    batch = Column(heading="batch", small="per device / global" if group.by_iteration else "per replica", read=_batch)
    shown = [
        Column(heading="framework", read=lambda _, row: Entry.framework(row), names=True),
        Column(heading="topology", read=_topology, style="text named", by_value=True),
        Column(heading="devices", read=lambda _, row: Entry.words(str(row.topology.world)), style="devices"),
        *([batch] if _states(group) else []),
        Column(heading=group.unit, small="median", read=_median, by_value=True),
        Column(heading="speedup", small="strong scaling" if group.strong else "", read=speedup_of, by_value=True),
        Column(heading="efficiency", read=efficiency_of, by_value=True),
        Column(heading="repeats", small="median ± 5 %", read=repeats_of, style="text plain"),
        Column(heading="range", small=group.unit, read=_range, by_value=True),
        Column(heading="ok", read=_valid, by_value=True),
        Column(heading="memory", small="MiB, peak", read=_memory, by_value=True),
        Column(heading="logs", read=partial(_logs, link), style="text logs plain"),
    ]
    return [replace(column, forms=(PAGE,)) for column in shown]


def _as_dlperf(group: Group) -> list[Column]:
    device = group.summary.device if group.summary else None
    batch = Column(heading=tables.batch_heading([group]) if group.by_iteration else "batch per replica", read=_batch)
    shown = [
        Column(heading="framework", read=lambda _, row: Entry.words(row.shown)),
        Column(heading="node_num", read=_nodes),
        Column(
            heading="gpu_num" if device and device.kind == "cuda" else "device_num",
            read=lambda _, row: Entry.words(str(row.topology.world)),
        ),
        *([batch] if _states(group) else []),
        Column(heading=group.unit, read=lambda _, row: Entry.words(_hundredths(row, "median_speed") or row.label)),
        Column(
            heading="speedup (strong scaling)" if group.strong else "speedup",
            read=lambda _, row: Entry.words(_hundredths(row, "speedup")),
        ),
        Column(heading="average", read=lambda _, row: Entry.words(_hundredths(row, "average_speed"))),
        Column(heading="range", read=measured(lambda _, cell: Entry.words(f"{cell.min:.2f} to {cell.max:.2f}"))),
        Column(heading="repeats", read=lambda _, row: Entry.words(f"{row.cell.n_ok}/{row.cell.n}" if row.cell else "")),
        Column(heading="efficiency", read=measured(lambda _, cell: Entry.words(percent(cell.efficiency)))),
    ]
    return [replace(column, forms=(TEXT,)) for column in shown]


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
"""Map columns of the CSV to the fields of a cell."""


def _in_csv(groups: Sequence[Group]) -> list[Column]:
    cells = [row.cell for group in groups for row in group.rows if row.cell]
    units = dict.fromkeys(unit for cell in cells for unit in cell.other_units)
    shown = [
        *(Column(key, read=_field(attrgetter(name), 0 if name == "n_ok" else None)) for key, name in FIELDS.items()),
        Column("speedup_at_least", read=_field(lambda cell: cell.speedup_range[0] if cell.speedup_range else None)),
        Column("speedup_at_most", read=_field(lambda cell: cell.speedup_range[1] if cell.speedup_range else None)),
        Column("repeats_left_out", read=_field(lambda cell: sum(len(part.repeats) for part in cell.left_out))),
        Column("reasons", read=_field(lambda cell: "; ".join(cell.reasons))),
        *(Column(f"median_{unit.replace('/', '_per_')}", read=_field(partial(_in_unit, unit))) for unit in units),
    ]
    whole = ("repeats_asked", "repeats_left_out")
    return [replace(column, forms=(CSV,), whole=column.key in whole) for column in shown]


def _field(read: Callable[[Cell], Any], otherwise: float | None = None) -> Callable[[Group, Row], Entry]:
    """Return the reader of a value for the CSV; `otherwise` stands for the value of a cell without a record."""
    return lambda _, row: Entry(value=read(row.cell) if row.cell else otherwise)


def _in_unit(unit: str, cell: Cell) -> float | None:
    return cell.other_units.get(unit)


def measured(read: Callable[[Group, Cell], Entry]) -> Callable[[Group, Row], Entry]:
    """Return a reader of cells with a median; for other cells the entry is empty."""

    def entry(group: Group, row: Row) -> Entry:
        return read(group, row.cell) if row.cell and row.cell.median_speed is not None else Entry("")

    return entry


def _topology(_: Group, row: Row) -> Entry:
    return Entry(str(row.topology), row.topology.world)


def _nodes(_: Group, row: Row) -> Entry:
    return Entry.words(f"{row.topology.nodes} (simulated)" if row.topology.simulated else str(row.topology.nodes))


def _batch(group: Group, row: Row) -> Entry:
    return Entry.words(group.batch_of(row) if group.by_iteration else str(group.batch_per_replica(row)))


def _hundredths(row: Row, field: str) -> str:
    value = getattr(row.cell, field) if row.cell and row.cell.median_speed is not None else None
    return "" if value is None else f"{value:.2f}"


def _median(_: Group, row: Row) -> Entry:
    cell = row.cell
    if cell is None or cell.median_speed is None:
        return Entry.outcome(row)
    html = Markup("{}{}").format(reading(cell.median_speed), in_other_units(cell))
    return Entry(reading(cell.median_speed), cell.median_speed, kind="strong", html=html)


def in_other_units(cell: Cell) -> Markup:
    """Return a cell's throughput in its other units, a small line each."""
    lines = (Markup("<small>{} {}</small>").format(reading(value), unit) for unit, value in cell.other_units.items())
    return Markup("").join(lines)


def _per_device_entry(_: Group, cell: Cell) -> Entry:
    each = (cell.median_speed or 0.0) / cell.world_size
    return Entry(reading(each), each)


def _speedup(_: Group, cell: Cell) -> Entry:
    if cell.speedup is None:
        return Entry(html=Markup('<span class="quiet" title="the baseline was not measured">n/a</span>'))
    ends = Markup('<small title="range of the speedup">{}</small>').format(span(cell.speedup_range))
    text = f"{cell.speedup:.2f}"
    return Entry(text, cell.speedup, html=Markup("{}{}").format(text, ends if cell.speedup_range else ""))


def _efficiency(_: Group, cell: Cell) -> Entry:
    if cell.efficiency is None:
        return Entry(html=Markup('<span class="quiet">n/a</span>'))
    bar = Markup('<i class="bar" style="--share:{}"></i>').format(f"{min(cell.efficiency, 1.0):.3f}")
    text = percent(cell.efficiency)
    return Entry(text, cell.efficiency, html=Markup("{}{}").format(text, bar))


per_device = measured(_per_device_entry)
speedup_of, efficiency_of = measured(_speedup), measured(_efficiency)
repeats_of = measured(lambda group, cell: Entry(html=sparks.strip(cell, group.unit)))
_memory = measured(lambda _, cell: Entry(mebibytes(cell.peak_memory_bytes) or NOT_KNOWN, cell.peak_memory_bytes))


@measured
def _range(group: Group, cell: Cell) -> Entry:
    """Return the slowest and the fastest repeat, and how far the repeats are apart."""
    text = f"{reading(cell.min)} to {reading(cell.max)}"
    deviation = cell.median_absolute_deviation
    if deviation is None:
        return Entry(text, cell.min)
    apart = f"{deviation:.2g}" if deviation < 100 else f"{deviation:,.0f}"
    small = Markup(
        '{}<small title="median absolute deviation in {}, coefficient of variation">MAD {}, CV {}</small>'
    ).format(text, group.unit, apart, percent(cell.coefficient_of_variation, 1))
    return Entry(text, cell.min, html=small)


def _valid(_: Group, row: Row) -> Entry:
    """Return how many repeats are valid, with the statuses of the others as the title."""
    cell = row.cell
    if cell is None or cell.median_speed is None:
        return Entry(f"0/{cell.n}" if cell else "", 0)
    others = [f"{n} {STATUS_LABELS.get(status, status)}" for status, n in cell.statuses.items() if status != "ok"]
    missing = cell.n - sum(cell.statuses.values())
    others += [f"{missing} missing"] if missing > 0 else []
    return Entry(f"{cell.n_ok}/{cell.n}", cell.n_ok, ", ".join(others) or None, "short" if cell.n_ok < cell.n else "")


def _logs(link: Link, group: Group, row: Row) -> Entry:
    """Return a link to the log of each repeat."""
    shown = []
    for log in row.cell.logs if row.cell else ():
        repeat = log.rpartition("run")[2].removesuffix(".log")
        address = link(group, log)
        there = Markup('<a href="{0}" aria-label="log of repeat {1}">{1}</a> ')
        gone = Markup('<span class="quiet" title="its log is not there">{1}</span> ')
        shown.append((there if address else gone).format(address, repeat))
    return Entry(html=Markup("").join(shown))


def csv(scope: Scope) -> Table:
    """Return a line for each cell."""
    shown = [column for column in columns(scope.groups) if CSV in column.forms]
    return Table(
        shown,
        [
            CellLine([column.read(group, row) for column in shown], group, row)
            for group in scope.groups
            for row in group.rows
        ],
    )


def results(group: Group, link: Link) -> Table:
    """Return the results of one group as the page shows them."""
    shown = [column for column in columns([group], link) if PAGE in column.forms]
    lines, before = [], ""
    for row in group.rows:
        style = f"{row.status} {tables.series(group, row)}{'' if row.framework == before else ' first'}"
        entries = [column.read(group, row) for column in shown]
        lines.append(Line(entries, group, row, str(row.topology), style))
        before = row.framework
    return Table(shown, lines, style="results")


def text(scope: Scope) -> list[Table]:
    """Return a table for each batch size and precision, with its remarks and warnings."""
    return [table(group) for group in scope.groups]


def table(group: Group) -> Table:
    """Return a group's results as DLPerf prints them. A cell without a figure says why."""
    shown = [column for column in columns([group]) if TEXT in column.forms]
    lines = [Line([column.read(group, row) for column in shown]) for row in group.rows]
    return Table(shown, lines, notes=_below(group), heading=title(group), forms=(TEXT,))


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
        series
        for series in [*(draws.series(group, name, partial(of_cell, name)) for name in group.frameworks), *elsewhere]
        if series.points
    ]
    labels: list[draws.Label] = []
    for series in every:
        place = group.frameworks.index(series.name) if series.name in group.frameworks else len(labels)
        colour, marker = theme.colour(place), theme.marker(place)
        measured, first, most = series.source == MEASURED, series.points[0], series.points[-1].topology.world
        if measured and first.topology.world == 1 < most:
            ideal = [first.value.median, first.value.median * most]
            axes.plot([1, most], ideal, ":", color=colour, lw=1.0, alpha=0.7)
        labels.append(draws.line(axes, series, colour, theme, marker, marked=not measured))
        for point in series.points if measured else ():
            draws.repeats(axes, point, colour, theme, marker)
    topologies = [point.topology for series in every for point in series.points]
    draws.device_axis(axes, topologies, theme)
    scales = len(topologies) > 1 and any(topology.world == 1 for topology in topologies)
    own = "1n1g times devices" if elsewhere else "the framework's own 1n1g times devices"
    repeated = any(len(point.value.repeats) > 1 for series in every for point in series.points)
    words = ["dots: repeats"] if repeated else []
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
        series = draws.series(group, framework, lambda cell: Value("", cell.speedup) if cell.speedup else None)
        if series.points:
            last = group.row(framework, series.points[-1].topology)
            share = percent(last.cell.efficiency) if last and last.cell else ""
            text = f"{series.points[-1].value.median:.2f}× ({share})"
            labels.append(draws.line(axes, series, theme.colour(index), theme, theme.marker(index), text))
            topologies += [point.topology for point in series.points]
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


TOPIC = Topic(
    "throughput",
    "Throughput",
    order=10,
    csv=csv,
    text=text,
    drawings=drawings,
    notes=lambda _, group: notes(group),
)
