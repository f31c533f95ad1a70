"""Which pairs of configurations a benchmark compares, and which family of questions each of them belongs to."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from throughline.report.analysis.cells import Group, Row
from throughline.report.analysis.sides import Side
from throughline.study import runs

LOWER = ("bf16", "fp16")


@dataclass(frozen=True)
class AskedPair:
    """A pair to compare: `what` over what, `where`, its kind, and the family of questions that are tested together.

    among: the number of pairs that those of the family were chosen from; 0 if no figure decided which ones they are.
    """

    kind: str
    family: str
    what: str
    where: str
    base: Side
    other: Side
    among: int = 0


def asked_pairs(groups: Sequence[Group], everything: Sequence[Group]) -> list[AskedPair]:
    """Return all pairs of one benchmark, and of it with those among `everything` that differ in one option only."""
    return [*_frameworks(groups), *_fastest(groups), *_precisions(groups), *_devices(groups),
            *_switches(groups, everything)]  # fmt: skip


def fastest(groups: Iterable[Group]) -> Side | None:
    """Return the row with the highest median of those whose equivalence check does not forbid a comparison."""
    rows = [Side(group, row) for group in groups for row in group.measured if not row.unequal]
    return max(rows, key=lambda side: _speed(side.row), default=None)


def _reference(group: Group) -> str:
    """Return the framework that the others of a group are compared with: the first that computes what it should."""
    equal = [row.framework for row in group.measured if not row.unequal]
    return next(iter(equal or group.frameworks), "")


def _frameworks(groups: Sequence[Group]) -> Iterable[AskedPair]:
    """Compare every framework with the first one that computes what it should, on each topology that both have.

    Where the highest median of all is, its framework is compared with the others too. The figures decide which one that
    is. So p is adjusted for all pairs of frameworks at one place.
    """
    top = fastest(groups)
    for group in groups:
        name = _reference(group)
        for row in group.measured:
            place, beside = _place(group, row), [one for one in group.measured if one.topology == row.topology]
            family, among = f"frameworks on {place}", math.comb(len(beside), 2)
            if row.framework != name:
                base, what = group.row(name, row.topology), f"{row.shown} over {name}"
                yield from _pair("frameworks", what, place, group, base, group, row, family, among)
            if top and row is top.row and row.framework != name:
                for base in beside:
                    if base.framework not in (name, row.framework):
                        what = f"{row.shown} over {base.shown}"
                        yield from _pair("fastest", what, place, group, base, group, row, family, among)


def best_of_others(groups: Iterable[Group], first: Side) -> list[Side]:
    """Return the row with the highest median of every other framework that has a figure."""
    best: dict[str, Side] = {}
    for group in groups:
        for row in group.measured:
            kept = best.get(row.framework)
            if row.framework != first.row.framework and (kept is None or _speed(row) > _speed(kept.row)):
                best[row.framework] = Side(group, row)
    return list(best.values())


def without_figure(groups: Iterable[Group], first: Side) -> list[str]:
    """Return the other frameworks that have no figure on the topology of `first` in its precision, with any batch.

    They may be faster there. A framework that supports no such run is none of them.
    """
    found: dict[str, set[str]] = {}
    for group in groups:
        for row in group.rows:
            here = (group.precision, row.topology) == (first.group.precision, first.row.topology)
            found.setdefault(row.framework, set()).update([row.status] if here else [])
    return [
        name
        for name, statuses in found.items()
        if name != first.row.framework and "ok" not in statuses and statuses != {"unsupported"}
    ]


def _fastest(groups: Sequence[Group]) -> Iterable[AskedPair]:
    """Compare the row with the highest median with the best rows of frameworks whose best rows are elsewhere.

    Without these pairs nothing could say that it is the fastest. All of them were chosen by their figures, from all
    pairs of rows.
    """
    top = fastest(groups)
    rows = sum(len(group.measured) for group in groups)
    for other in best_of_others(groups, top) if top else ():
        assert top
        if other.group is not top.group or other.row.topology != top.row.topology:
            where = f"{_place(top.group, top.row)} against {_place(other.group, other.row)}"
            what, family = f"{top.row.shown} over {other.row.shown}", "the fastest against those elsewhere"
            yield from _pair(
                "fastest", what, where, other.group, other.row, top.group, top.row, family, math.comb(rows, 2)
            )


def _precisions(groups: Sequence[Group]) -> Iterable[AskedPair]:
    """Compare lower precisions with fp32 (or else tf32), each at its fastest batch, on every topology."""
    best: dict[tuple[str, str], dict[str, tuple[Group, Row]]] = {}
    for group in groups:
        for row in group.measured:
            fastest_of = best.setdefault((row.framework, str(row.topology)), {})
            kept = fastest_of.get(group.precision)
            if kept is None or _speed(row) > _speed(kept[1]):
                fastest_of[group.precision] = (group, row)
    for (name, topology), fastest_of in best.items():
        full = fastest_of.get("fp32") or fastest_of.get("tf32")
        for precision in LOWER:
            if full and precision in fastest_of:
                (group, row), (base, first) = fastest_of[precision], full
                where = f"{name} {topology}, {group.batch_name} against {base.batch}"
                what = f"{precision} over {base.precision}"
                yield from _pair("precisions", what, where, base, first, group, row, "precisions")


def _devices(groups: Sequence[Group]) -> Iterable[AskedPair]:
    """Compare each topology with the next smaller one."""
    for group in groups:
        for name in group.frameworks:
            for before, after in pairwise(group.series(name)):
                if after.topology.world > before.topology.world:
                    where = f"{name}, {group.precision}, {group.batch_name}"
                    what = f"{after.topology} over {before.topology}"
                    yield from _pair("devices", what, where, group, before, group, after, "devices")


def _switches(groups: Sequence[Group], everything: Sequence[Group]) -> Iterable[AskedPair]:
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
                    yield from _pair("switches", what, where, other, base, group, row, "options")


def _pair(
    kind: str,
    what: str,
    where: str,
    base: Group,
    base_row: Row | None,
    group: Group,
    other: Row,
    family: str,
    among: int = 0,
) -> Iterable[AskedPair]:
    sides = (Side(base, base_row), Side(group, other)) if base_row else ()
    if sides and all(side.value for side in sides):
        yield AskedPair(kind, family, what, where, *sides, among)


def _place(group: Group, row: Row) -> str:
    return f"{row.topology}, {group.precision}, {group.batch_name}"


def _speed(row: Row) -> float:
    return row.cell.median_speed or 0.0 if row.cell else 0.0
