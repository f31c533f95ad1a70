"""Values to compare or draw, wherever they come from: measured here, or published, imported or predicted elsewhere."""

from dataclasses import dataclass

from throughline.records import Cell
from throughline.spec import Topology

MEASURED = "measured here"


@dataclass(frozen=True)
class Value:
    """A median, with the repeats behind it if they are known. label: its name. source: who measured it."""

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
    """One line of a plot, from the smallest topology on. All of its points come from one source."""

    name: str
    points: tuple[Point, ...]

    @property
    def source(self) -> str:
        return self.points[0].value.source if self.points else MEASURED


def of_cell(label: str, cell: Cell | None) -> Value | None:
    """Return a cell's median and repeats; None if it has no median."""
    if cell is None or not cell.median_speed:
        return None
    return Value(label, cell.median_speed, tuple(value for value in cell.values if value is not None))
