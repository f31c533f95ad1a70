"""Compare pairs of configurations: by how much they differ, how sure that is, and whether this machine can tell.

Only `judge` judges; the page, the tables and the sentences print its verdicts. An A/A run (the extra `aa`) measures the
same configuration twice. We report no difference that is as small as the largest one between two such medians, whatever
the rank test of a pair says. This limit holds for the environment, the workload and the day of the A/A run.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from throughline import statistics
from throughline.numbers import percent
from throughline.report.analysis import advice
from throughline.report.analysis.cells import Group, Row
from throughline.report.analysis.values import Value, of_cell
from throughline.study import runs
from throughline.study.config import block_name

SURE = 0.05
"""Two sets of repeats are not told apart if p of the rank test is this or larger."""
LEAST_REPEATS = 3
"""The rank test needs at least this many repeats on each side."""
AA = "__aa"
LOWER = ("bf16", "fp16")
NEAR = timedelta(days=1)
"""An A/A run judges only runs within this time of it."""
OF_FRAMEWORK = tuple(
    f"environment.{name}" for name in ("framework", "packages.", "python", "code", "variables.", "mpi")
)
"""Parts of an environment that differ between frameworks for good reasons."""
NO_SPEED = ("environment.commit", "environment.variables.CUDA_VISIBLE_DEVICES")
"""Parts that differ without any effect on speed. Whether the measured code has changed is told by `code`."""
CORES = ("environment.cpu_cores", "environment.cpu_quota_cores")
"""Parts that a cluster gives to a run in proportion to its devices."""
NAMED, LONG = 3, 80
"""How many differences between two environments are named; how many characters a printed value has at most."""


@dataclass(frozen=True)
class Side:
    """One side of a comparison: a measured row and its group."""

    group: Group
    row: Row

    @property
    def value(self) -> Value | None:
        return of_cell(self.row.shown, self.row.cell)

    @property
    def workload(self) -> tuple[str, Mapping[str, Any]] | None:
        summary = self.group.summary
        return (summary.model, summary.parameters) if summary else None


@dataclass(frozen=True)
class Floor:
    """The limit below which no difference is reported: the widest of `compared` A/A pairs of medians of `what`."""

    what: str
    share: float
    compared: int

    @property
    def text(self) -> str:
        """The limit, and how sure it is: after k like differences, the next one is the largest with 1 in k + 1."""
        return (
            f"A/A runs of {self.what} measure the same configuration twice: the two medians differ by up to "
            f"{percent(self.share, 1)} here ({self.compared} compared; by chance, one new pair in {self.compared + 1} "
            "differs by more). A difference no larger than this counts as noise"
        )


@dataclass(frozen=True)
class Pair:
    """A comparison of `other` with `base`, whoever measured them, by medians, ranges and ranks.

    unlike: what forbids a verdict. adjusted: p after Holm's correction for the `family` pairs that are tested together.
    """

    what: str
    where: str
    base: Value
    other: Value
    floor: Floor | None = None
    kind: str = ""
    sides: tuple[Side, Side] | None = None
    unlike: tuple[str, ...] = ()
    adjusted: float | None = None
    family: int = 0

    @property
    def ratio(self) -> float:
        return self.other.median / self.base.median

    @property
    def range(self) -> statistics.Range | None:
        return statistics.speedup_range(self.other.repeats, self.base.repeats)

    @property
    def p(self) -> float | None:
        return statistics.rank_test(self.base.repeats, self.other.repeats)

    @property
    def verdict(self) -> str:
        """`faster`, `slower`, `no difference`, `not told apart` or `not comparable`."""
        if self.unlike:
            return "not comparable"
        if self.floor and abs(self.ratio - 1) <= self.floor.share:
            return "no difference"
        if self.adjusted is None or self.adjusted >= SURE:
            return "not told apart"
        return "faster" if self.ratio > 1 else "slower"

    @property
    def gains(self) -> bool | None:
        """True if the median of `other` is higher by more than A/A runs differ, whatever the verdict.

        None if the sides are not comparable.
        """
        return None if self.unlike else self.ratio > 1 + (self.floor.share if self.floor else 0.0)

    @property
    def reason(self) -> str:
        """The reason for the verdict."""
        if self.unlike:
            return "; ".join(self.unlike)
        if self.verdict == "no difference" and self.floor:
            return f"within the {percent(self.floor.share, 1)} of A/A runs"
        if self.p is None or self.adjusted is None:
            return "fewer than three repeats on a side: no rank test"
        return _shown(self.p) + (
            f" (Holm over {self.family} pairs: {_shown(self.adjusted)})" if self.family > 1 else ""
        )


def _shown(p: float) -> str:
    return f"p = {p:.3f}" if p >= 0.001 else "p < 0.001"


def judge(groups: Sequence[Group], everything: Sequence[Group] = ()) -> list[Pair]:
    """Return all comparisons of one benchmark, with their verdicts.

    They compare frameworks, precisions, topologies, and the benchmark with those among `everything` that differ from it
    in one option only, which this one has switched on.
    """
    switched = list(_switches(groups, everything))
    blocks = {block_name(group.benchmark) for group in groups}
    blocks |= {block_name(side.group.benchmark) for pair in switched for side in pair.sides or ()}
    again = list(_again([group for group in everything or groups if block_name(group.benchmark) in blocks]))
    pairs = [
        replace(pair, floor=_floor(pair, again), unlike=_unlike(*pair.sides))
        for pair in (*_frameworks(groups), *_precisions(groups), *_devices(groups), *switched)
        if pair.sides
    ]
    tested = [(index, pair.p) for index, pair in enumerate(pairs) if not pair.unlike and pair.p is not None]
    for (index, _), adjusted in zip(tested, statistics.holm([p for _, p in tested]), strict=True):
        pairs[index] = replace(pairs[index], adjusted=adjusted, family=len(tested))
    return pairs


@dataclass(frozen=True)
class TooFew:
    """So few repeats that the rank test can decide none of `pairs` pairs, however far the repeats lie apart.

    `repeats` is the most that a side has, `enough` the least that could decide a pair. `least` is the smallest p
    that is possible after Holm's correction; None if no pair has enough repeats for a rank test.
    """

    repeats: int
    pairs: int
    least: float | None
    enough: int

    @property
    def text(self) -> str:
        """What these repeats cannot decide, why, and how many repeats could."""
        repeats = f"{self.repeats} repeat{'' if self.repeats == 1 else 's'}"
        which = "the only comparison" if self.pairs == 1 else f"any of the {self.pairs} comparisons"
        reason = f"the rank test needs at least {LEAST_REPEATS} repeats on each side"
        if self.least is not None:
            corrected = f" after Holm's correction for {self.pairs} pairs" if self.pairs > 1 else ""
            reason = f"the smallest p that they can give{corrected} is {self.least:.2g}"
            reason += f", and a verdict needs p < {SURE:g}"
        return f"{repeats} cannot decide {which} of this benchmark: {reason}. {self.enough} repeats can (runs.repeats)."


def too_few(pairs: Sequence[Pair]) -> TooFew | None:
    """Say that the repeats are too few to decide any pair; None if they can decide one."""
    tested = [pair for pair in pairs if pair.family]
    asked = tested or [pair for pair in pairs if not pair.unlike and pair.base.repeats and pair.other.repeats]
    if not asked:
        return None
    sizes, family, least = [(len(pair.base.repeats), len(pair.other.repeats)) for pair in asked], len(asked), None
    n, m = min(sizes, key=lambda both: statistics.least_p(*both))
    if tested:
        least = min(1.0, family * statistics.least_p(n, m))
        if least < SURE:
            return None
    possible = range(LEAST_REPEATS, 99)
    return TooFew(max(n, m), family, least, next(k for k in possible if family * statistics.least_p(k, k) < SURE))


def differences(first: Side, second: Side) -> list[str]:
    """Return which parts of device, environment and data are known of both sides, differ, and may decide the speed."""
    a, b = first.group.facts(first.row), second.group.facts(second.row)
    left_out: tuple[str, ...] = NO_SPEED
    if first.row.framework != second.row.framework:
        left_out += OF_FRAMEWORK
    if first.row.topology != second.row.topology:
        left_out += (*advice.BY_TOPOLOGY, *CORES)
    return [
        _said(key, a.get(key), b.get(key))
        for key in dict.fromkeys([*a, *b])
        if not key.startswith(left_out) and _differs(key, a.get(key), b.get(key))
    ]


def _differs(key: str, first: Any, second: Any) -> bool:
    """True if two facts differ. An unknown fact does not differ, but an unknown variable counts as not set."""
    if None in (first, second):
        return first != second and key.startswith("environment.variables.")
    return bool(first != second) and not advice.close(key, [first, second])


def _said(key: str, *values: Any) -> str:
    """Return a difference in words, such as `torch is 2.12.0 and 2.13.0`."""
    part, _, rest = key.partition(".")
    if part == "data":
        return f"the data differ (content {' and '.join(str(value)[:12] for value in values)})"
    name = "device" if part == "device" else rest.removeprefix("framework.").removeprefix("packages.")
    texts = ["not set" if value is None else str(value) for value in values]
    is_long = any(isinstance(value, list) or len(text) > LONG for value, text in zip(values, texts, strict=True))
    return f"{name} differs" if is_long else f"{name.removeprefix('variables.')} is {' and '.join(texts)}"


def _unlike(first: Side, second: Side) -> tuple[str, ...]:
    """Return why two sides must not be compared: unequal mathematics, or different surroundings."""
    if first.row.framework != second.row.framework:
        unequal = [side.row.framework for side in (first, second) if side.row.unequal]
        if unequal:
            return (f"{' and '.join(unequal)} does not compute what the others do (equivalence.json)",)
    differing = differences(first, second)
    more = [f"{len(differing) - NAMED} more differences"] if len(differing) > NAMED else []
    return (*differing[:NAMED], *more)


def _again(groups: Sequence[Group]) -> Iterable[tuple[Side, Side]]:
    """Yield the configurations that were measured twice, in the same environment and within a day."""
    first = {
        (g.benchmark, g.name, row.framework, str(row.topology)): Side(g, row) for g in groups for row in g.measured
    }
    for group in groups:
        if group.benchmark.endswith(AA):
            for row in group.measured:
                origin = first.get((group.benchmark.removesuffix(AA), group.name, row.framework, str(row.topology)))
                if origin and not differences(origin, side := Side(group, row)) and _near(origin, side):
                    yield origin, side


def _floor(pair: Pair, again: Iterable[tuple[Side, Side]]) -> Floor | None:
    """Return the widest difference of the A/A pairs that belong to a side of `pair`.

    Such an A/A pair has the framework, the environment and the workload of that side, and was measured within a day.
    """
    shares: list[tuple[float, str]] = []
    for twice in again:
        origin, same = twice[0].value, twice[1].value
        if origin and same and any(_belongs(twice, side) for side in pair.sides or ()):
            shares.append((abs(same.median / origin.median - 1), twice[0].row.framework))
    what = " and ".join(dict.fromkeys(name for _, name in shares))
    return Floor(what, max(share for share, _ in shares), len(shares)) if shares else None


def _belongs(twice: tuple[Side, Side], side: Side) -> bool:
    return all(
        member.row.framework == side.row.framework
        and member.workload == side.workload
        and _near(member, side)
        and not differences(member, side)
        for member in twice
    )


def _near(first: Side, second: Side) -> bool:
    """True if at most a day lies between two measurements; False if a summary does not tell when they took place."""
    cells = first.row.cell, second.row.cell
    try:
        starts = [datetime.fromisoformat(cell.started) for cell in cells if cell and cell.started]
        ends = [datetime.fromisoformat(cell.ended) for cell in cells if cell and cell.ended]
        return len(starts) == len(ends) == 2 and max(starts) - min(ends) <= NEAR
    except (ValueError, TypeError):
        return False


def _frameworks(groups: Sequence[Group]) -> Iterable[Pair]:
    """Compare every framework with the first one that computes what it should, on each topology that both have."""
    for group in groups:
        equal = [row.framework for row in group.measured if not row.unequal]
        name = next(iter(equal or group.frameworks), "")
        for row in group.measured:
            if row.framework != name:
                first = group.row(name, row.topology)
                yield from _pair("frameworks", f"{row.shown} over {name}", _place(group, row), group, first, group, row)


def _precisions(groups: Sequence[Group]) -> Iterable[Pair]:
    """Compare lower precisions with fp32 (or else tf32), each at its fastest batch, on every topology."""
    best: dict[tuple[str, str], dict[str, tuple[Group, Row]]] = {}
    for group in groups:
        for row in group.measured:
            fastest = best.setdefault((row.framework, str(row.topology)), {})
            kept = fastest.get(group.precision)
            if kept is None or _speed(row) > _speed(kept[1]):
                fastest[group.precision] = (group, row)
    for (name, topology), fastest in best.items():
        full = fastest.get("fp32") or fastest.get("tf32")
        for precision in LOWER:
            if full and precision in fastest:
                (group, row), (base, first) = fastest[precision], full
                where = f"{name} {topology}, {group.batch_name} against {base.batch}"
                yield from _pair("precisions", f"{precision} over {base.precision}", where, base, first, group, row)


def _devices(groups: Sequence[Group]) -> Iterable[Pair]:
    """Compare each topology with the next smaller one."""
    for group in groups:
        for name in group.frameworks:
            for before, after in pairwise(group.series(name)):
                if after.topology.world > before.topology.world:
                    where = f"{name}, {group.precision}, {group.batch_name}"
                    what = f"{after.topology} over {before.topology}"
                    yield from _pair("devices", what, where, group, before, group, after)


def _switches(groups: Sequence[Group], everything: Sequence[Group]) -> Iterable[Pair]:
    """Compare each group with the same one of a benchmark that differs in one option only.

    The benchmark of `groups` has that option switched on.
    """
    for group in groups:
        for other in everything:
            a, b = other.summary, group.summary
            changed = runs.switch(a, b) if a and b and other.name == group.name else None
            if changed:
                key, before, after = changed
                what = f"{key} over none" if (before, after) == (False, True) else f"{key} {after} over {before}"
                for row in group.measured:
                    where = f"{_place(group, row)}, {group.benchmark} against {other.benchmark}"
                    base = other.row(row.framework, row.topology)
                    yield from _pair("switches", what, where, other, base, group, row)


def _pair(
    kind: str, what: str, where: str, base: Group, base_row: Row | None, group: Group, other: Row
) -> Iterable[Pair]:
    if base_row:
        sides = Side(base, base_row), Side(group, other)
        before, after = (side.value for side in sides)
        if before and after:
            yield Pair(what, where, before, after, kind=kind, sides=sides)


def _place(group: Group, row: Row) -> str:
    return f"{row.topology}, {group.precision}, {group.batch_name}"


def _speed(row: Row) -> float:
    return row.cell.median_speed or 0.0 if row.cell else 0.0
