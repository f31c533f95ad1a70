"""What a run costs beside its window, from the reports of its ranks: a record's `start_up` and `checkpoints`.

The nodes' times of day connect their clocks.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from throughline.messages import RankReport
from throughline.rank.run import STAGES

PARTS = ("imports", *STAGES, "first_step")
Restart = tuple[float, Mapping[int, RankReport]]
"""When ranks were started that begin again from the last checkpoint (`time.time()`), and their reports."""


def start_up(reports: Mapping[int, RankReport], began: float) -> dict[str, Any] | None:
    """Return how long rank 0 took from the command to the end of its first step, by part; None if it made no step.

    began: `time.time()` when the run got the devices.
    """
    measured = reports[0].measured if 0 in reports else None
    if measured is None or measured.start_up is None:
        return None
    seconds = {"launch": max(0.0, measured.start_up.began - began), **measured.start_up.seconds}
    why = "a program of somebody else does not say" if reports[0].program else "it trains nothing"
    reasons = {f"{part}_s": why for part in PARTS if part not in seconds}
    if measured.start_up.from_cache is None:
        reasons["from_cache"] = "nothing is compiled, or the library does not say whether it used a cache"
    return {
        "total_s": sum(seconds.values()),
        **{f"{part}_s": seconds.get(part) for part in ("launch", *PARTS)},
        "from_cache": measured.start_up.from_cache,
        "reasons": reasons,
    }


def checkpoints(reports: Mapping[int, RankReport], restart: Restart | None) -> dict[str, Any] | None:
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
