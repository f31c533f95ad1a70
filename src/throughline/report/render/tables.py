"""Tables for the page and for files: a row for each cell, with its figures, or why a figure is not known.

A column without any known figure is left out, and named below the table with the reason. Markdown and LaTeX look as
DLPerf prints them. A CSV has a row for each cell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pandas as pd

from throughline.records import Cell
from throughline.report.analysis import workload_figures as workload
from throughline.report.analysis.cells import Group, Row
from throughline.report.render import markup

NOT_KNOWN = "n/a"
OLD = "the records are older than this figure"


@dataclass(frozen=True)
class Entry:
    """One figure: `text` is for people, `value` for sorting and CSV. If unknown, `value` is None and `why` says why."""

    text: str = NOT_KNOWN
    value: float | str | None = None
    why: str | None = None
    kind: str = ""

    @classmethod
    def of(cls, value: float | str | None, read: Callable[[Any], str], why: str | None = None) -> Entry:
        return cls(why=why or "not recorded") if value is None else cls(read(value), value)


@dataclass(frozen=True)
class Column:
    """A column: `key` is its name in the CSV, with the unit; `small` stands below the heading.

    A `minor` column is in the CSV only.
    """

    key: str
    heading: str = ""
    small: str = ""
    minor: bool = False

    @property
    def name(self) -> str:
        """Heading and small line in one text."""
        return f"{self.heading} ({self.small})" if self.small else self.heading


@dataclass(frozen=True)
class Line:
    """The figures of one cell. If it has none, its outcome stands in their place."""

    group: Group
    row: Row
    figures: Sequence[Entry]


@dataclass(frozen=True)
class Grid:
    """A table; below it stand the `facts` (name and text) and the `notes` (sentences)."""

    columns: Sequence[Column]
    lines: Sequence[Line]
    facts: Sequence[tuple[str, str]] = ()
    notes: Sequence[str] = ()

    @property
    def tells(self) -> bool:
        """True if there is a figure to show, or if the records are new enough to say why there is none."""
        known = any(figure.value is not None for line in self.lines for figure in line.figures)
        return known or any(line.row.cell and line.row.cell.work for line in self.lines)

    @property
    def below(self) -> list[str]:
        """The lines below the table."""
        return [*(f"{name}: {text}" for name, text in self.facts), *self.notes]

    def condensed(self) -> Grid:
        """Return the grid without minor columns and without columns that have no figure; the notes name the latter."""
        measured = [line.figures for line in self.lines if line.figures]
        major = [index for index, column in enumerate(self.columns) if not column.minor]
        kept = [index for index in major if any(figures[index].value is not None for figures in measured)]
        missing: dict[str, list[str]] = {}
        for index in major:
            if measured and index not in kept:
                reasons = dict.fromkeys(figures[index].why or "not recorded" for figures in measured)
                missing.setdefault("; ".join(reasons), []).append(self.columns[index].name)
        partly: dict[str, set[int]] = {}
        for figures in measured:
            for index in kept:
                if figures[index].value is None and (why := figures[index].why):
                    partly.setdefault(why, set()).add(index)
        notes = [f"{NOT_KNOWN}: {', '.join(names)}. Reason: {why}" for why, names in missing.items()]
        for why, indices in partly.items():
            notes.append(f"{', '.join(self.columns[index].name for index in sorted(indices))}: {NOT_KNOWN} where {why}")
        return Grid(
            [self.columns[index] for index in kept],
            [replace(line, figures=[line.figures[i] for i in kept] if line.figures else ()) for line in self.lines],
            self.facts,
            [*self.notes, *notes],
        )


def lines(groups: Sequence[Group], figures: Callable[[Cell], Sequence[Entry]]) -> list[Line]:
    """Return a line for each cell of `groups`. `figures` gives the figures of a measured cell."""
    return [
        Line(group, row, figures(row.cell) if row.cell and row.cell.n_ok else ())
        for group in groups
        for row in group.rows
    ]


def read(part: Any, names: Iterable[str], text: Callable[[str, Any], str], older: str = OLD) -> list[Entry]:
    """Return these fields of a part of a cell; `text` makes the text of a name and its value.

    If the cell lacks the part, the reason of every figure is `older`.
    """
    if part is None:
        return [Entry(why=older) for _ in names]
    return [Entry.of(getattr(part, name), partial(text, name), part.reasons.get(name)) for name in names]


Chip = tuple[str, str]
"""A status, and the word that the page shows in the status' colour."""
Table = tuple[list[str], Sequence[Sequence[str | Chip]]]
"""Header and rows. Only the page shows chips."""


@dataclass(frozen=True)
class Sheet:
    """A table with its heading and the lines below it. An empty line always follows a `spaced` one."""

    heading: str
    table: Table
    below: Sequence[str] = ()
    spaced: bool = False


def markdown(sheet: Sheet) -> str:
    """Return a table in Markdown, with its heading, and its remarks as a list."""
    header, body = sheet.table
    lines = [[markup.markdown(str(text)) for text in line] for line in [header, *body]]
    rule = ["---" if index == header.index("framework") else "--:" for index in range(len(header))]
    table = "".join(f"| {' | '.join(line)} |\n" for line in [lines[0], rule, *lines[1:]])
    remarks = "".join(f"* {markup.markdown(line)}\n" for line in sheet.below)
    return f"**{markup.markdown(sheet.heading)}**\n\n{table}" + (f"\n{remarks}" if remarks or sheet.spaced else "")


LATEX = r"""\begin{table}[ht]
\centering
\caption{%s}
\begin{tabular}{%s}
\hline
%s\hline
%s\hline
\end{tabular}
%s\end{table}
"""


def latex(sheet: Sheet) -> str:
    """Return a table as a LaTeX environment that needs no package."""
    header, body = sheet.table
    columns = "".join("l" if name == "framework" else "r" for name in header)
    lines = [" & ".join(markup.latex(str(text)) for text in line) + " \\\\\n" for line in [header, *body]]
    below = "\n\\\\ ".join(map(markup.latex, sheet.below)).rstrip()
    note = rf"\par\footnotesize {below}" + "\n" if sheet.below else ""
    return LATEX % (markup.latex(sheet.heading), columns, lines[0], "".join(lines[1:]), note)


def frame(cells: Iterable[tuple[Group, Row, dict[str, Any]]], *counts: str) -> pd.DataFrame:
    """Return a row for each cell: what it is, then its figures.

    The columns `counts` hold whole numbers, even if some are missing.
    """
    every = list(cells)
    names = dict.fromkeys(name for group, *_ in every if group.summary for name in workload.parameters(group.summary))
    rows = [{**_identity(group, row, names), **values} for group, row, values in every]
    whole = [name for name in names if all(isinstance(row[name], int | None) for row in rows)]
    table = pd.DataFrame(rows)
    return table.astype(dict.fromkeys([*counts, "global_batch_size", *whole], "Int64")) if rows else table


def of_cells(grid: Grid) -> pd.DataFrame:
    """Return a row for each cell with all figures of a grid, unrounded. A number that is not known is empty."""
    keys = [column.key for column in grid.columns]
    cells = []
    for line in grid.lines:
        values = [figure.value for figure in line.figures] or [None] * len(keys)
        inert = [markup.spreadsheet(value) if isinstance(value, str) else value for value in values]
        cells.append((line.group, line.row, dict(zip(keys, inert, strict=True))))
    return frame(cells, *(key for key in keys if key.endswith("_bytes")))


def of_grid(grid: Grid, heading: str) -> Sheet:
    """Return a grid as a sheet, with what each cell is on the left. An outcome stands in the first figure's place."""
    grid = grid.condensed()
    header = [batch_heading([line.group for line in grid.lines]), "precision", "framework", "topology"]
    columns = [f"{column.heading} {column.small}".strip() for column in grid.columns]
    body = []
    for line in grid.lines:
        start = [line.group.batch_of(line.row), line.group.precision, line.row.shown, str(line.row.topology)]
        texts = [figure.text for figure in line.figures] or [line.row.label, *[""] * (len(columns) - 1)]
        body.append([*start, *texts[: len(columns)]])
    return Sheet(heading, ([*header, *columns], body), grid.below, spaced=True)


def batch_heading(groups: Sequence[Group]) -> str:
    if any(group.by_iteration for group in groups):
        return "batch per device / global batch"
    return "batch per device" if all(group.per_device for group in groups) else "batch"


def batch_columns(group: Group, row: Row) -> dict[str, Any]:
    """Return the batch per device; if the configured batch is not per device, also that batch and what it is of."""
    if group.per_device:
        return {"batch_size_per_device": group.batch}
    scaling = {"scaling": "strong", "batch_per_replica": group.batch_per_replica(row)} if group.strong else {}
    each = row.cell.batch_size_per_device if row.cell else None
    return {"batch": group.batch, **scaling, "batch_size_per_device": each}


def _identity(group: Group, row: Row, parameters: Iterable[str]) -> dict[str, Any]:
    """Return what a cell is. `parameters` are the columns of its workload's parameters."""
    summary, cell = group.summary, row.cell
    values = workload.parameters(summary) if summary else {}
    proof = (summary.mathematics or {}).get(row.framework) if summary else None
    return {
        "benchmark": markup.spreadsheet(group.benchmark),
        "model": markup.spreadsheet(summary.model) if summary else None,
        **{name: values.get(name) for name in parameters},
        "precision": group.precision,
        **batch_columns(group, row),
        "framework": markup.spreadsheet(row.framework),
        "topology": str(row.topology),
        "nodes": row.topology.nodes,
        "devices": row.topology.world,
        "global_batch_size": cell.global_batch if cell else None,
        "device": markup.spreadsheet(summary.device.name) if summary and summary.device else None,
        "status": row.status,
        "mathematics": proof.verdict if proof else None,
        "exchange": row.exchanges,
    }
