"""Compare two sets of repeats by the ratio of their throughputs: how large it is, and how sure that is.

All tests are t-tests on natural logarithms, because noise multiplies a throughput. Which test it is follows from how
the repeats were made, never from their values: `paired` if repeat k of both sides ran in the same round, otherwise
Welch's test (Welch 1947), which lets the variances differ. docs/explanation/method-verdicts.md gives the reasons.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

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
    degrees: how many A/A differences it comes from."""

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
        """Return the interval at the level 1 - SURE / tests (Bonferroni): all of them hold together with 95 %."""
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
    middle, error, degrees = _difference(base, other, paired)
    total, freedom = error**2, degrees
    if noise and noise.variance:
        total += noise.variance
        freedom = total**2 / (error**4 / degrees + noise.variance**2 / noise.degrees)
    p, reach = _t(middle, math.sqrt(total), freedom)
    low, high = math.exp(middle - reach), math.exp(middle + reach)
    return Tested(math.exp(middle), low, high, p, error, math.sqrt(total), freedom)


def _difference(base: Sequence[float], other: Sequence[float], paired: bool) -> tuple[float, float, float]:
    """Return the difference of the mean logarithms, its standard error, and the degrees of freedom of the t-test."""
    one, two = [math.log(value) for value in other], [math.log(value) for value in base]
    middle = statistics.fmean(one) - statistics.fmean(two)
    if paired:
        parts = [(statistics.variance(a - b for a, b in zip(one, two, strict=True)) / len(one), len(one))]
    else:
        parts = [(statistics.variance(logs) / len(logs), len(logs)) for logs in (one, two)]
    variance = sum(part for part, _ in parts)
    error = math.sqrt(variance) if math.sqrt(variance) > ROUNDING else 0.0
    degrees = float(min(number for _, number in parts) - 1)  # of repeats that are all equal
    if error:  # Welch and Satterthwaite
        degrees = variance**2 / sum(part**2 / (number - 1) for part, number in parts)
    return middle if abs(middle) > ROUNDING else 0.0, error, degrees


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
