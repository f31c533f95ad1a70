"""Throughput, the primary figure: the results on the page, tables as DLPerf prints them, and plots over devices."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any

from throughline.numbers import percent
from throughline.records import Cell
from throughline.report.analysis.cells import STATUS_LABELS, STATUS_MEANINGS, Group, Row, notes, title
from throughline.report.render import cell_entries, tables
from throughline.report.render import throughput_plots as plots
from throughline.report.render.cell_entries import Link
from throughline.report.render.head import baseline
from throughline.report.render.tables import CSV, PAGE, TEXT, CellLine, Column, Entry, Line, Table
from throughline.report.topic import Drawing, Scope, Topic
from throughline.report.topics import numerical_equivalence


def columns(groups: Sequence[Group], link: Link = lambda group, log: None) -> list[Column]:
    """Return the columns of the results: on the page, in Markdown and LaTeX as DLPerf prints them, and in the CSV.

    Only the CSV has several groups in one table.
    """
    return [*_on_page(groups[0], link), *_as_dlperf(groups[0]), *_in_csv(groups)] if groups else []


def _on_page(group: Group, link: Link) -> list[Column]:
    batch = Column(heading="batch", small="per device / global" if group.by_iteration else "per replica", read=_batch)
    shown = [
        Column(heading="framework", read=lambda _, row: Entry.framework(row), names=True),
        Column(heading="topology", read=cell_entries.topology, style="text named", by_value=True),
        Column(heading="devices", read=lambda _, row: Entry.words(str(row.topology.world)), style="devices"),
        *([Column(heading="device", read=_device, style="text")] if len(group.devices) > 1 else []),
        *([batch] if _states(group) else []),
        Column(heading=group.unit, small="median", read=cell_entries.median, by_value=True),
        Column(
            heading="speedup", small="strong scaling" if group.strong else "", read=cell_entries.speedup, by_value=True
        ),
        Column(heading="efficiency", read=cell_entries.efficiency, by_value=True),
        Column(heading="repeats", small="median ± 5 %", read=cell_entries.repeats, style="text plain"),
        Column(heading="range", small=group.unit, read=cell_entries.range_of, by_value=True),
        Column(heading="ok", read=cell_entries.valid, by_value=True),
        Column(heading="memory", small="MiB, peak", read=cell_entries.memory, by_value=True),
        Column(heading="logs", read=partial(cell_entries.logs, link), style="text logs plain"),
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
        *([Column(heading="device", read=_device)] if len(group.devices) > 1 else []),
        *([batch] if _states(group) else []),
        Column(heading=group.unit, read=lambda _, row: Entry.words(_hundredths(row, "median_speed") or row.label)),
        Column(
            heading="speedup (strong scaling)" if group.strong else "speedup",
            read=lambda _, row: Entry.words(_hundredths(row, "speedup")),
        ),
        Column(heading="average", read=lambda _, row: Entry.words(_hundredths(row, "average_speed"))),
        Column(
            heading="range",
            read=cell_entries.measured(lambda _, cell: Entry.words(f"{cell.min:.2f} to {cell.max:.2f}")),
        ),
        Column(heading="repeats", read=lambda _, row: Entry.words(f"{row.cell.n_ok}/{row.cell.n}" if row.cell else "")),
        Column(heading="efficiency", read=cell_entries.measured(lambda _, cell: Entry.words(percent(cell.efficiency)))),
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


def _nodes(_: Group, row: Row) -> Entry:
    return Entry.words(f"{row.topology.nodes} (simulated)" if row.topology.simulated else str(row.topology.nodes))


def _batch(group: Group, row: Row) -> Entry:
    return Entry.words(group.batch_of(row) if group.by_iteration else str(group.batch_per_replica(row)))


def _device(group: Group, row: Row) -> Entry:
    device = group.device(row) if row.cell and row.cell.n_ok else None
    return Entry.words(device.name if device else "")


def _hundredths(row: Row, field: str) -> str:
    value = getattr(row.cell, field) if row.cell and row.cell.median_speed is not None else None
    return "" if value is None else f"{value:.2f}"


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
    """Return remarks, what the table's words mean, what equivalence checks cover, and warnings about the cells."""
    seen = dict.fromkeys(row.status for row in group.rows)
    lines = [group.summary.remarks] if group.summary and group.summary.remarks else []
    lines += [f"{STATUS_LABELS[status]}: {STATUS_MEANINGS[status]}" for status in seen if status in STATUS_MEANINGS]
    return lines + [f"{note.where}: {note.text}" for note in [*numerical_equivalence.proofs(group), *notes(group)]]


def drawings(scope: Scope) -> Iterator[Drawing]:
    """Yield throughput and speedup of every group."""
    for group in scope.groups:
        rows = [row for name in group.frameworks for row in group.series(name)]
        scales = any(
            row.cell and row.cell.speedup and str(row.topology) != baseline(group, row.framework) for row in rows
        )
        beyond = scope.predicted(group)
        measured = partial(plots.throughput, group, predicted=beyond)
        for what, draw, shown in (
            ("throughput", measured, bool(rows)),
            ("speedup", partial(plots.speedup, group), scales),
        ):
            name, heading = f"{group.name}_{what}", f"{group.benchmark}: {what}, {group.precision}, {group.batch_text}"
            words = plots.describe(group, what, beyond if what == "throughput" else ())
            yield Drawing(name, heading, draw, words, group, on_page=shown)


TOPIC = Topic(
    "throughput",
    "Throughput",
    order=10,
    csv=csv,
    text=text,
    drawings=drawings,
    notes=lambda _, group: notes(group),
)
