"""Compare pairs of configurations: by how much they differ, how sure that is, and whether this machine can tell.

Only `judge` judges; the page, the tables and the sentences print its verdicts. The test is chosen from the design of
the repeats, one for all pairs of a benchmark. An A/A run (the extra `aa`) measures the same configuration twice: a
difference has to lie beyond the largest one between two such measurements, and their variance enters the test.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from throughline import ratios, statistics
from throughline.numbers import percent, span
from throughline.ratios import MARGIN, SURE, Tested
from throughline.records.compared import PairVerdict, in_words
from throughline.report.analysis import noise
from throughline.report.analysis.asked_pairs import AskedPair, asked_pairs
from throughline.report.analysis.cells import Group
from throughline.report.analysis.noise import Floor, Twice
from throughline.report.analysis.sides import Side, in_rounds, unlike
from throughline.report.analysis.values import Value
from throughline.study.config import block_name


@dataclass(frozen=True)
class Pair:
    """A comparison of `other` with `base`, whoever measured them.

    tested: the ratio and its interval, from a t-test on logarithms; None without three repeats on each side. in_rounds:
    whether that test is paired. unlike: what forbids a verdict. adjusted: p after Holm's correction for the `tests`
    questions of the `family`. among: how many questions the figures chose those of the family from. margin: a share;
    two configurations are equal if they differ by no more.
    """

    what: str
    where: str
    base: Value
    other: Value
    floor: Floor | None = None
    kind: str = ""
    sides: tuple[Side, Side] | None = None
    unlike: tuple[str, ...] = ()
    tested: Tested | None = None
    in_rounds: bool = False
    adjusted: float | None = None
    family: str = ""
    tests: int = 0
    among: int = 0
    margin: float = MARGIN

    @property
    def ratio(self) -> float:
        """The ratio of the medians. The test has a ratio of its own, that of the geometric means."""
        return self.other.median / self.base.median

    @property
    def range(self) -> statistics.Range | None:
        return statistics.speedup_range(self.other.repeats, self.base.repeats)

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
        if self.adjusted < SURE and self.tested.beyond(self.floor.log if self.floor else 0.0):
            return "faster" if self.tested.ratio > 1 else "slower"
        return "no difference" if self.tested.within(self.limit) else "inconclusive"

    @property
    def words(self) -> str:
        """The verdict in words."""
        return in_words(self.verdict, self.floor is not None)

    @property
    def here(self) -> str:
        """` in these runs`, if that is all that the verdict is about."""
        return self.words.removeprefix(self.verdict)

    @property
    def gains(self) -> bool | None:
        """True if the verdict is `faster`, False if it says that nothing is gained, None if that is not known."""
        return {"faster": True, "slower": False, "no difference": False}.get(self.verdict)

    @property
    def interval(self) -> str:
        """The interval of the tested ratio in words, with enough digits; empty without a test."""
        return span((self.tested.low, self.tested.high), places(self.tested)) if self.tested else ""

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
        if self.verdict == "no difference":
            return f"the interval {self.interval} lies within {percent(math.expm1(self.limit), 1)}"
        if self.verdict == "inconclusive" and self.floor and self.adjusted < SURE:
            return f"{shown}, but the interval {self.interval} reaches into the {self._floor} of A/A runs"
        return shown

    def values(self) -> dict[str, Any]:
        """Return what the test gives, by the keys of records/compared.py's `TestedRatio`."""
        tested = self.tested
        return {
            "ratio": self.ratio,
            "tested_ratio": tested.ratio if tested else None,
            "tested_at_least": tested.low if tested else None,
            "tested_at_most": tested.high if tested else None,
            "p": self.p,
            "p_holm": self.adjusted,
            "smallest_difference": self.floor.share if self.floor else None,
            "verdict": self.verdict,
            "because": self.reason,
        }

    @property
    def _floor(self) -> str:
        return percent(self.floor.share if self.floor else None, 1)


def places(tested: Tested) -> int:
    """Return how many decimals show a tested ratio: those that tell it from 1, and two digits of its interval."""
    small = [size for size in (abs(tested.ratio - 1), tested.high - tested.low) if size > 1e-9]
    return min(7, max([3, *(1 - math.floor(math.log10(size)) for size in small)]))


def _shown(p: float) -> str:
    return f"p = {p:.3f}" if p >= 0.001 else "p < 0.001"


def judge(groups: Sequence[Group], everything: Sequence[Group] = ()) -> list[Pair]:
    """Return all comparisons of one benchmark, with their verdicts.

    They compare frameworks, precisions, topologies, and the benchmark with those among `everything` that differ from it
    in one option only, which this one has switched on.
    """
    asked = asked_pairs(groups, everything)
    again = twice_measured(groups, everything, asked)
    barred = {index: unlike(pair.base, pair.other) for index, pair in enumerate(asked)}
    alike = [pair for index, pair in enumerate(asked) if not barred[index]]
    rounds = in_rounds(side for pair in alike for side in (pair.base, pair.other))
    return adjusted([_tested(pair, barred[index], again, rounds) for index, pair in enumerate(asked)])


def twice_measured(groups: Sequence[Group], everything: Sequence[Group], asked: Sequence[AskedPair]) -> list[Twice]:
    """Return the A/A runs of the blocks of these groups, and of the benchmarks that they are compared with."""
    compared = {block_name(side.group.benchmark) for pair in asked for side in (pair.base, pair.other)}
    blocks = compared | {block_name(group.benchmark) for group in groups}
    return list(noise.measured_twice([g for g in everything or groups if block_name(g.benchmark) in blocks]))


def of_sides(base: Side, other: Side, again: Sequence[Twice]) -> Pair | None:
    """Return the comparison of two sides that nobody else compares; None if one of them has no median."""
    asked = AskedPair("", "", "", "", base, other)
    if not (base.value and other.value):
        return None
    return adjusted([_tested(asked, unlike(base, other), again, in_rounds((base, other)))])[0]


def _tested(asked: AskedPair, unlike: tuple[str, ...], again: Sequence[Twice], rounds: bool) -> Pair:
    sides = asked.base, asked.other
    before, after = asked.base.value, asked.other.value
    assert before and after
    found = noise.noise_of(sides, again)
    margins = [side.group.summary.margin for side in sides if side.group.summary]
    return Pair(
        asked.what,
        asked.where,
        before,
        after,
        floor=noise.floor_of(sides, again),
        kind=asked.kind,
        sides=sides,
        unlike=unlike,
        tested=None if unlike else ratios.tested(before.repeats, after.repeats, paired=rounds, noise=found),
        in_rounds=rounds,
        family=asked.family,
        among=asked.among,
        margin=min(margins, default=MARGIN),
    )


def adjusted(pairs: Sequence[Pair]) -> list[Pair]:
    """Adjust p within each family of questions, with Holm's correction."""
    pairs = list(pairs)
    for family in {pair.family for pair in pairs}:
        tested = [(index, pair.tested.p) for index, pair in enumerate(pairs) if pair.family == family and pair.tested]
        tests = max([len(tested), *(pairs[index].among for index, _ in tested)])
        for (index, _), p in zip(tested, statistics.holm([p for _, p in tested], tests), strict=True):
            pairs[index] = replace(pairs[index], adjusted=p, tests=tests)
    return pairs


@dataclass(frozen=True)
class TooFew:
    """So few repeats that no pair of `pairs` has a test. `repeats` is the most that a side has."""

    repeats: int
    pairs: int

    @property
    def text(self) -> str:
        """What these repeats cannot decide, why, and how many repeats could."""
        repeats = f"{self.repeats} valid repeat{'' if self.repeats == 1 else 's'}"
        which = "the only comparison" if self.pairs == 1 else f"any of the {self.pairs} comparisons"
        return (
            f"{repeats} cannot decide {which} of this benchmark: a test needs at least {ratios.LEAST_REPEATS} repeats "
            "on each side. Raise runs.repeats."
        )


def too_few(pairs: Sequence[Pair]) -> TooFew | None:
    """Say that the repeats are too few to decide any pair; None if a pair has a test, or nothing can be compared."""
    asked = [pair for pair in pairs if not pair.unlike and pair.base.repeats and pair.other.repeats]
    if not asked or any(pair.tested for pair in asked):
        return None
    return TooFew(max(min(len(pair.base.repeats), len(pair.other.repeats)) for pair in asked), len(asked))


def would_tell(pairs: Sequence[Pair]) -> tuple[float, float, int] | None:
    """Return what would decide the inconclusive pairs: a difference, a noise, and the repeats for it.

    The difference is the margin; the noise is the largest standard deviation of a repeat in these pairs, as a share.
    Return None if there is no such pair with a test, or if A/A runs and not the repeats limit it.
    """
    open_ = [pair for pair in pairs if pair.verdict == "inconclusive" and pair.tested and not pair.unlike]
    if not open_:
        return None
    needed = []
    for pair in open_:
        assert pair.tested
        repeats = min(len(pair.base.repeats), len(pair.other.repeats))
        deviation = pair.tested.log_error * math.sqrt(repeats / 2)
        wanted = deviation and ratios.repeats_needed(pair.margin, deviation, max(1, pair.tests), paired=pair.in_rounds)
        if wanted and wanted > repeats:
            needed.append((pair.margin, deviation, wanted))
    return max(needed, key=lambda found: found[2], default=None)
