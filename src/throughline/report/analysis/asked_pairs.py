"""Which pairs of cells a benchmark compares, and which family of questions each of them belongs to."""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from throughline.report.analysis.cells import Cell, Group
from throughline.report.analysis.comparison import Pair
from throughline.study import runs

LOWER = ("bf16", "fp16")


def asked_pairs(groups: Sequence[Group], everything: Sequence[Group]) -> list[Pair]:
    """Return all pairs of one benchmark, and of it with those among `everything` that differ in one option only."""
    return [*_frameworks(groups), *_fastest(groups), *_precisions(groups), *_devices(groups),
            *_switches(groups, everything)]  # fmt: skip


def untested(
    base: Cell, other: Cell, kind: str = "", what: str = "", where: str = "", family: str = "", among: int = 0
) -> Pair:
    """Return a pair of measured cells that nobody has tested yet."""
    return Pair(
        kind=kind, what=what, where=where, base=base, other=other, family=family, among=among,
        before=base.repeats, after=other.repeats,
    )  # fmt: skip


def fastest(groups: Iterable[Group]) -> Cell | None:
    """Return the cell with the highest median of those whose equivalence check does not forbid a comparison."""
    cells = (cell for group in groups for cell in group.measured if not cell.barred)
    return max(cells, key=lambda cell: cell.median, default=None)


def _frameworks(groups: Sequence[Group]) -> Iterator[Pair]:
    """Compare every framework with the first one that computes what it should, on each topology that both have.

    Where the highest median of all is, its framework is compared with the others too. The figures decide which one that
    is. So p is adjusted for all pairs of frameworks at one place.
    """
    top = fastest(groups)
    for group in groups:
        equal = [cell.framework for cell in group.measured if not cell.barred]
        name = next(iter(equal or group.frameworks), "")
        for cell in (cell for cell in group.measured if cell.framework != name):
            beside = [one for one in group.measured if one.topology == cell.topology]
            for base in sorted(beside, key=lambda one: one.framework != name):
                if base is not cell and (base.framework == name or cell is top):
                    kind = "frameworks" if base.framework == name else "fastest"
                    what = f"{cell.shown} over {name if base.framework == name else base.shown}"
                    family, among = f"frameworks on {cell.place}", math.comb(len(beside), 2)
                    yield untested(base, cell, kind, what, cell.place, family, among)


def best_of_others(groups: Iterable[Group], first: Cell) -> list[Cell]:
    """Return the cell with the highest median of every other framework that has a figure."""
    best: dict[str, Cell] = {}
    for cell in (cell for group in groups for cell in group.measured if cell.framework != first.framework):
        best[cell.framework] = max(best.get(cell.framework, cell), cell, key=lambda one: one.median)
    return list(best.values())


def without_figure(groups: Iterable[Group], first: Cell) -> list[str]:
    """Return the other frameworks that have no figure on the topology of `first` in its precision, with any batch.

    They may be faster there. A framework that supports no such run is none of them.
    """
    statuses: dict[str, set[str]] = {}
    for cell in (cell for group in groups for cell in group.cells if cell.framework != first.framework):
        here = (cell.group.precision, cell.topology) == (first.group.precision, first.topology)
        statuses.setdefault(cell.framework, set()).update([cell.status] if here else [])
    return [name for name, there in statuses.items() if "ok" not in there and there != {"unsupported"}]


def _fastest(groups: Sequence[Group]) -> Iterator[Pair]:
    """Compare the cell with the highest median with the best cells of frameworks whose best cells are elsewhere.

    Without these pairs nothing could say that it is the fastest. All of them were chosen by their figures, from all
    pairs of cells.
    """
    if top := fastest(groups):
        among = math.comb(sum(len(group.measured) for group in groups), 2)
        for other in best_of_others(groups, top):
            if other.group is not top.group or other.topology != top.topology:
                what, where = f"{top.shown} over {other.shown}", f"{top.place} against {other.place}"
                yield untested(other, top, "fastest", what, where, "the fastest against those elsewhere", among)


def _precisions(groups: Sequence[Group]) -> Iterator[Pair]:
    """Compare lower precisions with fp32 (or else tf32), each at its fastest batch, on every topology."""
    best: dict[tuple[str, str], dict[str, Cell]] = {}
    for cell in (cell for group in groups for cell in group.measured):
        of_precision = best.setdefault((cell.framework, str(cell.topology)), {})
        kept = of_precision.get(cell.group.precision, cell)
        of_precision[cell.group.precision] = max(kept, cell, key=lambda one: one.median)
    for of_precision in best.values():
        full = of_precision.get("fp32") or of_precision.get("tf32")
        for lower in (of_precision[precision] for precision in LOWER if full and precision in of_precision):
            assert full
            where = f"{lower.framework} {lower.topology}, {lower.group.batch_name} against {full.group.batch}"
            what = f"{lower.group.precision} over {full.group.precision}"
            yield untested(full, lower, "precisions", what, where, "precisions")


def _devices(groups: Sequence[Group]) -> Iterator[Pair]:
    """Compare each topology with the next smaller one."""
    for group in groups:
        for name in group.frameworks:
            for before, after in pairwise(group.series(name)):
                if after.topology.world > before.topology.world:
                    where = f"{name}, {group.precision}, {group.batch_name}"
                    what = f"{after.topology} over {before.topology}"
                    yield untested(before, after, "devices", what, where, "devices")


def _switches(groups: Sequence[Group], everything: Sequence[Group]) -> Iterator[Pair]:
    """Compare each group with the same one of a benchmark that differs in one option only.

    The benchmark of `groups` has that option switched on.
    """
    for group in groups:
        for other in (other for other in everything if other.name == group.name):
            if changed := runs.switch(other.summary, group.summary):
                key, before, after = changed
                what = f"{key} over none" if (before, after) == (False, True) else f"{key} {after} over {before}"
                for cell in group.measured:
                    base = other.cell(cell.framework, cell.topology)
                    if base and base.ok:
                        where = f"{cell.place}, {group.benchmark} against {other.benchmark}"
                        yield untested(base, cell, "switches", what, where, "options")
