"""Statistics of the repeats of one configuration, and of the steps of one run.

docs/explanation/method.md gives the reasons.

A value is a throughput in samples per second. The caller leaves out repeats without a throughput (out of memory,
invalid). Without any value, every figure is None, never 0 and never a default.
"""

import statistics
from collections.abc import Sequence

Range = tuple[float, float]
"""(lowest, highest)."""

LEAST_STEPS = 50
"""The smallest number of steps for which we look for a drift or two modes in the step times."""


def median(values: Sequence[float]) -> float | None:
    """Return the median in samples/s. For an even number of values it is the mean of the two middle values."""
    return statistics.median(values) if values else None


def average(values: Sequence[float]) -> float | None:
    """Return the arithmetic mean in samples/s. The sum loses no digits."""
    return statistics.fmean(values) if values else None


def spread(values: Sequence[float]) -> float | None:
    """Return (highest - lowest) / median, without a unit; None for fewer than two values."""
    middle = median(values)
    return (max(values) - min(values)) / middle if len(values) >= 2 and middle else None


def median_absolute_deviation(values: Sequence[float]) -> float | None:
    """Return the median distance from the median, in samples/s; None for fewer than two values.

    Multiplied by 1.4826, it would estimate the standard deviation of normal values (Rousseeuw and Croux 1993).
    """
    middle = median(values)
    return median([abs(value - middle) for value in values]) if len(values) >= 2 and middle is not None else None


def coefficient_of_variation(values: Sequence[float]) -> float | None:
    """Return the sample standard deviation (n - 1) divided by the average; None for fewer than two values."""
    middle = average(values)
    return statistics.stdev(values) / middle if len(values) >= 2 and middle else None


def range_coverage(n: int) -> float | None:
    """Return the probability that the range of `n` independent repeats contains the true median; None for n < 2.

    It is 1 - 2 * 0.5**n for every distribution: the true median is outside the range only if all repeats are on the
    same side of it (sign test interval; Hahn and Meeker, Statistical Intervals, 5.2). n = 5: 93.8 %, n = 7: 98.4 %.
    """
    return 1 - 2 * 0.5**n if n >= 2 else None


def speedup(median_speed: float | None, baseline: float | None) -> float | None:
    """Return the median throughput divided by the baseline, as DLPerf defines it; None if one of the two is missing."""
    return median_speed / baseline if median_speed is not None and baseline else None


def efficiency(speedup_value: float | None, ideal: float) -> float | None:
    """Return the speedup divided by the ideal one: the number of devices over that of the baseline. 1.0 is linear."""
    return None if speedup_value is None else speedup_value / ideal


def speedup_range(values: Sequence[float], baseline: Sequence[float]) -> Range | None:
    """Return the lowest and the highest possible speedup if both true medians are in the ranges of their repeats.

    That is lowest / highest baseline and highest / lowest baseline; None with fewer than two values on a side.
    """
    enough = min(len(values), len(baseline)) >= 2
    return (min(values) / max(baseline), max(values) / min(baseline)) if enough else None


def speedup_coverage(n: int, n_baseline: int) -> float | None:
    """Return a lower bound of the probability that `speedup_range` contains the true speedup: the repeats of both sides
    are independent, so it is the product of their ranges' coverages."""
    coverage, coverage_baseline = range_coverage(n), range_coverage(n_baseline)
    return coverage * coverage_baseline if coverage and coverage_baseline else None


def excess_of_first(values: Sequence[float]) -> float | None:
    """Return how much slower the first repeat is than the median of the others, as a fraction of this median; None for
    fewer than three values. If the first repeat alone differs, the likely cause is cold caches and not noise."""
    others = median(values[1:])
    return 1 - values[0] / others if len(values) >= 3 and others else None


def holm(p_values: Sequence[float], among: int | None = None) -> list[float]:
    """Return the p-values of several tests, adjusted with the Holm-Bonferroni method (Holm 1979).

    With the adjusted values, the probability of at least one false positive among all tests is at most that of one
    test. The smallest of m p-values is multiplied by m, the next one by m - 1, and so on. An adjusted value is never
    below the adjusted value of a smaller p-value. among: the number of tests that these were chosen from, if the values
    themselves decided which ones are of interest; it takes the place of m.
    """
    adjusted, highest, tests = list(p_values), 0.0, among or len(p_values)
    for position, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (tests - position) * p_values[index]))
        adjusted[index] = highest
    return adjusted


def drift(step_seconds: Sequence[float]) -> tuple[float, float] | None:
    """Return how much slower the last third of the steps is than the first third (a fraction of the first median), and
    the two-sided p of their Mann-Whitney U test; None for fewer than `LEAST_STEPS` steps."""
    if len(step_seconds) < LEAST_STEPS:
        return None
    from scipy.stats import mannwhitneyu

    third = len(step_seconds) // 3
    first, last = step_seconds[:third], step_seconds[-third:]
    early, late, p = median(first), median(last), float(mannwhitneyu(first, last, alternative="two-sided").pvalue)
    return (late / early - 1, p) if early and late else None


def dip_test(step_seconds: Sequence[float]) -> tuple[float, float] | None:
    """Return Hartigan's dip statistic of the step times, and the p-value of the hypothesis that they have one mode.

    Source: Hartigan and Hartigan 1985. The p-value is interpolated in a table of simulated uniform samples. Return None
    for fewer than `LEAST_STEPS` steps.
    """
    if len(step_seconds) < LEAST_STEPS:
        return None
    import diptest
    import numpy as np

    dip, p = diptest.diptest(np.asarray(step_seconds, dtype=np.float64))
    return float(dip), float(p)


def two_levels(values: Sequence[float]) -> tuple[Range, float]:
    """Split the values into two groups. Return the groups' medians, and the share of values in the upper group.

    The split is the one with the least sum of squares within the groups (Fisher 1958; Jenks).
    """
    import numpy as np

    ordered = np.sort(np.asarray(values, dtype=np.float64))
    count = np.arange(1, len(ordered))
    below = np.cumsum(ordered)[:-1]
    above = ordered.sum() - below
    between = below**2 / count + above**2 / (len(ordered) - count)  # sum of squares minus those within the groups
    cut = int(np.argmax(between)) + 1
    lower, upper = ordered[:cut], ordered[cut:]
    return (float(np.median(lower)), float(np.median(upper))), len(upper) / len(ordered)
