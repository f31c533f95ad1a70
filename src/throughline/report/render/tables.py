"""Tables of one benchmark as files: tidy CSV, and Markdown and LaTeX, of every topic that has them.

The CSV has one row per cell, units in its column names, unrounded numbers, and nothing where nothing is known. The
Markdown and LaTeX tables of throughput look as DLPerf prints them, with what they add to it to the right.
"""

from __future__ import annotations

from pathlib import Path

from throughline.files import write_text
from throughline.report.render import sheets
from throughline.report.render.topics import TOPICS
from throughline.report.topics import Scope


def write(scope: Scope, folder: Path) -> None:
    """Write every table of one benchmark into `folder`."""
    for topic in TOPICS:
        frame, tables = topic.frame(scope), topic.sheets(scope)
        if frame is not None:
            write_text(folder / f"{topic.name}.csv", frame.to_csv(index=False, lineterminator="\n"))
        if tables:
            write_text(folder / f"{topic.name}.md", sheets.markdown(tables))
            write_text(folder / f"{topic.name}.tex", sheets.latex(tables))
