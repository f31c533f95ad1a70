"""Compare a step's exchange with the same messages alone, which ranks send after the window without computing.

algorithm bandwidth = bytes of a step's gradients / seconds of their messages alone
bus bandwidth       = algorithm bandwidth x 2 (n - 1) / n, for n replicas (as nccl-tests define both)
explained           = the smaller of those seconds and the seconds that the step spends on its exchange (split.py)
"""

from collections.abc import Iterable
from dataclasses import dataclass

from throughline.report.analysis.cells import Group, Row
from throughline.report.analysis.split import split
from throughline.spec import Topology
from throughline.workloads.collectives import factor


@dataclass(frozen=True)
class Exchange:
    """The exchange of one framework on one topology.

    communication_s: seconds that the step spends on its exchange, from the runs without it; None without such runs.
    why: why the other figures are not known.
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
    why: str | None = None

    @property
    def explained_s(self) -> float | None:
        """The seconds of the step's exchange that the network's own rate explains."""
        both = self.alone_s, self.communication_s
        return min(part for part in both if part is not None) if None not in both else None


def exchanges(groups: Iterable[Group], everything: Iterable[Group]) -> list[Exchange]:
    """Return the exchange of every measured row whose ranks exchanged messages alone, or said why they did not."""
    everything = list(everything)
    found = []
    for group in groups:
        seconds = _communication(group, everything)
        rows = (_of_row(group, row, seconds.get((row.framework, row.topology))) for row in group.measured)
        found += [exchange for exchange in rows if exchange]
    return found


def _of_row(group: Group, row: Row, communication_s: float | None) -> Exchange | None:
    cell = row.cell
    if cell is None or cell.network is None or not cell.median_speed:
        return None
    told, step_s = cell.network, cell.global_batch / cell.median_speed
    if told.seconds is None or told.bytes_per_step is None:
        return Exchange(group, row, step_s, communication_s=communication_s, why=told.reason)
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
