"""Show a step's exchange beside the same messages alone, and how much of the exchange these explain.

Compare a step's exchange with the same messages alone, which ranks send after the window without computing.

algorithm bandwidth = bytes of a step's gradients / seconds of their messages alone
bus bandwidth       = algorithm bandwidth x 2 (n - 1) / n, for n replicas (as nccl-tests define both)
explained           = the smaller of those seconds and the seconds that the step spends on its exchange (split.py)
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from throughline.numbers import milliseconds, reading
from throughline.report.analysis.cells import Group, Row
from throughline.report.render.tables import CellLine, Column, Entry, Table
from throughline.report.topic import Finding, Scope, Topic
from throughline.report.topics.step_breakdown import split
from throughline.spec import Topology
from throughline.workloads.collectives import factor


@dataclass(frozen=True)
class Exchange:
    """The exchange of one framework on one topology.

    communication_s: seconds that the step spends on its exchange, from the runs without it; None without such runs.
    reason: why the other figures are not known.
    """

    group: Group
    row: Row
    step_s: float
    messages: int | None = None
    bytes_per_step: int | None = None
    alone_s: float | None = None
    algorithm_bandwidth: float | None = None
    bus_bandwidth: float | None = None
    communication_s: float | None = None
    reason: str | None = None

    @property
    def explained_s(self) -> float | None:
        """The seconds of the step's exchange that the network's own rate explains."""
        both = self.alone_s, self.communication_s
        return min(part for part in both if part is not None) if None not in both else None


def exchanges(groups: Iterable[Group], everything: Iterable[Group]) -> list[Exchange]:
    """Return the exchange of every measured row whose ranks exchanged messages alone, or said why they did not."""
    everything = list(everything)
    known = []
    for group in groups:
        seconds = _communication(group, everything)
        rows = (_of_row(group, row, seconds.get((row.framework, row.topology))) for row in group.measured)
        known += [exchange for exchange in rows if exchange]
    return known


def _of_row(group: Group, row: Row, communication_s: float | None) -> Exchange | None:
    cell = row.cell
    if cell is None or cell.network is None or not cell.median_speed:
        return None
    told, step_s = cell.network, cell.global_batch / cell.median_speed
    if told.seconds is None or told.bytes_per_step is None:
        return Exchange(group, row, step_s, communication_s=communication_s, reason=told.reason)
    rate = told.bytes_per_step / told.seconds / 1e9
    bus = rate * factor("all-reduce", cell.replicas)
    alone = told.messages, told.bytes_per_step, told.seconds
    return Exchange(group, row, step_s, *alone, rate, bus, communication_s)


def _communication(group: Group, everything: list[Group]) -> dict[tuple[str, Topology], float]:
    """Map framework and topology to the seconds of communication in the split of that row, where it is known."""
    return {
        (part.row.framework, part.row.topology): part.communication.shown_s
        for part in split(group, everything)
        if part.communication
    }


COLUMNS = (
    Column("step_s", "step", "ms"),
    Column("communication_s", "exchange", "ms of the step"),
    Column("messages", "messages", "of a step"),
    Column("bytes_per_step", "gradients", "MB a step"),
    Column("alone_s", "the same alone", "ms"),
    Column("explained_s", "explained", "ms"),
    Column("algorithm_gb_per_s", "algorithm bandwidth", "GB/s"),
    Column("bus_gb_per_s", "bus bandwidth", "GB/s"),
)
NOTES = (
    "After the window, the ranks exchange messages of the same sizes again (all-reduce) without computing: the same "
    "alone is the time of these messages. Algorithm bandwidth is the gradients' bytes divided by this time. Bus "
    "bandwidth is algorithm bandwidth times 2 (n - 1) / n for n replicas. nccl-tests define both like this.",
    "Exchange is the time of a step minus that of a step where ranks keep their gradients (extra no_gradient_sync). "
    "Explained is the smaller one of exchange and the same alone. Where the same alone is larger, a step hides "
    "the rest of the messages behind its computation.",
)


def table(scope: Scope) -> Table | None:
    lines = [
        CellLine(_figures(exchange), exchange.group, exchange.row)
        for exchange in exchanges(scope.groups, scope.everything)
    ]
    return Table(COLUMNS, lines, notes=NOTES) if lines else None


def _figures(exchange: Exchange) -> list[Entry]:
    without = "no repeat of the extra no_gradient_sync can be compared"
    return [
        Entry.of(exchange.step_s, milliseconds),
        Entry.of(exchange.communication_s, milliseconds, without),
        Entry.of(exchange.messages, str, exchange.reason),
        Entry.of(exchange.bytes_per_step, _megabytes, exchange.reason),
        Entry.of(exchange.alone_s, milliseconds, exchange.reason),
        Entry.of(exchange.explained_s, milliseconds, exchange.reason or without),
        Entry.of(exchange.algorithm_bandwidth, reading, exchange.reason),
        Entry.of(exchange.bus_bandwidth, reading, exchange.reason),
    ]


def _megabytes(count: int) -> str:
    return reading(count / 1e6)


def findings(scope: Scope) -> Iterator[Finding]:
    """Say how long the exchange takes on the largest topology, for the configuration that exchanges longest there."""
    known = [exchange for exchange in exchanges(scope.groups, scope.everything) if exchange.alone_s is not None]
    if known:
        exchange = max(known, key=lambda exchange: (exchange.row.topology.world, exchange.communication_s or 0.0))
        where = f"{exchange.row.shown} {exchange.row.topology}, {exchange.group.precision}, {exchange.group.batch_text}"
        yield Finding(f"{where}: {words(exchange)}")


def words(exchange: Exchange) -> str:
    """Say how much of the exchange the network's own rate explains, or only the rate if the exchange is not known."""
    step, alone = milliseconds(exchange.step_s), milliseconds(exchange.alone_s or 0.0)
    rate = f"All-reduce reaches {reading(exchange.algorithm_bandwidth)} GB/s here"
    if not exchange.communication_s or exchange.alone_s is None:
        return f"a step takes {step} ms. {rate}: at that rate its gradients take {alone} ms."
    start = f"a step takes {step} ms, of which {milliseconds(exchange.communication_s)} ms are exchange. {rate}"
    if exchange.alone_s <= exchange.communication_s:
        return f"{start}, which explains {alone} of the {milliseconds(exchange.communication_s)} ms."
    hidden = milliseconds(exchange.alone_s - exchange.communication_s)
    return f"{start}: at that rate its gradients take {alone} ms. The step hides {hidden} ms of it behind computation."


TOPIC = Topic("network", "A step's exchange, and the network alone", order=40, table=table, findings=findings)
