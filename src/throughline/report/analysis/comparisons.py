"""Pairs of configurations: by how much they differ, how sure that is, and whether this machine can tell at all.

An A/A run (the extra `aa`) measures the same configuration twice. The largest difference between two such medians is
the smallest one that is reported on that device: below it a pair says "no difference", whatever its ranks say.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from throughline import statistics
from throughline.report.analysis.cells import Group, Row
from throughline.report.analysis.values import Value, of_cell
from throughline.report.numbers import percent
from throughline.study.benchmark import Options

SURE = 0.05
"""p of the rank test from which on two sets of repeats are not told apart."""
AA = "__aa"
LOWER = ("bf16", "fp16")
DERIVED = ("exchange", "data")
"""Options of derived runs: split.py compares those."""


@dataclass(frozen=True)
class Floor:
    """The smallest difference that a device can report: the widest of `compared` A/A pairs of medians."""

    share: float
    compared: int

    @property
    def text(self) -> str:
        """What it is, and how sure: of k alike differences, the next one is the largest with 1 in k + 1."""
        return (
            f"A/A runs: medians of the same configuration differ by up to {percent(self.share, 1)} here "
            f"({self.compared} compared; chance alone exceeds that once in {self.compared + 1} comparisons). Smaller "
            "differences are none"
        )


Floors = dict[str, Floor]
"""By the name of the device."""


@dataclass(frozen=True)
class Pair:
    """`other` over `one`, whoever has measured them: medians, ranges, ranks."""

    what: str
    where: str
    one: Value
    other: Value
    floor: Floor | None

    @property
    def ratio(self) -> float:
        return self.other.median / self.one.median

    @property
    def range(self) -> statistics.Range | None:
        return statistics.speedup_range(self.other.repeats, self.one.repeats)

    @property
    def p(self) -> float | None:
        return statistics.rank_test(self.one.repeats, self.other.repeats)

    @property
    def verdict(self) -> str:
        """faster | slower | no difference | not told apart."""
        if self.floor and abs(self.ratio - 1) <= self.floor.share:
            return "no difference"
        if self.p is None or self.p >= SURE:
            return "not told apart"
        return "faster" if self.ratio > 1 else "slower"

    @property
    def why(self) -> str:
        """What the verdict rests on."""
        if self.verdict == "no difference" and self.floor:
            return f"within the {percent(self.floor.share, 1)} of A/A runs"
        if self.p is None:
            return "fewer than three repeats on a side: no rank test"
        return f"p = {self.p:.3f}" if self.p >= 0.001 else "p < 0.001"


def floors(groups: Sequence[Group]) -> Floors:
    """From all benchmarks that have an A/A run, by device."""
    cells = {(g.benchmark, g.name, row.framework, str(row.topology)): row.cell for g in groups for row in g.rows}
    differences: dict[str, list[float]] = {}
    for group in groups:
        if not group.benchmark.endswith(AA):
            continue
        for row in group.rows:
            origin = cells.get((group.benchmark.removesuffix(AA), group.name, row.framework, str(row.topology)))
            if origin and row.cell and origin.median_speed and row.cell.median_speed:
                differences.setdefault(device(group), []).append(abs(row.cell.median_speed / origin.median_speed - 1))
    return {name: Floor(max(shares), len(shares)) for name, shares in differences.items()}


def device(group: Group) -> str:
    """The name of the device that a group was measured on."""
    return group.summary.device.name if group.summary and group.summary.device else ""


def pairs(groups: Sequence[Group], everything: Sequence[Group], known: Floors) -> list[Pair]:
    """What there is to compare in one benchmark: frameworks, precisions, more devices, and one switch in another."""
    return [
        *_frameworks(groups, known), *_precisions(groups, known), *_devices(groups, known),
        *switches(groups, everything, known),
    ]  # fmt: skip


def _frameworks(groups: Sequence[Group], known: Floors) -> Iterable[Pair]:
    """Every framework against the first one, on each topology that both have."""
    for group in groups:
        for row in group.measured:
            name = group.measured[0].framework
            if row.framework != name:
                first = group.row(name, row.topology)
                yield from _pair(f"{row.shown} over {name}", _place(group, row), first, row, group, known)


def _precisions(groups: Sequence[Group], known: Floors) -> Iterable[Pair]:
    """Lower precisions against fp32 (else tf32), each at its fastest batch, on every topology."""
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
                where = f"{name} {topology}, batch {group.batch} against {base.batch}"
                yield from _pair(f"{precision} over {base.precision}", where, first, row, group, known)


def _devices(groups: Sequence[Group], known: Floors) -> Iterable[Pair]:
    """Each topology against the next smaller one."""
    for group in groups:
        for name in group.frameworks:
            for before, after in pairwise(group.series(name)):
                if after.topology.world > before.topology.world:
                    where = f"{name}, {group.precision}, batch {group.batch}"
                    yield from _pair(f"{after.topology} over {before.topology}", where, before, after, group, known)


def switches(groups: Sequence[Group], everything: Sequence[Group], known: Floors) -> Iterable[Pair]:
    """The same configuration in another benchmark that differs in one option only: this one has it switched on."""
    for group in groups:
        for other in everything:
            changed = _changed(other, group)
            if changed is None:
                continue
            key, before, after = changed
            what = f"{key} over none" if (before, after) == (False, True) else f"{key} {after} over {before}"
            for row in group.measured:
                where = f"{_place(group, row)}, {group.benchmark} against {other.benchmark}"
                yield from _pair(what, where, other.row(row.framework, row.topology), row, group, known)


def _changed(before: Group, after: Group) -> tuple[str, object, object] | None:
    """The one option that differs, where `before` has its default; None where more does, or what is compared."""
    a, b = before.summary, after.summary
    if a is None or b is None or before.benchmark == after.benchmark or before.name != after.name:
        return None
    if (a.model, a.parameters, a.optimizer, a.steps, device(before)) != (
        b.model, b.parameters, b.optimizer, b.steps, device(after)
    ):  # fmt: skip
        return None
    changed = [(key, value, to) for (key, value), (_, to) in zip(a.options, b.options, strict=True) if value != to]
    if len(changed) != 1 or changed[0][0] in DERIVED or AA in before.benchmark + after.benchmark:
        return None
    key, value, _ = changed[0]
    return changed[0] if value == Options.model_fields[key].default else None


def _pair(what: str, where: str, one: Row | None, other: Row, group: Group, known: Floors) -> Iterable[Pair]:
    values = (of_cell(one.shown, one.cell), of_cell(other.shown, other.cell)) if one else (None, None)
    if values[0] and values[1]:
        yield Pair(what, where, values[0], values[1], known.get(device(group)))


def _place(group: Group, row: Row) -> str:
    return f"{row.topology}, {group.precision}, batch {group.batch}"


def _speed(row: Row) -> float:
    return row.cell.median_speed or 0.0 if row.cell else 0.0
