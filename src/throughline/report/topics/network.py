"""Show a step's exchange beside the same messages alone, which ranks send after the window without computing.

algorithm bandwidth = bytes of a step's gradients / seconds of their messages alone
bus bandwidth       = algorithm bandwidth x 2 (n - 1) / n, for n replicas (as nccl-tests define both)
explained           = the smaller of those seconds and the seconds that the step spends on its exchange
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from throughline.numbers import milliseconds, reading
from throughline.report.analysis.cells import Cell, Group
from throughline.report.render.tables import Column, Entry, Table
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
    """The exchange of one cell: what its step spends on it, its messages alone, and their bandwidths; None if not
    known. reason: why the messages are not known."""

    cell: Cell
    reason: str | None
    communication_s: float | None = None
    messages: int | None = None
    bytes_per_step: int | None = None
    alone_s: float | None = None
    explained_s: float | None = None
    algorithm_gb_per_s: float | None = None
    bus_gb_per_s: float | None = None


def exchanges(groups: Iterable[Group], everything: Iterable[Group]) -> list[Exchange]:
    """Return the exchange of every measured cell whose ranks exchanged messages alone, or said why they did not."""
    everything, found = list(everything), []
    for group in groups:
        parts = {step.cell: step.parts.get("communication") for step in split(group, everything)}
        for cell in group.measured:
            if network := cell.record.network:
                part, known = parts.get(cell), dict[str, Any]()
                spent = part.seconds if part else None
                if network.seconds and network.bytes_per_step is not None:
                    rate = network.bytes_per_step / network.seconds / 1e9
                    known = {
                        "messages": network.messages,
                        "bytes_per_step": network.bytes_per_step,
                        "alone_s": network.seconds,
                        "explained_s": None if spent is None else min(network.seconds, spent),
                        "algorithm_gb_per_s": rate,
                        "bus_gb_per_s": rate * factor("all-reduce", cell.record.replicas),
                    }
                found.append(Exchange(cell, network.reason, spent, **known))
    return found


def _column(key: str, heading: str, small: str, show: Callable[[Any], str] = reading) -> Column:
    """Return the column of a figure that has the network's own reason if it is not known."""
    return Column(key, heading, small, lambda one: Entry.of(getattr(one, key), show, one.reason or NO_EXTRA))


COLUMNS = (
    Column("step_s", "step", "ms", lambda one: one.cell.record.global_batch / one.cell.median, milliseconds),
    Column("communication_s", "exchange", "ms of the step", attrgetter("communication_s"), milliseconds, NO_EXTRA),
    _column("messages", "messages", "of a step", str),
    _column("bytes_per_step", "gradients", "MB a step", lambda count: reading(count / 1e6)),
    _column("alone_s", "the same alone", "ms", milliseconds),
    _column("explained_s", "explained", "ms", milliseconds),
    _column("algorithm_gb_per_s", "algorithm bandwidth", "GB/s"),
    _column("bus_gb_per_s", "bus bandwidth", "GB/s"),
)


def table(scope: Scope) -> Table | None:
    """Return a line for each cell with an exchange; None without any."""
    found = exchanges(scope.groups, scope.everything)
    return Table.of(found, COLUMNS, notes=NOTES, of_cells=True) if found else None


TOPIC = Topic("network", "A step's exchange, and the network alone", order=40, table=table)
