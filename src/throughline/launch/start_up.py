"""How long a run takes from its command to the end of its first step, by part: a record's `start_up`."""

from collections.abc import Mapping
from typing import Any

from throughline.messages import RankReport
from throughline.rank.run import STAGES

PARTS = ("imports", *STAGES, "first_step")
NO_STAGE = "it trains nothing"
OF_PROGRAM = "a program of somebody else does not say"
NOT_COMPILED = "nothing is compiled, or the library does not say whether it used a cache"


def seconds(reports: Mapping[int, RankReport], began: float) -> dict[str, Any] | None:
    """Return the seconds of rank 0; None if it made no step. began: `time.time()` when the run got the devices.

    The nodes' times of day connect their clocks.
    """
    measured = reports[0].measured if 0 in reports else None
    if measured is None or measured.start_up is None:
        return None
    seconds = {"launch": max(0.0, measured.start_up.began - began), **measured.start_up.seconds}
    why = OF_PROGRAM if reports[0].program else NO_STAGE
    reasons = {f"{part}_s": why for part in PARTS if part not in seconds}
    if measured.start_up.from_cache is None:
        reasons["from_cache"] = NOT_COMPILED
    return {
        "total_s": sum(seconds.values()),
        **{f"{part}_s": seconds.get(part) for part in ("launch", *PARTS)},
        "from_cache": measured.start_up.from_cache,
        "reasons": reasons,
    }
