"""Values that are compared or drawn, whoever has them: measured here, or published, imported, predicted elsewhere."""

from dataclasses import dataclass

from throughline.records import Cell
from throughline.topology import Topology

MEASURED = "measured here"


@dataclass(frozen=True)
class Value:
    """A median, and the repeats behind it where they are known. `label` names it, `source` says whose it is."""

    label: str
    median: float
    repeats: tuple[float, ...] = ()
    source: str = MEASURED

    @property
    def low(self) -> float:
        return min(self.repeats, default=self.median)

    @property
    def high(self) -> float:
        return max(self.repeats, default=self.median)


@dataclass(frozen=True)
class Point:
    """A value on a topology."""

    topology: Topology
    value: Value


@dataclass(frozen=True)
class Series:
    """One line of a plot, from the smallest topology on; all of its points are of one source."""

    name: str
    points: tuple[Point, ...]

    @property
    def source(self) -> str:
        return self.points[0].value.source if self.points else MEASURED


def of_cell(label: str, cell: Cell | None) -> Value | None:
    """A cell's median and repeats; None where it has none."""
    if cell is None or not cell.median_speed:
        return None
    return Value(label, cell.median_speed, tuple(value for value in cell.values if value is not None))
