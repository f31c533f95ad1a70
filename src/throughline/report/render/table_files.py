"""The forms of a table in files: Markdown and LaTeX, which look as DLPerf prints them, and CSV, unrounded."""

from collections.abc import Iterable
from typing import Any

import pandas as pd

from throughline.report.analysis import workload_figures as workload
from throughline.report.analysis.cells import Group, Row
from throughline.report.render import markup
from throughline.report.render.tables import CellLine, Table, batch_heading


def printed(table: Table) -> tuple[list[str], list[list[str]]]:
    """Return header and rows as Markdown and LaTeX show them, without markup.

    What a cell is stands on the left, and an outcome in the first figure's place.
    """
    columns = [f"{column.heading} {column.small}".strip() for column in table.columns]
    if not table.of_cells:
        return columns, [[entry.text for entry in line.entries] for line in table.lines]
    cells = [line for line in table.lines if isinstance(line, CellLine)]
    body = []
    for line in cells:
        start = [line.group.batch_of(line.row), line.group.precision, line.row.shown, str(line.row.topology)]
        figures = [entry.text for entry in line.entries] or [line.row.label, *[""] * (len(columns) - 1)]
        body.append([*start, *figures[: len(columns)]])
    return [batch_heading([line.group for line in cells]), "precision", "framework", "topology", *columns], body


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
    cells = [line for line in table.lines if isinstance(line, CellLine)]
    summaries = [line.group.summary for line in cells if line.group.summary]
    names = dict.fromkeys(name for summary in summaries for name in workload.parameters(summary))
    rows = []
    for line in table.lines:
        figures = [entry.value for entry in line.entries] or [None] * len(keys)
        inert = [markup.spreadsheet(value) if isinstance(value, str) else value for value in figures]
        identity = _identity(line.group, line.row, names) if isinstance(line, CellLine) else {}
        rows.append({**identity, **dict(zip(keys, inert, strict=True))})
    frame = pd.DataFrame(rows, columns=None if rows else keys)
    if cells:
        whole += ["global_batch_size", *(n for n in names if all(isinstance(row[n], int | None) for row in rows))]
    return frame.astype(dict.fromkeys(whole, "Int64")) if rows else frame


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
    device = group.device(row)
    proof = (summary.equivalence or {}).get(row.framework) if summary else None
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
        "device": markup.spreadsheet(device.name) if device else None,
        "status": row.status,
        "equivalence": proof.verdict if proof else None,
        "gradient_sync": row.exchanges,
    }
