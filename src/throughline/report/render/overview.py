"""The rows of the overview above all benchmarks: the fastest cell of every framework."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from throughline.records import Cell
from throughline.report.analysis.cells import Group, Row
from throughline.report.analysis.judged_pairs import Pair
from throughline.report.render.head import Best, fastest, measured
from throughline.report.topic import Scope


@dataclass(frozen=True)
class Line:
    """One framework in a benchmark: its fastest cell, or its first cell if none has a figure.

    `leads`: this framework is the fastest, and the page's comparison tells it apart from the second fastest.
    `measured` of `cells` cells have a figure.
    """

    group: Group
    row: Row
    leads: bool
    measured: int
    cells: int

    @property
    def cell(self) -> Cell | None:
        """The cell, if it has a figure."""
        return self.row.cell if self.row.status == "ok" else None


def lines(scope: Scope) -> Iterator[Line]:
    """The lines of one benchmark."""
    groups, leads = scope.groups, leader(scope.groups, scope.pairs)
    for framework in dict.fromkeys(name for group in groups for name in group.frameworks):
        rows = [(group, row) for group in groups for row in group.rows if row.framework == framework]
        known = [best for best in measured(groups) if best.row.framework == framework]
        top = max(known, key=lambda best: best.speed, default=None)
        group, row = (top.group, top.row) if top else rows[0]
        yield Line(group, row, leads is not None and row is leads.row, len(known), len(rows))


def leader(groups: Sequence[Group], pairs: Sequence[Pair]) -> Best | None:
    """The fastest cell, if one of `pairs` finds it faster than the fastest cell of every other framework; else None.

    A benchmark with a single framework has no leader.
    """
    first = fastest(groups)
    if first is None:
        return None
    others = [one for one in measured(groups) if one.row.framework != first.row.framework and not one.row.unequal]
    second = max(others, key=lambda one: one.speed, default=None)
    if second is None:
        return None
    for pair in pairs:
        if pair.sides:
            one, other = (side.row for side in pair.sides)
            if other is first.row and one is second.row and pair.verdict == "faster":
                return first
            if one is first.row and other is second.row and pair.verdict == "slower":
                return first
    return None
