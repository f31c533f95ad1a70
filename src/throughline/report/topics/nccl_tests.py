"""Our collective operations beside imported results of nccl-tests: bus bandwidths at the largest size of each."""

from collections.abc import Iterator

from throughline.numbers import reading
from throughline.records import Result
from throughline.report.render.tables import PAGE, Column, Table
from throughline.report.topic import Scope, Topic
from throughline.report.topics.single_calls import Reached, reached

Pair = tuple[Reached, Result]


def pairs(scope: Scope) -> Iterator[Pair]:
    """Yield our figure at the largest size with each imported one of the operation on as many devices."""
    largest: dict[object, Reached] = {}
    for call in reached(scope.groups):
        if call.name == "bus_bandwidth" and call.size >= largest.get(call.cell, call).size:
            largest[call.cell] = call
    for call in largest.values():
        for row in scope.imported:
            same = row.model.replace("_", "-").replace("alltoall", "all-to-all") == call.model
            if row.unit == "GB/s" and same and row.devices in (call.cell.topology.world, None):
                yield call, row


def _over(call: Reached, row: Result) -> float:
    return call.value / float(row.value or 1)


COLUMNS = (
    Column(heading="operation", read=lambda pair: pair[0].model),
    Column(heading="topology", read=lambda pair: str(pair[0].cell.topology)),
    Column(heading="precision", read=lambda pair: pair[0].cell.group.precision),
    Column(heading="size, bytes", read=lambda pair: pair[0].size, show=lambda size: f"{size:,}"),
    Column(heading="ours, GB/s", read=lambda pair: pair[0].value, show=reading),
    Column(heading="theirs, GB/s", read=lambda pair: float(pair[1].value or 0), show=reading),
    Column(heading="ours over theirs", read=lambda pair: _over(*pair), show=reading),
    Column(heading="their device", read=lambda pair: pair[1].device or "not stated"),
    Column(heading="theirs", read=lambda pair: pair[1].place),
)
INTRO = (
    "Bus bandwidths at the largest size of each run, out of place, as nccl-tests define them. Their largest size may "
    "be another, and their precision is not compared."
)


def table(scope: Scope) -> Table | None:
    return Table.if_any(pairs(scope), COLUMNS, forms=(PAGE,))


TOPIC = Topic("nccl_tests", "Beside nccl-tests", INTRO, order=192, table=table)
