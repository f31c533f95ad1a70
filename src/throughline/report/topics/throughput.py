"""Throughput, the primary figure: the results on the page, tables as DLPerf prints them, and plots over devices."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from throughline.numbers import percent
from throughline.report.analysis.cells import STATUS_LABELS, STATUS_MEANINGS, Cell, Group
from throughline.report.analysis.notes import not_compiled, notes
from throughline.report.analysis.titles import title
from throughline.report.render import cell_columns, tables
from throughline.report.render import throughput_plots as plots
from throughline.report.render.cell_columns import Link
from throughline.report.render.tables import CSV, PAGE, TEXT, Column, Line, Table
from throughline.report.topic import Drawing, Scope, Topic
from throughline.report.topics import numerical_equivalence


def results(group: Group, link: Link) -> Table:
    """Return the results of one group as the page shows them."""
    columns = [
        cell_columns.FRAMEWORK,
        cell_columns.TOPOLOGY,
        cell_columns.DEVICES,
        *([Column(heading="device", read=_device, style="text")] if len(group.devices) > 1 else []),
        *([Column(heading="batch", small=_batch_heading(group), read=_batch)] if _states(group) else []),
        Column(heading=group.unit, small="median", read=cell_columns.median, by_value=True),
        replace(cell_columns.SPEEDUP, small="strong scaling" if group.strong else "range"),
        cell_columns.EFFICIENCY,
        cell_columns.repeats(group.measured),
        cell_columns.VALID,
        cell_columns.STEPS,
        cell_columns.MEMORY,
        cell_columns.logs(link),
    ]
    lines, before = [], ""
    for cell in group.cells:
        style = f"{cell.status} {tables.series(cell)}{'' if cell.framework == before else ' first'}"
        lines.append(Line([column.entry(cell) for column in columns], cell, str(cell.topology), style))
        before = cell.framework
    return Table(columns, lines, style="results", forms=(PAGE,))


def table(group: Group) -> Table:
    """Return a group's results as DLPerf prints them. A cell without a figure says why."""
    device = group.summary.device
    columns = [
        Column(heading="framework", read=lambda cell: cell.shown),
        Column(heading="node_num", read=_nodes),
        Column(
            heading="gpu_num" if device and device.kind == "cuda" else "device_num",
            read=lambda cell: str(cell.topology.world),
        ),
        *([Column(heading="device", read=_device)] if len(group.devices) > 1 else []),
        *([Column(heading=_batch_heading(group, text=True), read=_batch)] if _states(group) else []),
        Column(heading=group.unit, read=lambda cell: _hundredths(cell, "median_speed") or cell.label),
        Column(
            heading="speedup (strong scaling)" if group.strong else "speedup",
            read=lambda cell: _hundredths(cell, "speedup"),
        ),
        Column(heading="average", read=lambda cell: _hundredths(cell, "average_speed")),
        Column(heading="range", read=lambda cell: f"{cell.record.min:.2f} to {cell.record.max:.2f}" if cell.ok else ""),
        Column(heading="repeats", read=lambda cell: f"{cell.record.n_ok}/{cell.record.n}" * bool(cell.record.statuses)),
        Column(heading="efficiency", read=lambda cell: percent(cell.record.efficiency) if cell.ok else ""),
    ]
    return replace(Table.of(group.cells, columns), notes=_below(group), heading=title(group), forms=(TEXT,))


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
    known: dict[str, Callable[[Cell], Any]] = {
        **{key: partial(_field, name) for key, name in FIELDS.items()},
        "speedup_at_least": lambda cell: cell.record.speedup_range and cell.record.speedup_range[0],
        "speedup_at_most": lambda cell: cell.record.speedup_range and cell.record.speedup_range[1],
        "repeats_left_out": lambda cell: sum(len(part.repeats) for part in cell.record.left_out),
        "reasons": lambda cell: "; ".join(cell.record.reasons),
        **{f"median_{unit.replace('/', '_per_')}": partial(_in_unit, unit) for unit in units},
    }
    whole = ("repeats_asked", "repeats_left_out")
    columns = [Column(key, read=read, whole=key in whole) for key, read in known.items()]
    lines = [Line([column.entry(cell) for column in columns], cell) for cell in scope.cells]
    return Table(columns, lines, forms=(CSV,), of_cells=True)


def _field(name: str, cell: Cell) -> Any:
    return getattr(cell.record, name)


def _in_unit(unit: str, cell: Cell) -> float | None:
    return cell.record.other_units.get(unit)


def _nodes(cell: Cell) -> str:
    return f"{cell.topology.nodes} (simulated)" if cell.topology.simulated else str(cell.topology.nodes)


def _states(group: Group) -> bool:
    """True if each line states its batch, because the title cannot say it for all lines."""
    return group.strong or group.by_iteration


def _batch_heading(group: Group, text: bool = False) -> str:
    if not group.by_iteration:
        return "batch per replica" if text else "per replica"
    return tables.batch_heading([group]) if text else "per device / global"


def _batch(cell: Cell) -> str:
    return cell.batch if cell.group.by_iteration else str(cell.size.batch_per_replica)


def _device(cell: Cell) -> str:
    return cell.device.name if cell.ok and cell.device else ""


def _hundredths(cell: Cell, name: str) -> str:
    value = getattr(cell.record, name) if cell.ok else None
    return "" if value is None else f"{value:.2f}"


def _below(group: Group) -> list[str]:
    """Return remarks, what the table's words mean, what equivalence checks cover, and warnings about the cells."""
    seen = dict.fromkeys(cell.status for cell in group.cells)
    lines = [group.summary.remarks] if group.summary.remarks else []
    lines += [f"{STATUS_LABELS[status]}: {STATUS_MEANINGS[status]}" for status in seen if status in STATUS_MEANINGS]
    return lines + [f"{note.where}: {note.text}" for note in [*numerical_equivalence.proofs(group), *notes(group)]]


def text(scope: Scope) -> Sequence[Table]:
    """Return a table for each batch size and precision, with its remarks and warnings."""
    return [table(group) for group in scope.groups]


def drawings(scope: Scope) -> Iterator[Drawing]:
    """Yield throughput and speedup of every group."""
    for group in scope.groups:
        beyond = scope.predicted(group)
        scales = any(cell.record.speedup and cell.scales for cell in group.measured)
        for what, draw, shown in (
            ("throughput", partial(plots.throughput, group, predicted=beyond), bool(group.measured)),
            ("speedup", partial(plots.speedup, group), scales),
        ):
            heading = f"{group.benchmark}: {what}, {group.precision}, {group.batch_text}"
            yield Drawing(f"{group.name}_{what}", heading, draw, "The tables hold its numbers.", group, on_page=shown)


TOPIC = Topic(
    "throughput",
    "Throughput",
    order=10,
    csv=csv,
    text=text,
    latex=True,
    drawings=drawings,
    notes=lambda _, group: [*notes(group), *not_compiled(group)],
)
