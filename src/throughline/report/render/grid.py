"""A table once, for the page and for files: a row per cell, figures that are known, and why others are not.

Columns that no row knows are left out and named below the table with their reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from throughline.records import Cell
from throughline.report.analysis.cells import STATUS_MEANINGS, Group, Row

NOT_KNOWN = "n/a"


@dataclass(frozen=True)
class Figure:
    """One figure: `text` for reading, `value` for sorting and CSV; None where it is not known, and `why` it is not."""

    text: str = NOT_KNOWN
    value: float | str | None = None
    why: str | None = None
    kind: str = ""

    @classmethod
    def of(cls, value: float | str | None, text: str, why: str | None = None) -> Figure:
        return cls(text, value) if value is not None else cls(why=why or "not recorded")


@dataclass(frozen=True)
class Column:
    """`key` is its name in the CSV, with its unit; `small` stands below the heading; `minor`: in the CSV only."""

    key: str
    heading: str
    small: str = ""
    minor: bool = False

    @property
    def name(self) -> str:
        """Heading and small line in one."""
        return f"{self.heading} ({self.small})" if self.small else self.heading


@dataclass(frozen=True)
class Line:
    """The figures of one cell; without any, its outcome stands in their place."""

    group: Group
    row: Row
    figures: Sequence[Figure]

    @property
    def outcome(self) -> tuple[str, str, str] | None:
        """(status, label, meaning) of a cell without a figure."""
        row = self.row
        return None if row.status == "ok" else (row.status, row.label, STATUS_MEANINGS.get(row.status, ""))


@dataclass(frozen=True)
class Grid:
    """`facts` are said below the table, name and text; `notes` are sentences."""

    name: str
    title: str
    columns: Sequence[Column]
    lines: Sequence[Line]
    facts: Sequence[tuple[str, str]] = ()
    notes: Sequence[str] = field(default_factory=tuple)

    @property
    def known(self) -> bool:
        """Whether there is anything to show."""
        return any(figure.value is not None for line in self.lines for figure in line.figures)

    @property
    def asked(self) -> bool:
        """Whether the records are recent enough to say why a figure is not known."""
        return any(line.row.cell is not None and line.row.cell.work is not None for line in self.lines)

    def condensed(self) -> Grid:
        """Without the minor columns, and without those that no measured row knows: these are named in the notes."""
        measured = [line for line in self.lines if line.figures]
        empty = [
            index for index in range(len(self.columns)) if all(line.figures[index].value is None for line in measured)
        ]
        by_reason: dict[str, dict[str, None]] = {}
        for index in empty if measured else ():
            if not self.columns[index].minor:
                reasons = dict.fromkeys(line.figures[index].why or "not recorded" for line in measured)
                by_reason.setdefault("; ".join(reasons), {})[self.columns[index].name] = None
        some = {
            figure.why: self.columns[index].name
            for line in measured
            for index, figure in enumerate(line.figures)
            if index not in empty and not self.columns[index].minor and figure.value is None and figure.why
        }
        notes = [f"{NOT_KNOWN}: {', '.join(names)}. Reason: {why}" for why, names in by_reason.items()]
        notes += [f"{heading}: {NOT_KNOWN} where {why}" for why, heading in some.items()]
        keep = [i for i, column in enumerate(self.columns) if i not in empty and not column.minor]
        return replace(
            self,
            columns=[self.columns[index] for index in keep],
            lines=[
                replace(line, figures=[line.figures[i] for i in keep] if line.figures else []) for line in self.lines
            ],
            notes=[*self.notes, *notes],
        )


def lines(groups: Sequence[Group], figures: Callable[[Cell], Sequence[Figure]]) -> list[Line]:
    """A line per cell of `groups`; `figures` gives a measured cell's."""
    return [
        Line(group, row, figures(row.cell) if row.cell and row.cell.n_ok else ())
        for group in groups
        for row in group.rows
    ]
