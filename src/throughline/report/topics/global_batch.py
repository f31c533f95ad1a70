"""Show all batches of a block with a global batch in one table: a line for each topology, a column for each batch.

Studies with a global batch print their figures like this. The runs without accumulation of a block that is otherwise
the same stand beside them.
"""

from functools import partial

from throughline.numbers import reading
from throughline.report.analysis.cells import Cell, Group
from throughline.report.render.tables import Column, Entry, Table
from throughline.report.topic import Scope, Topic
from throughline.spec import Topology
from throughline.study import runs

Key = tuple[str, Topology, str]
"""Framework, topology, and the samples of a step in words."""


def table(scope: Scope) -> Table | None:
    """Return the table of a block with a global batch and more than one batch; None for any other block."""
    own = {group.name: group for group in scope.groups if group.summary.global_batch}
    if len(own) < 2:
        return None
    without = [
        group
        for group in scope.everything
        if group.name in own and runs.without_accumulation(own[group.name].summary, group.summary)
    ]
    every = [*own.values(), *without]
    lines: dict[Key, dict[str, Cell]] = {}
    for cell in (cell for group in every for cell in group.cells):
        lines.setdefault((cell.shown, cell.topology, _step(cell.group)), {})[cell.group.name] = cell
    steps = [*dict.fromkeys(map(_step, every))]
    ordered = sorted(lines, key=lambda key: (key[0], steps.index(key[2]), key[1].world, key[1]))

    def figure(name: str, key: Key) -> Entry:
        return _entry(lines[key].get(name))

    columns = [
        Column("framework", "framework", read=lambda key: key[0], names=True),
        Column("topology", "topology", read=lambda key: str(key[1])),
        Column("devices", "devices", read=lambda key: key[1].world, whole=True),
        Column("step", "step", read=lambda key: key[2]),
        *(
            Column(
                f"{group.precision}_batch_{group.batch}_samples_per_s",
                f"{group.precision}, batch {group.batch} ({group.unit})",
                read=partial(figure, group.name),
                by_value=True,
            )
            for group in own.values()
        ),
    ]
    return Table.of(ordered, columns)


def _step(group: Group) -> str:
    samples = group.summary.global_batch
    return f"{samples:,} samples" if samples else "no accumulation"


def _entry(cell: Cell | None) -> Entry:
    if cell is None:
        return Entry(reason="not asked for")
    if not cell.ok:
        return Entry.outcome(cell)
    return Entry(reading(cell.median), cell.median, f"{cell.size.gradient_accumulation:,} micro-batches")


TOPIC = Topic(
    "global_batch",
    "One global batch",
    "Throughput of all batches and topologies. Every step takes the same samples, so the number of micro-batches "
    "follows from batch and topology. Lines without accumulation are of a block that is otherwise the same.",
    order=15,
    table=table,
)
