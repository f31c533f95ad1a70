"""The reasons and warnings of cells. Texts that differ only in their numbers are one note."""

from collections.abc import Sequence
from dataclasses import dataclass

from throughline.report.analysis import merged_notes
from throughline.report.analysis.baseline import ONE_DEVICE
from throughline.report.analysis.cells import Cell, Group

NAMED = 6
"""A warning about all cells of a table names no cell if the table has more than these."""


@dataclass(frozen=True)
class Note:
    """A reason or a warning, and the cells it is about."""

    where: str
    text: str
    kind: str


def notes(group: Group) -> list[Note]:
    """Return the reasons and warnings of all cells, after a note for each baseline that is not one device."""
    told: dict[tuple[str, str], list[tuple[Cell, str]]] = {}
    for cell in group.cells:
        for kind, texts in (("reason", cell.record.reasons), ("warning", cell.record.warnings)):
            for text in texts:
                told.setdefault((kind, merged_notes.form(text)), []).append((cell, text))
    text = "its speedups are relative to {}, the smallest topology on which the model's layout is possible"
    moved = {name: base for name, base in group.summary.baselines.items() if base != ONE_DEVICE}
    return [
        *(Note(name, text.format(base), "reason") for name, base in moved.items()),
        *(
            Note(_place(group, [cell for cell, _ in same]), next(merged_notes.merged(text for _, text in same)), kind)
            for (kind, _), same in told.items()
        ),
    ]


def _place(group: Group, cells: Sequence[Cell]) -> str:
    """Name these cells, such as `torch 1n1g, 1n2g; jax 1n1g`; if they are all of a large table, say how many."""
    by_framework: dict[str, dict[str, None]] = {}
    for cell in cells:
        by_framework.setdefault(cell.framework, {})[str(cell.topology)] = None
    recorded = sum(bool(cell.record.statuses) for cell in group.cells)
    if sum(map(len, by_framework.values())) == recorded > NAMED:
        return f"all {recorded} cells"
    return "; ".join(f"{framework} {', '.join(topologies)}" for framework, topologies in by_framework.items())
