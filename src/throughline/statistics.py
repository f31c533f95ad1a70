"""What is said about the repeats of one configuration: median, average, range, speedup, efficiency.

A value is a throughput in samples per second. A repeat that has no value (out of memory, invalid) is left out
by the caller; with nothing left every figure here is None, never 0 and never a default.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def median(values: Sequence[float]) -> float | None:
    """The middle value in samples/s, of an even count the mean of the two in the middle."""
    return statistics.median(values) if values else None


def average(values: Sequence[float]) -> float | None:
    """The arithmetic mean in samples/s, summed without loss of digits."""
    return statistics.fmean(values) if values else None


def spread(values: Sequence[float]) -> float | None:
    """(highest - lowest) / median, a share without unit; None with fewer than two values."""
    middle = median(values)
    if len(values) < 2 or not middle:
        return None
    return (max(values) - min(values)) / middle


def range_coverage(n: int) -> float | None:
    """The probability that lowest..highest of `n` independent repeats contains the true median.

    1 - 2 * 0.5**n: the true median lies outside only where all repeats fall on the same side of it, whatever the
    distribution (sign test interval; Hahn and Meeker, Statistical Intervals, 5.2). n = 5: 93.8 %, n = 7: 98.4 %.
    """
    return 1 - 2 * 0.5**n if n >= 2 else None


def speedup(median_speed: float | None, baseline: float | None) -> float | None:
    """Median throughput over the same framework's median on one device (1n1g), as DLPerf defines it.

    None where either is missing: a series without a baseline has no speedup.
    """
    if median_speed is None or not baseline:
        return None
    return median_speed / baseline


def efficiency(speedup_value: float | None, world_size: int) -> float | None:
    """Speedup over the number of devices: 1.0 is linear scaling (strong or weak; ours is weak)."""
    return None if speedup_value is None else speedup_value / world_size


def excess_of_first(values: Sequence[float]) -> float | None:
    """How much slower the first repeat is than the median of the others, as a share; None below three values.

    Negative where it is faster. A first repeat that stands out alone points at cold caches, not at noise.
    """
    others = median(values[1:])
    if len(values) < 3 or not others:
        return None
    return 1 - values[0] / others
