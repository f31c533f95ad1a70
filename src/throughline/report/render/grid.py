"""A table once, for the page and for files: a row per cell, figures that are known, and why others are not.

Columns that no row knows are left out and named below the table with their reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from throughline.records import Cell
from throughline.report.analysis.cells import STATUS_MEANINGS, Group, Row

NOT_KNOWN = "n/a"
OLD = "the records are older than this figure"
Reader = Callable[[Any], str]
"""A value -> the text that people read."""


@dataclass(frozen=True)
class Figure:
    """One figure: `text` for reading, `value` for sorting and CSV; None where it is not known, and `why` it is not."""

    text: str = NOT_KNOWN
    value: float | str | None = None
    why: str | None = None
    kind: str = ""

    @classmethod
    def of(cls, value: float | str | None, read: Reader, why: str | None = None) -> Figure:
        return cls(why=why or "not recorded") if value is None else cls(read(value), value)


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

    columns: Sequence[Column]
    lines: Sequence[Line]
    facts: Sequence[tuple[str, str]] = ()
    notes: Sequence[str] = ()

    @property
    def known(self) -> bool:
        """Whether there is anything to show."""
        return any(figure.value is not None for line in self.lines for figure in line.figures)

    @property
    def asked(self) -> bool:
        """Whether the records are recent enough to say why a figure is not known."""
        return any(line.row.cell is not None and line.row.cell.work is not None for line in self.lines)

    @property
    def below(self) -> list[str]:
        """What is said below the table."""
        return [*(f"{name}: {text}" for name, text in self.facts), *self.notes]

    def condensed(self) -> Grid:
        """Without the minor columns, and without those that no measured row knows: these are named in the notes."""
        measured = [line.figures for line in self.lines if line.figures]
        major = [index for index, column in enumerate(self.columns) if not column.minor]
        kept = [index for index in major if any(figures[index].value is not None for figures in measured)]
        missing: dict[str, list[str]] = {}
        for index in major:
            if measured and index not in kept:
                reasons = dict.fromkeys(figures[index].why or "not recorded" for figures in measured)
                missing.setdefault("; ".join(reasons), []).append(self.columns[index].name)
        partly = {
            figures[index].why: self.columns[index].name
            for figures in measured
            for index in kept
            if figures[index].value is None and figures[index].why
        }
        notes = [f"{NOT_KNOWN}: {', '.join(names)}. Reason: {why}" for why, names in missing.items()]
        notes += [f"{heading}: {NOT_KNOWN} where {why}" for why, heading in partly.items()]
        return Grid(
            [self.columns[index] for index in kept],
            [replace(line, figures=[line.figures[i] for i in kept] if line.figures else ()) for line in self.lines],
            self.facts,
            [*self.notes, *notes],
        )


def lines(groups: Sequence[Group], figures: Callable[[Cell], Sequence[Figure]]) -> list[Line]:
    """A line per cell of `groups`; `figures` gives a measured cell's."""
    return [
        Line(group, row, figures(row.cell) if row.cell and row.cell.n_ok else ())
        for group in groups
        for row in group.rows
    ]


def read(part: Any, readers: Mapping[str, Reader], older: str = OLD) -> list[Figure]:
    """The fields of a part of a cell that `readers` names; without the part, the reason is that the file is `older`."""
    if part is None:
        return [Figure(why=older)] * len(readers)
    return [Figure.of(getattr(part, name), reader, part.reasons.get(name)) for name, reader in readers.items()]
