"""Cells without a figure: how many there are, why each has none, and what the frameworks cannot do."""

from collections.abc import Sequence

from throughline import frameworks, versions, workloads
from throughline.frameworks.description import FEATURES
from throughline.report.analysis.cells import STATUS_LABELS, STATUS_MEANINGS, Group, Row
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
        [_named(group, row), Entry.words(row.label, chip=row.status), _reason(row)]
        for group in groups
        for row in group.rows
        if row.status in STATUS_MEANINGS
    ]
    return tables.texts(["cell", "outcome", "reason"], rows, style="words") if rows else None


def _named(group: Group, row: Row) -> str:
    return f"{group.benchmark}, {group.precision}, {group.batch_name}, {row.framework}, {row.topology}"


def _reason(row: Row) -> str:
    return "; ".join(row.cell.reasons if row.cell else ()) or STATUS_MEANINGS[row.status]


def features(groups: Sequence[Group]) -> Table | None:
    """Return a column for each framework and workload, and a row for each thing that a framework may be able to do."""
    offered = {
        (name, folder): frameworks.features(name, group.summary.model)
        for group in groups
        for name in group.frameworks
        if group.summary
        and (folder := workloads.folder(group.summary.model))
        and versions.base(name) in frameworks.NAMES
    }
    one_workload = len({folder for _, folder in offered}) == 1
    headings = [name if one_workload else f"{name}, {folder}" for name, folder in offered]
    rows = {
        words: ["yes" if feature in those else "no" for those in offered.values()]
        for feature, words in FEATURES.items()
    }
    return tables.facts(headings, rows) if offered else None
