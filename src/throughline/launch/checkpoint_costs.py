"""What checkpoints cost a run, from the reports of its ranks and of those that began again (`RunRecord`)."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from throughline.messages import RankReport

Restart = tuple[float, Mapping[int, RankReport]]
"""When ranks were started that begin again from the last checkpoint (`time.time()`), and their reports.

The nodes' times of day connect their clocks.
"""


def costs(reports: Mapping[int, RankReport], restart: Restart | None) -> dict[str, Any] | None:
    """Return what rank 0 measured, since a save or a load lasts until all ranks have made it; None without figures."""
    by_rank = {rank: report.measured.checkpoints for rank, report in reports.items() if report.measured}
    ranks = {rank: cost for rank, cost in by_rank.items() if cost}
    if 0 not in ranks:
        return None
    reason = next((cost.reason for cost in ranks.values() if cost.reason), None)
    figures = asdict(ranks[0]) | {"reason": reason, "restart_s": None, "restart_equal": None}
    del figures["digest"]
    if not reason:
        figures["equal"] = all(cost.equal for cost in ranks.values())
    began, restarted = restart or (0.0, {})
    again = {rank: report.restarted for rank, report in restarted.items()}
    if again and all(again.values()):
        figures["restart_s"] = max(rank.at for rank in again.values() if rank) - began
        figures["restart_equal"] = all(rank and rank.digest == ranks[number].digest for number, rank in again.items())
    return figures
