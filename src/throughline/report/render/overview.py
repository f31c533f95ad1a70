"""The rows of the overview above all benchmarks: the fastest cell of every framework."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from throughline.records import Cell
from throughline.report.analysis.cells import Group, Row
from throughline.report.render.head import fastest, measured


@dataclass(frozen=True)
class Line:
    """One framework in a benchmark: its fastest cell. Where it has no figure, the cell is the first one.

    `leads`: it is the benchmark's fastest. `measured` of `cells` cells have a figure.
    """

    group: Group
    row: Row
    leads: bool
    measured: int
    cells: int

    @property
    def cell(self) -> Cell | None:
        """The cell, where it has a figure."""
        return self.row.cell if self.row.status == "ok" else None


def lines(groups: Sequence[Group]) -> Iterator[Line]:
    """Those of one benchmark."""
    first = fastest(groups)
    for framework in dict.fromkeys(name for group in groups for name in group.frameworks):
        rows = [(group, row) for group in groups for row in group.rows if row.framework == framework]
        known = [best for best in measured(groups) if best.row.framework == framework]
        top = max(known, key=lambda best: best.speed, default=None)
        group, row = (top.group, top.row) if top else rows[0]
        yield Line(group, row, first is not None and row is first.row, len(known), len(rows))
