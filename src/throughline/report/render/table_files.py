"""The forms of a table in files: Markdown and LaTeX, which look as DLPerf prints them, and CSV, unrounded.

Text is made inert for each of them.
"""

import re
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from throughline.files import write_text
from throughline.report.analysis import workload_figures as workload
from throughline.report.analysis.cells import Cell
from throughline.report.render.tables import CSV, PAGE, Column, Table, batch_heading

# Not escaped, because they mean nothing in Markdown: an underscore in a word, a colon in a sentence, a lone &.
_MARKDOWN = re.compile(r"[\\`*\[\]<>#|~!$]|(?<!\w)_|_(?!\w)|:(?=//)|&(?=#|\w+;)|(?<=www)\.")
_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "_": r"\_", "%": r"\%",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': "''",
}  # fmt: skip


def one_line(text: str) -> str:
    """Return `text` without line breaks and control characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def in_markdown(text: str) -> str:
    """Return Markdown that shows `text` as it is: nothing in it becomes markup, a table border, HTML or a link."""
    return _MARKDOWN.sub(lambda match: "\\" + match[0], one_line(text))


def in_latex(text: str) -> str:
    """Return LaTeX that shows `text` as it is."""
    return "".join(_LATEX.get(character, character) for character in one_line(text))


def in_spreadsheet(value: Any) -> Any:
    """Return a value such that no spreadsheet takes a text for a formula: before a leading = + - @ comes an apostrophe.

    Other values stay as they are.
    """
    if not isinstance(value, str):
        return value
    line = one_line(value)
    return f"'{line}" if line[:1] in {"=", "+", "-", "@"} else line


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
    lines = [[in_markdown(text) for text in line] for line in [header, *body]]
    rule = ["---" if name == "framework" else "--:" for name in header]
    shown = "".join(f"| {' | '.join(line)} |\n" for line in [lines[0], rule, *lines[1:]])
    below = "".join(f"* {in_markdown(line)}\n" for line in table.below)
    return f"**{in_markdown(table.heading)}**\n\n{shown}" + (f"\n{below}" if below or table.of_cells else "")


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
    lines = [" & ".join(in_latex(text) for text in line) + " \\\\\n" for line in [header, *body]]
    below = "\n\\\\ ".join(map(in_latex, table.below)).rstrip()
    note = rf"\par\footnotesize {below}" + "\n" if table.below else ""
    return LATEX % (in_latex(table.heading), columns, lines[0], "".join(lines[1:]), note)


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
        figures = [in_spreadsheet(entry.value) for entry in line.entries] or [None] * len(keys)
        identity = _identity(line.cell, names) if line.cell and table.of_cells else {}
        rows.append({**identity, **dict(zip(keys, figures, strict=True))})
    frame = pd.DataFrame(rows, columns=None if rows else keys)
    if cells:
        whole += ["global_batch_size", *(n for n in names if all(isinstance(row[n], int | None) for row in rows))]
    return frame.astype(dict.fromkeys(whole, "Int64")) if rows else frame


def write_csv(table: Table, path: Path, **more: Any) -> None:
    """Write a table as CSV. more: columns with one value, which stand on the right."""
    shown = table.in_form(CSV)
    assert shown
    write_text(path, csv(shown).assign(**more).to_csv(index=False, lineterminator="\n"))


def _identity(cell: Cell, parameters: Iterable[str] = ()) -> dict[str, Any]:
    """Return what a cell is. `parameters` are the columns of its workload's parameters.

    If the configured batch is not per device, that batch and what it is of stand beside the batch per device.
    """
    group, summary = cell.group, cell.group.summary
    values = workload.parameters(summary)
    check = (summary.equivalence or {}).get(cell.framework)
    scaling = {"scaling": "strong", "batch_per_replica": cell.size.batch_per_replica} if group.strong else {}
    identity = {
        "benchmark": group.benchmark,
        "model": summary.model,
        **{name: values.get(name) for name in parameters},
        "precision": group.precision,
        **({} if group.per_device else {"batch": group.batch, **scaling}),
        "batch_size_per_device": group.batch if group.per_device else cell.record.batch_size_per_device,
        "framework": cell.framework,
        "topology": str(cell.topology),
        "nodes": cell.topology.nodes,
        "devices": cell.topology.world,
        "global_batch_size": cell.record.global_batch,
        "device": cell.device.name if cell.device else None,
        "status": cell.status,
        "equivalence": check.verdict if check else None,
        "gradient_sync": group.exchanges,
    }
    return {name: in_spreadsheet(value) for name, value in identity.items()}


def _of_cell(key: str, subject: Any) -> float | str | None:
    value: float | str | None = _identity(subject.cell).get(key)
    return value


OF_BATCH = ("batch", "scaling", "batch_per_replica")
"""Columns that stand only where a batch is not per device."""
IDENTITY = (
    *(
        Column(key, read=partial(_of_cell, key), forms=(CSV,), optional=key in OF_BATCH)
        for key in ("benchmark", "precision", *OF_BATCH, "batch_size_per_device", "framework")
    ),
    Column(heading="framework", read=lambda subject: subject.cell.shown, forms=(PAGE,)),
    Column("topology", "topology", read=lambda subject: str(subject.cell.topology)),
    Column(heading="precision, batch", forms=(PAGE,),
           read=lambda subject: f"{subject.cell.group.precision}, {subject.cell.batch}"),
)  # fmt: skip
"""Columns that say what the cell of a line is, where a cell may have several lines or a line has its own subject."""
