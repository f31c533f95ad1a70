"""Show all batches of a block with a global batch in one table: a line for each topology, a column for each batch.

Studies with a global batch print their figures like this. The runs without accumulation of a block that is otherwise
the same stand beside them.
"""

from collections.abc import Iterable

from throughline.numbers import reading
from throughline.report.analysis.cells import Group, Row
from throughline.report.render.tables import Column, Entry, Line, Table
from throughline.report.topic import Scope, Topic
from throughline.spec import Topology
from throughline.study import runs

NO_ACCUMULATION = "no accumulation"
Key = tuple[str, Topology, str]
"""Framework, topology, and the samples of a step in words."""


def table(scope: Scope) -> Table | None:
    """Return the table of a block with a global batch and more than one batch; None for any other block."""
    own = [group for group in scope.groups if group.summary and group.summary.global_batch]
    names = list(dict.fromkeys((group.precision, group.batch) for group in own))
    if len(names) < 2:
        return None
    unit, every = own[0].unit, [*own, *_without(own, scope.everything)]
    lines: dict[Key, dict[tuple[str, int], Entry]] = {}
    for group in every:
        for row in group.rows:
            key = row.shown, row.topology, _step(group)
            lines.setdefault(key, {})[group.precision, group.batch] = _entry(group, row)
    accumulated = [*dict.fromkeys(map(_step, every))]
    ordered = sorted(lines, key=lambda key: (key[0], accumulated.index(key[2]), key[1].world, key[1]))
    columns = [
        Column("framework", "framework", names=True),
        Column("topology", "topology"),
        Column("devices", "devices", whole=True),
        Column("step", "step"),
        *(Column(f"{precision}_batch_{batch}_samples_per_s", f"{precision}, batch {batch} ({unit})", by_value=True)
          for precision, batch in names),
    ]  # fmt: skip
    return Table(columns, [_line(key, [lines[key].get(name) for name in names]) for key in ordered])


def _without(own: Iterable[Group], everything: Iterable[Group]) -> list[Group]:
    """Return the groups of a block that is the same without accumulation."""
    mine = {group.name: group.summary for group in own}
    return [
        group
        for group in everything
        if group.summary and (same := mine.get(group.name)) and runs.without_accumulation(same, group.summary)
    ]


def _step(group: Group) -> str:
    samples = group.summary.global_batch if group.summary else None
    return f"{samples:,} samples" if samples else NO_ACCUMULATION


def _entry(group: Group, row: Row) -> Entry:
    if row.status != "ok" or row.cell is None or row.cell.median_speed is None:
        return Entry.outcome(row)
    speed, count = row.cell.median_speed, group.size(row).gradient_accumulation
    return Entry(reading(speed), speed, f"{count:,} micro-batches")


def _line(key: Key, figures: Iterable[Entry | None]) -> Line:
    framework, topology, step = key
    names = [Entry.words(framework), Entry.words(str(topology)), Entry(str(topology.world), topology.world)]
    return Line([*names, Entry.words(step), *(figure or Entry(reason="not asked for") for figure in figures)])


TOPIC = Topic(
    "global_batch",
    "One global batch",
    "Throughput of all batches and topologies. Every step takes the same samples, so the number of micro-batches "
    "follows from batch and topology. Lines without accumulation are of a block that is otherwise the same.",
    order=15,
    table=table,
)
