"""Compare two sets of repeats by the ratio of their throughputs: how large it is, and how sure that is.

All tests are t-tests on natural logarithms, because noise multiplies a throughput. Which test it is follows from how
the repeats were made, never from their values: `paired` if repeat k of both sides ran in the same round, otherwise
Welch's test (Welch 1947), which lets the variances differ. docs/method-verdicts.md gives the reasons.
"""

import math
import statistics
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from throughline.numbers import percent

LEAST_REPEATS = 3
"""A test needs at least this many repeats on each side."""
SURE = 0.05
"""A difference is conclusive if its p, adjusted for its family, is smaller than this."""
INTERVAL = 0.90
"""The probability with which an interval holds the true ratio: each of its ends is passed with 5 %.

So an interval inside a margin is a test of equivalence at 5 % (Schuirmann 1987).
"""
MARGIN = 0.05
"""Configurations count as equal if they differ by no more than this share, unless `runs.margin` sets another one."""
ROUNDING = 1e-12
"""Smaller logarithms and errors come from rounding: the repeats do not differ at all."""
PLANNED = 0.02
"""The noise of a single repeat that planning assumes, as a share."""
POWER = 0.9
"""Planning asks for so many repeats that a difference is decided with this probability."""


@dataclass(frozen=True)
class Noise:
    """A variance of log ratios between two measurements of one configuration, beyond that of their repeats.

    `degrees` is the number of A/A differences that it comes from.
    """

    variance: float
    degrees: int


@dataclass(frozen=True)
class Tested:
    """A tested ratio: `other` over `base`, with its interval and the p of the hypothesis that it is 1.

    log_error: the standard error of the logarithm, from the repeats alone. error, degrees: that of the test, with what
    A/A runs add, and its degrees of freedom.
    """

    ratio: float
    low: float
    high: float
    p: float
    log_error: float
    error: float
    degrees: float

    @property
    def log(self) -> float:
        return math.log(self.ratio)

    def corrected(self, tests: int) -> tuple[float, float]:
        """Return the interval at the level 1 - SURE / tests (Bonferroni).

        All intervals of so many tests hold their true ratios together with a probability of 95 %.
        """
        from scipy import special

        reach = self.error and self.error * float(special.stdtrit(self.degrees, 1 - SURE / (2 * tests)))
        return math.exp(self.log - reach), math.exp(self.log + reach)

    def beyond(self, limit: float) -> bool:
        """True if the interval lies outside of `limit`, a log ratio that holds in both directions."""
        return math.log(self.low) > limit or math.log(self.high) < -limit

    def within(self, limit: float) -> bool:
        """True if the interval lies inside of `limit`, a log ratio that holds in both directions."""
        return -limit <= math.log(self.low) and math.log(self.high) <= limit


def tested(base: Sequence[float], other: Sequence[float], *, paired: bool, noise: Noise | None = None) -> Tested | None:
    """Test the ratio of `other` over `base`; None with fewer than three repeats on a side.

    paired: repeat k of one side ran in the same round as repeat k of the other one. noise: what A/A runs add to the
    variance of the repeats. The degrees of freedom of the sum are those of Welch and Satterthwaite.
    """
    if min(len(base), len(other)) < LEAST_REPEATS:
        return None
    middle, error, degrees = _difference(tuple(base), tuple(other), paired)
    total, freedom = error**2, degrees
    if noise and noise.variance:
        total += noise.variance
        freedom = total**2 / (error**4 / degrees + noise.variance**2 / noise.degrees)
    p, reach = _t(middle, math.sqrt(total), freedom)
    low, high = math.exp(middle - reach), math.exp(middle + reach)
    return Tested(math.exp(middle), low, high, p, error, math.sqrt(total), freedom)


@lru_cache(10_000)  # a report asks for the test of a pair several times
def _difference(base: tuple[float, ...], other: tuple[float, ...], paired: bool) -> tuple[float, float, float]:
    """Return the difference of the mean logarithms, its standard error, and the degrees of freedom of the t-test."""
    from scipy import stats

    one, two = [math.log(value) for value in other], [math.log(value) for value in base]
    middle = statistics.fmean(one) - statistics.fmean(two)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # repeats that are all equal have no variance
        result = stats.ttest_rel(one, two) if paired else stats.ttest_ind(one, two, equal_var=False)
    t, degrees = float(result.statistic), float(result.df)
    error = abs(middle / t) if middle and math.isfinite(t) and t else 0.0
    if not middle or not math.isfinite(degrees):  # equal means have t = 0, from which no error follows
        error = _error(one, two, paired)
        degrees = degrees if math.isfinite(degrees) else float(min(len(one), len(two)) - 1)
    return middle if abs(middle) > ROUNDING else 0.0, error if error > ROUNDING else 0.0, degrees


def _error(one: Sequence[float], two: Sequence[float], paired: bool) -> float:
    if paired:
        return statistics.stdev(a - b for a, b in zip(one, two, strict=True)) / math.sqrt(len(one))
    return math.sqrt(statistics.variance(one) / len(one) + statistics.variance(two) / len(two))


def _t(middle: float, error: float, degrees: float) -> tuple[float, float]:
    """Return the two-sided p of `middle`, and half the width of its interval."""
    if not error:
        return (0.0 if middle else 1.0), 0.0
    from scipy import special

    p = 2 * float(special.stdtr(degrees, -abs(middle) / error))
    return p, error * float(special.stdtrit(degrees, (1 + INTERVAL) / 2))


def between_measurements(again: Sequence[Tested]) -> Noise | None:
    """Return by how much A/A pairs differ beyond what their repeats explain; None without an A/A pair."""
    if not again:
        return None
    beyond = statistics.fmean(pair.log**2 - pair.log_error**2 for pair in again)
    return Noise(max(0.0, beyond), len(again))


def power(repeats: int, difference: float, deviation: float, family: int = 1, *, paired: bool = True) -> float:
    """Return the probability that `repeats` repeats decide a difference, at the level of the smallest p of a family.

    difference: a share, such as 0.05. deviation: the standard deviation of single repeats, as a share.
    """
    from scipy import special

    degrees = (repeats - 1) if paired else 2 * (repeats - 1)
    far = math.log1p(difference) / (deviation * math.sqrt(2 / repeats))
    limit = float(special.stdtrit(degrees, 1 - SURE / (2 * family)))
    return 1 - float(special.nctdtr(degrees, far, limit))


def repeats_needed(difference: float, deviation: float, family: int = 1, *, paired: bool = True) -> int | None:
    """Return how many repeats decide a difference in 9 of 10 cases; None if even 99 do not. See `power`."""
    possible = range(LEAST_REPEATS, 100)
    return next((n for n in possible if power(n, difference, deviation, family, paired=paired) >= POWER), None)


def least_difference(repeats: int, deviation: float, family: int = 1, *, paired: bool = True) -> float | None:
    """Return the smallest difference, in whole per cent, that is decided in 9 of 10 cases; None if there is none."""
    if repeats < LEAST_REPEATS:
        return None
    shares = (share / 100 for share in range(1, 1000))
    return next((d for d in shares if power(repeats, d, deviation, family, paired=paired) >= POWER), None)


def decides(repeats: int, family: int, margin: float = MARGIN) -> str:
    """Say which differences `repeats` repeats in rounds detect, and how many repeats detect the margin."""
    least, wanted = least_difference(repeats, PLANNED, family), repeats_needed(margin, PLANNED, family)
    terms = f"at {percent(PLANNED)} noise ({family} question{'s' if family > 1 else ''})"
    more = f"{margin * 100:.3g} % takes {wanted or 'over 99'} repeats (runs.repeats)"
    if least is None:
        return f"too few repeats for a verdict: a test needs {LEAST_REPEATS}; {more} {terms}"
    text = f"{repeats} repeats detect differences of {percent(least)} {terms}"
    return text if wanted and repeats >= wanted else f"{text}; {more}"
