"""The fastest of what was measured, and the headline about it: how fast, and how well it scales."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from throughline.records import Cell
from throughline.report.analysis.baseline import ONE_DEVICE
from throughline.report.analysis.cells import Group, Row
from throughline.report.numbers import percent, reading


@dataclass(frozen=True)
class Best:
    """A measured row and the group it belongs to."""

    group: Group
    row: Row
    cell: Cell

    @property
    def speed(self) -> float:
        return self.cell.median_speed or 0.0

    @property
    def baseline(self) -> str:
        """The topology that its speedup is over."""
        summary = self.group.summary
        return summary.baselines.get(self.row.framework, ONE_DEVICE) if summary else ONE_DEVICE

    @property
    def settings(self) -> str:
        return f"{self.group.precision} with {self.group.batch_text}"


def measured(groups: Iterable[Group]) -> list[Best]:
    """Every row with a median."""
    return [
        Best(group, row, row.cell)
        for group in groups
        for row in group.rows
        if row.cell is not None and row.cell.median_speed is not None
    ]


def fastest(groups: Sequence[Group]) -> Best | None:
    return max(measured(groups), key=lambda best: best.speed, default=None)


def headline(groups: Sequence[Group]) -> str:
    """How fast and how well it scales, in a sentence with its sample count."""
    best = fastest(groups)
    if best is None:
        return "Nothing could be measured yet."
    model = best.group.summary.model if best.group.summary else best.group.benchmark
    return (
        f"{best.row.shown} trains {model} at {reading(best.speed)} {best.group.unit} on {devices(best)} "
        f"({best.settings}){_scaling(best)}. {sample(best)}"
    )


def devices(best: Best) -> str:
    """`32 devices (4n8g)`."""
    world = best.row.topology.world
    return f"{world} device{'s' if world > 1 else ''} ({best.row.topology})"


def sample(best: Best) -> str:
    """What the median is made of."""
    cell = best.cell
    if cell.n_ok == 1:
        return "One repeat only: how much it varies is not known."
    span = f"between {reading(cell.min)} and {reading(cell.max)} {best.group.unit}"
    return f"Median of {cell.n_ok} repeats, which lie {span}."


def _scaling(best: Best) -> str:
    base = best.baseline
    if best.row.topology.world == 1:
        return ", the fastest of all that was measured"
    if best.cell.speedup is None:
        return f"; its speedup is not known, because {base} has no valid repeat"
    ends = best.cell.speedup_range
    between = f" (speedup {ends[0]:.2f} to {ends[1]:.2f} by the ranges of the repeats)" if ends else ""
    return (
        f": {best.cell.speedup:.2f} times {'one device' if base == ONE_DEVICE else base}, "
        f"{percent(best.cell.efficiency)} of what {best.row.topology.world} devices could ideally give{between}"
    )
