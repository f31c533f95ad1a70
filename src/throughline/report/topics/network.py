"""Show a step's exchange beside the same messages alone, which ranks send after the window without computing.

algorithm bandwidth = bytes of a step's gradients / seconds of their messages alone
bus bandwidth       = algorithm bandwidth x 2 (n - 1) / n, for n replicas (as nccl-tests define both)
explained           = the smaller of those seconds and the seconds that the step spends on its exchange
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from throughline.numbers import milliseconds, reading
from throughline.records import Network
from throughline.report.analysis.cells import Cell, Group
from throughline.report.render.tables import Column, Entry, Line, Table
from throughline.report.topic import Scope, Topic
from throughline.report.topics.step_breakdown import split
from throughline.workloads.collectives import factor

NO_EXTRA = "no repeat of the extra no_gradient_sync can be compared"
NOTES = (
    "After the window, the ranks exchange messages of the same sizes again (all-reduce) without computing: the same "
    "alone is the time of these messages. Algorithm bandwidth is the gradients' bytes divided by this time. Bus "
    "bandwidth is algorithm bandwidth times 2 (n - 1) / n for n replicas. nccl-tests define both like this.",
    "Exchange is the time of a step minus that of a step where ranks keep their gradients (extra no_gradient_sync). "
    "Explained is the smaller one of exchange and the same alone. Where the same alone is larger, a step hides "
    "the rest of the messages behind its computation.",
)


@dataclass(frozen=True)
class Exchange:
    """The exchange of one cell. communication_s: what the step spends on it; None without runs that leave it out."""

    cell: Cell
    network: Network
    communication_s: float | None

    @property
    def alone_s(self) -> float | None:
        """The seconds of the same messages alone."""
        return self.network.seconds if self.network.bytes_per_step is not None else None

    @property
    def explained_s(self) -> float | None:
        """The seconds of the step's exchange that the network's own rate explains."""
        alone, spent = self.alone_s, self.communication_s
        return None if alone is None or spent is None else min(alone, spent)

    @property
    def algorithm_gb_per_s(self) -> float | None:
        return (self.network.bytes_per_step or 0) / self.alone_s / 1e9 if self.alone_s else None

    @property
    def bus_gb_per_s(self) -> float | None:
        rate = self.algorithm_gb_per_s
        return rate * factor("all-reduce", self.cell.record.replicas) if rate is not None else None


def exchanges(groups: Iterable[Group], everything: Iterable[Group]) -> list[Exchange]:
    """Return the exchange of every measured cell whose ranks exchanged messages alone, or said why they did not."""
    everything, found = list(everything), []
    for group in groups:
        parts = {step.cell: step.parts.get("communication") for step in split(group, everything)}
        for cell in group.measured:
            if cell.record.network:
                part = parts.get(cell)
                found.append(Exchange(cell, cell.record.network, part.shown_s if part else None))
    return found


def _column(
    key: str, heading: str, small: str, read: Callable[[Exchange], Any], show: Callable[[Any], str] = reading
) -> Column:
    """Return the column of a figure that has the network's own reason if it is not known."""
    return Column(key, heading, small, lambda one: Entry.of(read(one), show, one.network.reason or NO_EXTRA))


COLUMNS = (
    Column("step_s", "step", "ms", lambda one: one.cell.record.global_batch / one.cell.median, milliseconds),
    Column("communication_s", "exchange", "ms of the step", lambda one: Entry.of(
        one.communication_s, milliseconds, NO_EXTRA)),
    _column("messages", "messages", "of a step", lambda one: one.network.messages if one.alone_s else None, str),
    _column("bytes_per_step", "gradients", "MB a step", lambda one: one.network.bytes_per_step if one.alone_s else None,
            lambda count: reading(count / 1e6)),
    _column("alone_s", "the same alone", "ms", lambda one: one.alone_s, milliseconds),
    _column("explained_s", "explained", "ms", lambda one: one.explained_s, milliseconds),
    _column("algorithm_gb_per_s", "algorithm bandwidth", "GB/s", lambda one: one.algorithm_gb_per_s),
    _column("bus_gb_per_s", "bus bandwidth", "GB/s", lambda one: one.bus_gb_per_s),
)  # fmt: skip


def table(scope: Scope) -> Table | None:
    found = exchanges(scope.groups, scope.everything)
    lines = [Line([column.entry(one) for column in COLUMNS], one.cell) for one in found]
    return Table(COLUMNS, lines, notes=NOTES, of_cells=True) if lines else None


TOPIC = Topic("network", "A step's exchange, and the network alone", order=40, table=table)
