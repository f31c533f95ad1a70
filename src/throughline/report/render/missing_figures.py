"""Cells without a figure: how many there are, and why each has none."""

from collections.abc import Sequence

from throughline.report.analysis.cells import STATUS_LABELS, STATUS_MEANINGS, Group
from throughline.report.render import tables
from throughline.report.render.tables import Entry, Table


def counts(groups: Sequence[Group]) -> list[tuple[str, str, int]]:
    """Count the cells of each status: (status, label, count)."""
    every = [cell.status for group in groups for cell in group.cells]
    labels = {**STATUS_LABELS, "ok": "measured"}
    return [(status, label, every.count(status)) for status, label in labels.items() if status in every]


def cells(groups: Sequence[Group]) -> Table | None:
    """Return a line for each cell without a figure; None if every cell has one."""
    rows: list[list[str | Entry]] = [
        [
            f"{group.benchmark}, {group.precision}, {group.batch_name}, {cell.framework}, {cell.topology}",
            Entry.words(cell.label, chip=cell.status),
            STATUS_MEANINGS[cell.status],
            "; ".join(cell.record.reasons),
        ]
        for group in groups
        for cell in group.cells
        if cell.status in STATUS_MEANINGS
    ]
    return tables.texts(["cell", "outcome", "meaning", "reason"], rows, style="words") if rows else None
