"""The topics of the report, in the order of the page, and the files that they write.

A topic is found because its file in this folder defines it: a `Topic`, with its place in the order of the page.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure as Plot

from throughline.files import write_text
from throughline.report.render import table_files
from throughline.report.render.plots import LIGHT, Theme, save
from throughline.report.render.tables import CSV, TEXT
from throughline.report.topic import SYNTHETIC, Drawing, Scope, Topic
from throughline.sources import every_module


def _found() -> tuple[Topic, ...]:
    """Return the topics that the files in this folder define, in the order of the page."""
    values = (value for module in every_module(__name__) for value in vars(module).values())
    topics = {value.name: value for value in values if isinstance(value, Topic)}
    return tuple(sorted(topics.values(), key=lambda topic: topic.order))


TOPICS = _found()


def write_tables(scope: Scope, folder: Path) -> None:
    """Write every table of one benchmark into `folder`: tidy CSV and Markdown, and that of throughput as LaTeX.

    The CSV has one row for each cell, units in the column names, and unrounded numbers. What is not known is empty. The
    tables of throughput for people look as DLPerf prints them; our additional columns are on the right.
    """
    for topic in TOPICS:
        table = topic.table(scope)
        figures = topic.csv(scope) or table
        text = table and table.in_form(TEXT)
        own = topic.text(scope)
        texts = own or ([replace(text, heading=topic.title)] if text else [])
        if figures and CSV in figures.forms:
            synthetic = {"synthetic_data": True} if scope.synthetic else {}
            table_files.write_csv(figures, folder / f"{topic.name}.csv", **synthetic)
        if texts:
            texts = [replace(text, notes=[*text.notes, *scope.marks]) for text in texts]
            write_text(folder / f"{topic.name}.md", "\n".join(map(table_files.markdown, texts)))
        if own:
            write_text(folder / f"{topic.name}.tex", table_files.NO_PACKAGE + "\n".join(map(table_files.latex, texts)))


def drawings(topic: Topic, scope: Scope) -> Iterator[Drawing]:
    """Yield the plots of a topic. If data are synthetic, each plot says so."""
    for drawing in topic.drawings(scope):
        if scope.synthetic:
            title = f"{drawing.title}, {SYNTHETIC}"
            drawing = replace(drawing, draw=partial(_marked, drawing.draw), title=title)
        yield drawing


def _marked(draw: Callable[[Theme], Plot], theme: Theme) -> Plot:
    figure = draw(theme)
    figure.text(0.99, 0.015, SYNTHETIC, ha="right", fontsize=8, color=theme.muted)
    return figure


def write_plots(scope: Scope, folder: Path) -> None:
    """Write every plot of one benchmark into `folder`, as SVG and PNG. A plot without a measured value says so."""
    for topic in TOPICS:
        for drawing in drawings(topic, scope):
            if drawing.in_files:
                save(drawing.draw(LIGHT), folder / drawing.name)
