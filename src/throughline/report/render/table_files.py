"""The forms of a table in files: Markdown and LaTeX, which look as DLPerf prints them, and CSV, unrounded."""

from collections.abc import Iterable
from functools import partial
from typing import Any

import pandas as pd

from throughline.report.analysis import workload_figures as workload
from throughline.report.analysis.cells import Cell
from throughline.report.render import markup
from throughline.report.render.tables import CSV, PAGE, Column, Table, batch_heading


def printed(table: Table) -> tuple[list[str], list[list[str]]]:
    """Return header and rows as Markdown and LaTeX show them, without markup.

    What a cell is stands on the left, and an outcome in the first figure's place.
    """
    columns = [f"{column.heading} {column.small}".strip() for column in table.columns]
    if not table.of_cells:
        return columns, [[entry.text for entry in line.entries] for line in table.lines]
    body, cells = [], [(line, line.cell) for line in table.lines if line.cell]
    for line, cell in cells:
        start = [cell.batch, cell.group.precision, cell.shown, str(cell.topology)]
        figures = [entry.text for entry in line.entries] or [cell.label, *[""] * (len(columns) - 1)]
        body.append([*start, *figures[: len(columns)]])
    return [batch_heading([cell.group for _, cell in cells]), "precision", "framework", "topology", *columns], body


def markdown(table: Table) -> str:
    """Return a table in its form for TEXT as Markdown, with its heading, and what stands below it as a list."""
    header, body = printed(table)
    lines = [[markup.markdown(text) for text in line] for line in [header, *body]]
    rule = ["---" if name == "framework" else "--:" for name in header]
    shown = "".join(f"| {' | '.join(line)} |\n" for line in [lines[0], rule, *lines[1:]])
    below = "".join(f"* {markup.markdown(line)}\n" for line in table.below)
    return f"**{markup.markdown(table.heading)}**\n\n{shown}" + (
        f"\n{below}" if below or table.spaced or table.of_cells else ""
    )


NO_PACKAGE = "% Needs no package; \\input this file.\n"
"""Stands above the tables in a LaTeX file."""
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


def latex(table: Table) -> str:
    """Return a table in its form for TEXT as a LaTeX environment that needs no package."""
    header, body = printed(table)
    columns = "".join("l" if name == "framework" else "r" for name in header)
    lines = [" & ".join(markup.latex(text) for text in line) + " \\\\\n" for line in [header, *body]]
    below = "\n\\\\ ".join(map(markup.latex, table.below)).rstrip()
    note = rf"\par\footnotesize {below}" + "\n" if table.below else ""
    return LATEX % (markup.latex(table.heading), columns, lines[0], "".join(lines[1:]), note)


def csv(table: Table) -> pd.DataFrame:
    """Return a table in its form for the CSV, unrounded; in a table of cells, what each cell is stands on the left.

    A number that is not known is empty.
    """
    keys = [column.key for column in table.columns]
    whole = [column.key for column in table.columns if column.whole or column.key.endswith("_bytes")]
    cells = [line.cell for line in table.lines if line.cell and table.of_cells]
    names = dict.fromkeys(name for cell in cells for name in workload.parameters(cell.group.summary))
    rows = []
    for line in table.lines:
        figures = [entry.value for entry in line.entries] or [None] * len(keys)
        inert = [markup.spreadsheet(value) if isinstance(value, str) else value for value in figures]
        identity = _identity(line.cell, names) if line.cell and table.of_cells else {}
        rows.append({**identity, **dict(zip(keys, inert, strict=True))})
    frame = pd.DataFrame(rows, columns=None if rows else keys)
    if cells:
        whole += ["global_batch_size", *(n for n in names if all(isinstance(row[n], int | None) for row in rows))]
    return frame.astype(dict.fromkeys(whole, "Int64")) if rows else frame


def batch_columns(cell: Cell) -> dict[str, Any]:
    """Return the batch per device; if the configured batch is not per device, also that batch and what it is of."""
    group = cell.group
    if group.per_device:
        return {"batch_size_per_device": group.batch}
    scaling = {"scaling": "strong", "batch_per_replica": cell.size.batch_per_replica} if group.strong else {}
    return {"batch": group.batch, **scaling, "batch_size_per_device": cell.record.batch_size_per_device}


def _of_batch(key: str, subject: Any) -> float | str | None:
    value: float | str | None = batch_columns(subject.cell).get(key)
    return value


IDENTITY = (
    Column("benchmark", read=lambda subject: subject.cell.group.benchmark, forms=(CSV,)),
    Column("precision", read=lambda subject: subject.cell.group.precision, forms=(CSV,)),
    Column("batch", read=partial(_of_batch, "batch"), forms=(CSV,), optional=True),
    Column("scaling", read=partial(_of_batch, "scaling"), forms=(CSV,), optional=True),
    Column("batch_per_replica", read=partial(_of_batch, "batch_per_replica"), forms=(CSV,), optional=True),
    Column("batch_size_per_device", read=partial(_of_batch, "batch_size_per_device"), forms=(CSV,)),
    Column("framework", read=lambda subject: subject.cell.framework, forms=(CSV,)),
    Column(heading="framework", read=lambda subject: subject.cell.shown, forms=(PAGE,)),
    Column("topology", "topology", read=lambda subject: str(subject.cell.topology)),
    Column(heading="precision, batch", forms=(PAGE,),
           read=lambda subject: f"{subject.cell.group.precision}, {subject.cell.batch}"),
)  # fmt: skip
"""Columns that say what the cell of a line is, where a cell may have several lines or a line has its own subject."""


def _identity(cell: Cell, parameters: Iterable[str]) -> dict[str, Any]:
    """Return what a cell is. `parameters` are the columns of its workload's parameters."""
    group, summary = cell.group, cell.group.summary
    values = workload.parameters(summary)
    proof = (summary.equivalence or {}).get(cell.framework)
    return {
        "benchmark": markup.spreadsheet(group.benchmark),
        "model": markup.spreadsheet(summary.model),
        **{name: values.get(name) for name in parameters},
        "precision": group.precision,
        **batch_columns(cell),
        "framework": markup.spreadsheet(cell.framework),
        "topology": str(cell.topology),
        "nodes": cell.topology.nodes,
        "devices": cell.topology.world,
        "global_batch_size": cell.record.global_batch,
        "device": markup.spreadsheet(cell.device.name) if cell.device else None,
        "status": cell.status,
        "equivalence": proof.verdict if proof else None,
        "gradient_sync": group.exchanges,
    }
