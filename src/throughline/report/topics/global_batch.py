"""Show all batches of a block with a global batch in one table: a line for each topology, a column for each batch.

Studies with a global batch print their figures like this. The runs without accumulation of a block that is otherwise
the same stand beside them.
"""

from typing import Any

from throughline.numbers import reading
from throughline.report.analysis.cells import Cell, Group
from throughline.report.render.tables import Column, Entry, Table
from throughline.report.topic import Scope, Topic
from throughline.study import runs


def table(scope: Scope) -> Table | None:
    """Return the table of a block with a global batch and more than one batch; None for any other block."""
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


INTRO = (
    "Throughput of all batches and topologies. Every step takes the same samples, so the number of micro-batches "
    "follows from batch and topology. Lines without accumulation are of a block that is otherwise the same."
)
TOPIC = Topic("global_batch", "One global batch", INTRO, order=15, table=table)
