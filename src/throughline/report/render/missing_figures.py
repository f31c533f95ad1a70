"""Cells without a figure: how many there are, and why each has none."""

from collections.abc import Sequence

from throughline.report.analysis.cells import STATUS_LABELS, STATUS_MEANINGS, Group
from throughline.report.render import tables
from throughline.report.render.tables import Entry, Table


def counts(groups: Sequence[Group]) -> list[tuple[str, str, int]]:
    """Count the cells of each status: (status, label, count)."""
    every = [row.status for group in groups for row in group.rows]
    labels = {**STATUS_LABELS, "ok": "measured"}
    return [(status, label, every.count(status)) for status, label in labels.items() if status in every]


def cells(groups: Sequence[Group]) -> Table | None:
    """Return a line for each cell without a figure; None if every cell has one."""
    rows: list[list[str | Entry]] = [
        [
            f"{group.benchmark}, {group.precision}, {group.batch_name}, {row.framework}, {row.topology}",
            Entry.words(row.label, chip=row.status),
            STATUS_MEANINGS[row.status],
            "; ".join(row.cell.reasons if row.cell else ()),
        ]
        for group in groups
        for row in group.rows
        if row.status in STATUS_MEANINGS
    ]
    return tables.texts(["cell", "outcome", "meaning", "reason"], rows, style="words") if rows else None
