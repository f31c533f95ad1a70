"""What checkpoints cost a run, from the reports of its ranks and of those that began again (`RunRecord`)."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from throughline.messages import RankReport


@dataclass(frozen=True)
class Restart:
    """The ranks that began again from the last checkpoint. began: `time.time()` when their launch began.

    The nodes' times of day connect their clocks.
    """

    began: float
    reports: Mapping[int, RankReport]


def of(reports: Mapping[int, RankReport], restart: Restart | None) -> dict[str, Any] | None:
    """Return what rank 0 measured, since a save or a load lasts until all ranks have made it; None without figures."""
    costs = {rank: report.measured.checkpoints for rank, report in reports.items() if report.measured}
    told = {rank: cost for rank, cost in costs.items() if cost}
    if 0 not in told:
        return None
    reason = next((cost.reason for cost in told.values() if cost.reason), None)
    figures = asdict(told[0]) | {"reason": reason, "restart_s": None, "restart_equal": None}
    del figures["digest"]
    if not reason:
        figures["equal"] = all(cost.equal for cost in told.values())
    again = {rank: report.restarted for rank, report in restart.reports.items()} if restart else {}
    if restart and all(again.values()):
        figures["restart_s"] = max(rank.at for rank in again.values() if rank) - restart.began
        figures["restart_equal"] = all(rank and rank.digest == told[number].digest for number, rank in again.items())
    return figures
