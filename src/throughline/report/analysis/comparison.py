"""A comparison of two series of repeats: their ratio, how sure it is, and its verdict.

An A/A run (the extra `aa`) measures the same configuration twice: a difference has to lie beyond the largest one
between two such measurements.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from throughline import ratios, statistics
from throughline.numbers import percent, span
from throughline.records.compared import PairVerdict, in_words
from throughline.report.analysis.cells import Cell


@dataclass(frozen=True)
class Floor:
    """The limit below which no difference is reported: the widest of `compared` A/A ratios of `what`.

    `log` is the size of its logarithm, so the limit is the same in both directions: 1.25 times and 0.8 times.
    """

    what: str
    log: float
    compared: int

    @property
    def share(self) -> float:
        """The limit as a share: 0.25 for 1.25 times and 0.8 times."""
        return math.expm1(self.log)

    @property
    def text(self) -> str:
        """The limit, and how sure it is: after k like differences, the next one is the largest with 1 in k + 1."""
        return (
            f"A/A runs of {self.what} measure the same configuration twice: the two differ by up to "
            f"{percent(self.share, 1)} here ({self.compared} compared; by chance, one new pair in {self.compared + 1} "
            "differs by more)"
        )


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The repeats `after` in comparison with those `before`. More is better.

    tested: the ratio and its interval, from a t-test on logarithms; None without three repeats on each side. in_rounds:
    whether that test is paired. unlike: what forbids a verdict. adjusted: p after Holm's correction for the `tests`
    questions of the `family`. among: how many questions the figures chose those of the family from; 0 if they chose
    none. margin: a share; two configurations are equal if they differ by no more.
    """

    before: Sequence[float]
    after: Sequence[float]
    unlike: tuple[str, ...] = ()
    tested: ratios.Tested | None = None
    in_rounds: bool = False
    floor: Floor | None = None
    family: str = ""
    among: int = 0
    margin: float = ratios.MARGIN
    adjusted: float | None = None
    tests: int = 0

    @property
    def ratio(self) -> float:
        """The ratio of the medians. The test has a ratio of its own, that of the geometric means."""
        return (statistics.median(self.after) or 0.0) / (statistics.median(self.before) or math.nan)

    @property
    def log(self) -> float:
        """The logarithm of the tested ratio, or else of the medians' ratio."""
        return self.tested.log if self.tested else math.log(self.ratio)

    @property
    def range(self) -> statistics.Range | None:
        return statistics.speedup_range(self.after, self.before)

    @property
    def p(self) -> float | None:
        return self.tested.p if self.tested else None

    @property
    def limit(self) -> float:
        """The largest log ratio between two configurations that count as equal: the margin, but at least the floor."""
        return max(math.log1p(self.margin), self.floor.log if self.floor else 0.0)

    @property
    def verdict(self) -> PairVerdict:
        """`faster`, `slower`, `no difference`, `inconclusive` or `not comparable`."""
        if self.unlike:
            return "not comparable"
        if self.tested is None or self.adjusted is None:
            return "inconclusive"
        if self.adjusted < ratios.SURE and self.tested.beyond(self.floor.log if self.floor else 0.0):
            return "faster" if self.tested.ratio > 1 else "slower"
        return "no difference" if self.tested.within(self.limit) else "inconclusive"

    @property
    def words(self) -> str:
        """The verdict in words; without an A/A run it ends with `in these runs`."""
        return in_words(self.verdict, self.floor is not None)

    @property
    def gains(self) -> bool | None:
        """True if the verdict is `faster`, False if it says that nothing is gained, None if that is not known."""
        return {"faster": True, "slower": False, "no difference": False}.get(self.verdict)

    @property
    def corrected(self) -> tuple[float, float] | None:
        """The interval of the tested ratio at the level 1 - 5 % / `tests`: corrected, as p is, for its family."""
        return self.tested.corrected(max(1, self.tests)) if self.tested else None

    @property
    def interval(self) -> str:
        """The corrected interval in words, with enough digits; empty without a test."""
        return span(self.corrected, places(self.tested)) if self.tested else ""

    @property
    def reason(self) -> str:
        """The reason for the verdict."""
        if self.unlike:
            return "; ".join(self.unlike)
        if self.tested is None or self.adjusted is None:
            return "fewer than three repeats on a side: no test"
        shown = _shown(self.tested.p)
        if self.tests > 1:
            shown += f" (Holm over {self.tests} pairs: {_shown(self.adjusted)})"
        ends = span((self.tested.low, self.tested.high), places(self.tested))
        alone = f"the {percent(ratios.INTERVAL)} interval of this pair alone, {ends},"
        if self.verdict == "no difference":
            return f"{alone} lies within {percent(math.expm1(self.limit), 1)}"
        if self.verdict == "inconclusive" and self.floor and self.adjusted < ratios.SURE:
            return f"{shown}, but {alone} reaches into the {percent(self.floor.share, 1)} of A/A runs"
        return shown

    def values(self) -> dict[str, Any]:
        """Return what the test gives, by the keys of records/compared.py's `TestedRatio`."""
        tested, corrected = self.tested, self.corrected or (None, None)
        return {
            "ratio": self.ratio,
            "tested_ratio": tested.ratio if tested else None,
            "tested_at_least": tested.low if tested else None,
            "tested_at_most": tested.high if tested else None,
            "corrected_at_least": corrected[0],
            "corrected_at_most": corrected[1],
            "p": self.p,
            "p_holm": self.adjusted,
            "smallest_difference": self.floor.share if self.floor else None,
            "verdict": self.verdict,
            "because": self.reason,
        }


@dataclass(frozen=True, kw_only=True)
class Pair(Comparison):
    """A comparison of the cell `other` with the cell `base`: `what` over what, `where`, and of which kind."""

    kind: str
    what: str
    where: str
    base: Cell
    other: Cell


Any_ = TypeVar("Any_", bound=Comparison)


def adjusted(comparisons: Sequence[Any_]) -> list[Any_]:
    """Adjust p within each family of questions, with Holm's correction."""
    result = list(comparisons)
    for family in {one.family for one in result}:
        tested = [(index, one.tested.p) for index, one in enumerate(result) if one.family == family and one.tested]
        tests = max([len(tested), *(result[index].among for index, _ in tested)])
        for (index, _), p in zip(tested, statistics.holm([p for _, p in tested], tests), strict=True):
            result[index] = replace(result[index], adjusted=p, tests=tests)
    return result


def places(tested: ratios.Tested) -> int:
    """Return how many decimals show a tested ratio: at least three, and two digits of its interval."""
    width = tested.high - tested.low
    return min(7, max(3, 1 - math.floor(math.log10(width)))) if width > 1e-9 else 3


def _shown(p: float) -> str:
    return f"p = {p:.3f}" if p >= 0.001 else "p < 0.001"


def too_few(comparisons: Sequence[Comparison]) -> str | None:
    """Return what so few repeats cannot decide; None if a comparison has a test, or nothing can be compared."""
    asked = [one for one in comparisons if not one.unlike and one.before and one.after]
    if not asked or any(one.tested for one in asked):
        return None
    most = max(min(len(one.before), len(one.after)) for one in asked)
    which = "the only comparison" if len(asked) == 1 else f"any of the {len(asked)} comparisons"
    return (
        f"{most} valid repeat{'' if most == 1 else 's'} cannot decide {which} of this benchmark: a test needs at least "
        f"{ratios.LEAST_REPEATS} repeats on each side. Raise runs.repeats."
    )


def would_tell(comparisons: Sequence[Comparison]) -> tuple[float, float, int] | None:
    """Return what would decide the inconclusive comparisons: a difference, a noise, and the repeats for it.

    The difference is the margin; the noise is the largest standard deviation of a repeat in these, as a share. Return
    None if there is no such comparison with a test, or if A/A runs and not the repeats limit it.
    """
    needed = []
    for one in comparisons:
        if one.verdict == "inconclusive" and one.tested:
            repeats = min(len(one.before), len(one.after))
            deviation = one.tested.log_error * math.sqrt(repeats / 2)
            wanted = deviation and ratios.repeats_needed(one.margin, deviation, max(1, one.tests), paired=one.in_rounds)
            if wanted and wanted > repeats:
                needed.append((one.margin, deviation, wanted))
    return max(needed, key=lambda found: found[2], default=None)
