"""What is said about the repeats of one configuration, and about the steps of one run; docs/method.md has the reasons.

A value is a throughput in samples per second. The caller leaves out a repeat that has none (out of memory, invalid).
With nothing left every figure here is None, never 0 and never a default.
"""

import math
import statistics
from collections.abc import Sequence

Range = tuple[float, float]
"""Lowest and highest."""

LEAST_STEPS = 50
"""Steps from which on their times can show a drift or two modes."""


def median(values: Sequence[float]) -> float | None:
    """The middle value in samples/s, of an even count the mean of the two in the middle."""
    return statistics.median(values) if values else None


def average(values: Sequence[float]) -> float | None:
    """The arithmetic mean in samples/s, summed without loss of digits."""
    return statistics.fmean(values) if values else None


def spread(values: Sequence[float]) -> float | None:
    """(highest - lowest) / median, a share without unit; None with fewer than two values."""
    middle = median(values)
    return (max(values) - min(values)) / middle if len(values) >= 2 and middle else None


def median_absolute_deviation(values: Sequence[float]) -> float | None:
    """The median distance from the median, in samples/s, unscaled; None with fewer than two values.

    One repeat that went wrong does not move it. Times 1.4826 it estimates the standard deviation of normal values
    (Rousseeuw and Croux 1993); that factor is not applied here.
    """
    middle = median(values)
    return median([abs(value - middle) for value in values]) if len(values) >= 2 and middle is not None else None


def coefficient_of_variation(values: Sequence[float]) -> float | None:
    """Sample standard deviation (n - 1) over the average, a share; None with fewer than two values."""
    middle = average(values)
    return statistics.stdev(values) / middle if len(values) >= 2 and middle else None


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
    return median_speed / baseline if median_speed is not None and baseline else None


def efficiency(speedup_value: float | None, ideal: float) -> float | None:
    """Speedup over the ideal one, the devices over those of the baseline: 1.0 is linear scaling, weak or strong."""
    return None if speedup_value is None else speedup_value / ideal


def speedup_range(values: Sequence[float], baseline: Sequence[float]) -> Range | None:
    """The least and the most that the speedup of two true medians can be, where both lie in their repeats' ranges.

    lowest / highest baseline to highest / lowest baseline. It covers the true ratio with at least the product of both
    ranges' coverages, since the repeats of both are independent. None where either is empty.
    """
    return (min(values) / max(baseline), max(values) / min(baseline)) if values and baseline else None


def speedup_coverage(n: int, n_baseline: int) -> float | None:
    """The probability that `speedup_range` of `n` and `n_baseline` repeats contains the true ratio, at least."""
    one, other = range_coverage(n), range_coverage(n_baseline)
    return one * other if one and other else None


def excess_of_first(values: Sequence[float]) -> float | None:
    """How much slower the first repeat is than the median of the others, as a share; None below three values.

    Negative where it is faster. A first repeat that stands out alone points at cold caches, not at noise.
    """
    others = median(values[1:])
    return 1 - values[0] / others if len(values) >= 3 and others else None


def rank_test(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Two-sided p of the Mann-Whitney U test that two sets of repeats come from one distribution.

    Exact without ties, asymptotic with them (scipy's `auto`). Not the signed-rank test: of five pairs it cannot say
    less than 6.25 %; here 5 against 5 can say 0.8 %. None with fewer than three values on a side, where no p below
    10 % exists.
    """
    if min(len(one), len(other)) < 3:
        return None
    from scipy.stats import mannwhitneyu

    return float(mannwhitneyu(one, other, alternative="two-sided").pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """The p of several tests, adjusted so that all of them together err with the probability that one alone would.

    The least of m is multiplied by m, the next by m - 1, and so on; none is below one before it (Holm 1979).
    """
    adjusted, highest = list(p_values), 0.0
    for place, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - place) * p_values[index]))
        adjusted[index] = highest
    return adjusted


def least_p(n: int, m: int) -> float:
    """The least p that the rank test of `n` against `m` values can give: two orders of all that there are."""
    return 2 / math.comb(n + m, n)


def drift(step_seconds: Sequence[float]) -> tuple[float, float] | None:
    """How much slower the last third of the steps is than the first, as a share of it, and p of the rank test between
    them; None with fewer than `LEAST_STEPS` steps."""
    if len(step_seconds) < LEAST_STEPS:
        return None
    third = len(step_seconds) // 3
    first, last = step_seconds[:third], step_seconds[-third:]
    early, late, p = median(first), median(last), rank_test(first, last)
    return (late / early - 1, p) if early and late and p is not None else None


def dip_test(step_seconds: Sequence[float]) -> tuple[float, float] | None:
    """Hartigan's dip statistic of the steps' times, and p of the hypothesis that they have one mode.

    Hartigan and Hartigan 1985; p is interpolated in a table of simulated uniform samples. None with fewer than
    `LEAST_STEPS` steps.
    """
    if len(step_seconds) < LEAST_STEPS:
        return None
    import diptest
    import numpy as np

    dip, p = diptest.diptest(np.asarray(step_seconds, dtype=np.float64))
    return float(dip), float(p)


def two_levels(values: Sequence[float]) -> tuple[Range, float]:
    """The medians of the two groups that a cut separates best, and the share of values in the upper one.

    The cut is the one with the least sum of squares within the groups (Fisher 1958; Jenks).
    """
    import numpy as np

    ordered = np.sort(np.asarray(values, dtype=np.float64))
    count = np.arange(1, len(ordered))
    below = np.cumsum(ordered)[:-1]
    above = ordered.sum() - below
    between = below**2 / count + above**2 / (len(ordered) - count)  # total squares less those within
    cut = int(np.argmax(between)) + 1
    lower, upper = ordered[:cut], ordered[cut:]
    return (float(np.median(lower)), float(np.median(upper))), len(upper) / len(ordered)
