"""Tables of one benchmark: throughput, memory, use of the hardware, work and cost, as tidy CSV, Markdown and LaTeX.

The CSV has one row per cell, units in its column names, unrounded numbers, and nothing where nothing is known. The
Markdown and LaTeX tables look as DLPerf prints them, one per batch size and precision, with what they add to it
(average, range, repeats, efficiency) to the right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pandas as pd

from throughline.files import write_text
from throughline.records import Cell
from throughline.report.analysis import cells, comparisons
from throughline.report.analysis.cells import STATUS_LABELS, STATUS_MEANINGS, Group, Row, title
from throughline.report.render import markup, sections
from throughline.report.render.grid import Grid

Escape = Callable[[str], str]
SUFFIXES = (".csv", ".md", ".tex")


def write(groups: Sequence[Group], folder: Path) -> None:
    """Write every table of one benchmark into `folder`."""
    write_text(folder / "throughput.csv", throughput_frame(groups).to_csv(index=False, lineterminator="\n"))
    write_text(folder / "throughput.md", "\n".join(_markdown(group, throughput_table(group)) for group in groups))
    write_text(folder / "throughput.tex", _latex_file(_latex(group, throughput_table(group)) for group in groups))
    for grid in sections.tables(groups):
        write_text(folder / f"{grid.name}.csv", grid_frame(grid).to_csv(index=False, lineterminator="\n"))
        shown = grid.condensed()
        heading, table = ("Peak memory per device, MiB", memory_table(groups)) if grid.name == "memory" else (
            grid.title, _grid_table(shown)
        )  # fmt: skip
        below = [*(f"{name}: {text}" for name, text in shown.facts), *shown.notes]
        remarks = "".join(f"* {markup.markdown(line)}\n" for line in below)
        write_text(folder / f"{grid.name}.md", f"**{heading}**\n\n{_markdown_grid(table)}\n{remarks}")
        latex = _latex_table(heading, table, "".join(f"\\\\ {markup.latex(line)}\n" for line in below))
        write_text(folder / f"{grid.name}.tex", _latex_file([latex]))


def write_comparisons(groups: Sequence[Group], derived: Sequence[Group], folder: Path) -> None:
    """Write comparisons.csv: every pair of one benchmark, judged by the A/A runs among `derived`."""
    known = comparisons.floors([*groups, *derived])
    rows = []
    for pair in comparisons.pairs(groups, groups, known):
        ends = pair.range or (None, None)
        rows.append(
            {
                "compared": markup.spreadsheet(pair.what),
                "where": markup.spreadsheet(pair.where),
                "ratio": pair.ratio,
                "ratio_at_least": ends[0],
                "ratio_at_most": ends[1],
                "rank_test_p": pair.p,
                "smallest_difference": pair.floor.share if pair.floor else None,
                "a_a_pairs": pair.floor.compared if pair.floor else 0,
                "verdict": pair.verdict,
            }
        )
    columns = ["compared", "where", "ratio", "ratio_at_least", "ratio_at_most", "rank_test_p", "smallest_difference",
               "a_a_pairs", "verdict"]  # fmt: skip
    write_text(folder / "comparisons.csv", pd.DataFrame(rows, columns=columns).to_csv(index=False, lineterminator="\n"))


def throughput_frame(groups: Sequence[Group]) -> pd.DataFrame:
    """One row per cell; a number that is not known is empty."""
    rows = [
        {
            **_identity(group, row),
            "repeats_asked": row.cell.n if row.cell else None,
            "repeats_ok": row.cell.n_ok if row.cell else 0,
            "median_samples_per_s": row.cell.median_speed if row.cell else None,
            "average_samples_per_s": row.cell.average_speed if row.cell else None,
            "min_samples_per_s": row.cell.min if row.cell else None,
            "max_samples_per_s": row.cell.max if row.cell else None,
            "speedup": row.cell.speedup if row.cell else None,
            "efficiency": row.cell.efficiency if row.cell else None,
            **_scatter(row.cell),
            "reasons": markup.spreadsheet("; ".join(row.cell.reasons)) if row.cell else None,
        }
        for group in groups
        for row in group.rows
    ]
    return _whole(pd.DataFrame(rows), "repeats_asked", "repeats_left_out", "global_batch_size", "sequence_tokens")


def _scatter(cell: Cell | None) -> dict[str, float | int | None]:
    """How far the repeats lie apart, and what that leaves of the speedup."""
    ends: Sequence[float | None] = (cell.speedup_range if cell else None) or (None, None)
    return {
        "median_absolute_deviation_samples_per_s": cell.median_absolute_deviation if cell else None,
        "coefficient_of_variation": cell.coefficient_of_variation if cell else None,
        "range_coverage": cell.range_coverage if cell else None,
        "speedup_at_least": ends[0],
        "speedup_at_most": ends[1],
        "repeats_left_out": sum(len(part.repeats) for part in cell.left_out) if cell else None,
    }


def grid_frame(grid: Grid) -> pd.DataFrame:
    """One row per cell with all figures of a grid, unrounded; a number that is not known is empty."""
    rows = [
        {
            **_identity(line.group, line.row),
            **{
                column.key: _inert(line.figures[index].value) if line.figures else None
                for index, column in enumerate(grid.columns)
            },
        }
        for line in grid.lines
    ]
    counts = [column.key for column in grid.columns if column.key.endswith("_bytes")]
    return _whole(pd.DataFrame(rows), *counts, "global_batch_size", "sequence_tokens")


def _inert(value: float | str | None) -> float | str | None:
    return markup.spreadsheet(value) if isinstance(value, str) else value


def _grid_table(grid: Grid) -> Table:
    """A grid as header and rows, with the cell's identity to the left; an outcome stands in the first column."""
    header = ["batch per device", "precision", "framework", "topology"]
    columns = [f"{column.heading} {column.small}".strip() for column in grid.columns]
    body = []
    for line in grid.lines:
        start = [str(line.group.batch), line.group.precision, line.row.shown, str(line.row.topology)]
        texts = [figure.text for figure in line.figures] or [line.row.label, *[""] * (len(columns) - 1)]
        body.append([*start, *texts[: len(columns)]])
    return [*header, *columns], body


def _whole(frame: pd.DataFrame, *columns: str) -> pd.DataFrame:
    """`frame` with `columns` as whole numbers that may be missing, instead of 32.0."""
    return frame.astype(dict.fromkeys(columns, "Int64")) if len(frame) else frame


def _identity(group: Group, row: Row) -> dict[str, object]:
    summary = group.summary
    return {
        "benchmark": markup.spreadsheet(group.benchmark),
        "model": markup.spreadsheet(summary.model) if summary else None,
        "sequence_tokens": summary.parameters["sequence"] if summary else None,
        "precision": group.precision,
        "batch_size_per_device": group.batch,
        "framework": markup.spreadsheet(row.framework),
        "topology": str(row.topology),
        "nodes": row.topology.nodes,
        "devices": row.topology.world,
        "global_batch_size": row.cell.global_batch if row.cell else None,
        "device": markup.spreadsheet(summary.device.name) if summary and summary.device else None,
        "status": row.status,
        "mathematics": _verdict(group, row),
        "exchange": row.exchanges,
    }


def _verdict(group: Group, row: Row) -> str | None:
    """Whether the framework computes what the others do: the word of equivalence.json."""
    compared = group.summary.mathematics if group.summary else None
    return compared[row.framework].verdict if compared and row.framework in compared else None


Table = tuple[list[str], list[list[str]]]


def throughput_table(group: Group) -> Table:
    """Header and rows as DLPerf prints them; a cell without a figure says why."""
    unit = "gpu_num" if _on_gpus([group]) else "device_num"
    header = ["framework", "node_num", unit, "samples/s", "speedup", "average", "range", "repeats", "efficiency"]
    return header, [_throughput_row(row) for row in group.rows]


def _throughput_row(row: Row) -> list[str]:
    nodes = f"{row.topology.nodes} (simulated)" if row.topology.simulated else str(row.topology.nodes)
    start = [row.shown, nodes, str(row.topology.world)]
    cell = row.cell
    if cell is None or cell.median_speed is None:
        return [*start, row.label, "", "", "", f"0/{cell.n}" if cell else "", ""]
    return [
        *start,
        markup.speed(cell.median_speed),
        markup.speed(cell.speedup),
        markup.speed(cell.average_speed),
        f"{markup.speed(cell.min)} to {markup.speed(cell.max)}",
        f"{cell.n_ok}/{cell.n}",
        markup.percent(cell.efficiency),
    ]


def memory_table(groups: Sequence[Group]) -> Table:
    """Peak memory per device in MiB, used / total where that is known.

    A row per batch size, precision and framework, a column per topology.
    """
    topologies = sorted({row.topology for group in groups for row in group.rows}, key=lambda t: (t.world, t))
    header = ["batch per device", "precision", "framework", *map(str, topologies)]
    body = []
    for group in groups:
        for framework in group.frameworks:
            found = [group.row(framework, topology) for topology in topologies]
            texts = ["" if row is None else _memory(row) for row in found]
            shown = next(row.shown for row in found if row)
            body.append([str(group.batch), group.precision, shown, *texts])
    return header, body


def _memory(row: Row) -> str:
    if row.cell is None or not row.cell.n_ok:
        return row.label
    memory = row.cell.memory
    total = memory.device_total_bytes if memory else None
    return markup.mebibytes(row.cell.peak_memory_bytes) + (f" / {markup.mebibytes(total)}" if total else "")


def notes(group: Group) -> list[str]:
    """Remarks, what the words in the table mean, and the warnings about its cells."""
    seen = dict.fromkeys(row.status for row in group.rows if row.status != "ok")
    lines = [group.summary.remarks] if group.summary and group.summary.remarks else []
    lines += [f"{STATUS_LABELS[status]}: {STATUS_MEANINGS[status]}" for status in seen if status in STATUS_MEANINGS]
    return lines + [f"{note.where}: {note.text}" for note in cells.notes(group)]


def _on_gpus(groups: Sequence[Group]) -> bool:
    return any(g.summary and g.summary.device and g.summary.device.kind == "cuda" for g in groups)


def _markdown(group: Group, table: Table) -> str:
    remarks = "".join(f"* {markup.markdown(line)}\n" for line in notes(group))
    return f"**{markup.markdown(title(group))}**\n\n{_markdown_grid(table)}" + (f"\n{remarks}" if remarks else "")


def _markdown_grid(table: Table) -> str:
    header, body = table
    lines = [[markup.markdown(text) for text in line] for line in [header, *body]]
    rule = ["---" if index == header.index("framework") else "--:" for index in range(len(header))]
    return "".join(f"| {' | '.join(line)} |\n" for line in [lines[0], rule, *lines[1:]])


def _latex(group: Group, table: Table) -> str:
    return _latex_table(title(group), table, "".join(f"\\\\ {markup.latex(line)}\n" for line in notes(group)))


def _latex_table(heading: str, table: Table, below: str) -> str:
    header, body = table
    columns = "".join("l" if name == "framework" else "r" for name in header)
    lines = [" & ".join(markup.latex(text) for text in line) + r" \\" for line in [header, *body]]
    return "\n".join(
        [
            r"\begin{table}[ht]",
            r"\centering",
            rf"\caption{{{markup.latex(heading)}}}",
            rf"\begin{{tabular}}{{{columns}}}",
            r"\hline",
            lines[0],
            r"\hline",
            *lines[1:],
            r"\hline",
            r"\end{tabular}",
            *([r"\par\footnotesize " + below.removeprefix("\\\\ ").rstrip()] if below else []),
            r"\end{table}",
            "",
        ]
    )


def _latex_file(tables: Iterable[str]) -> str:
    return "% Needs no package; \\input this file.\n" + "\n".join(tables)
