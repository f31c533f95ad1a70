"""A topic of the report: one thing that it tells of a benchmark, in every form that it is told in.

What a topic computes stands in analysis/; its file in render/topics/ says which of these forms it has. Page, tables
and plots loop over the topics and know none by name.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from throughline.records import MaxBatch, Result
from throughline.report.analysis import beside, comparisons
from throughline.report.analysis.beside import Beside
from throughline.report.analysis.cells import Group, Note
from throughline.report.analysis.plausibility import Doubt
from throughline.report.render.plots import Theme
from throughline.report.render.tables import Grid, Sheet, Table

MADE_UP = "made-up data"
"""What tables and plots say of runs that trained on no real data."""

ABOUT, LOSS, GAIN = range(3)
"""The order of findings: what a benchmark is, where nothing is gained or what limits, and how things compare."""


@dataclass(frozen=True)
class Scope:
    """What a topic tells of: a benchmark's groups; `everything` that it may be compared with; its checks; and what was
    `imported` from logs of others."""

    groups: Sequence[Group]
    everything: Sequence[Group] = ()
    largest: Sequence[MaxBatch] = ()
    checks: Sequence[Any] = ()
    imported: Sequence[Result] = ()

    @property
    def benchmark(self) -> str:
        return self.groups[0].benchmark if self.groups else ""

    @property
    def made_up(self) -> bool:
        """Whether every table and plot has to say that data are made up."""
        return any(group.made_up for group in self.groups)

    @property
    def marks(self) -> list[str]:
        """The same as lines below a table."""
        return [MADE_UP] if self.made_up else []

    @cached_property
    def pairs(self) -> list[comparisons.Pair]:
        """All that is compared, with its verdicts."""
        return comparisons.judge(self.groups, self.everything)

    @cached_property
    def beside(self) -> list[Beside]:
        """Like results of others."""
        return list(beside.beside(self.groups, self.imported, self.doubts))

    @cached_property
    def doubts(self) -> list[Doubt]:
        """What is doubtful about the benchmark's own rows and the imported ones."""
        return beside.doubts_of(self.groups, self.imported)


@dataclass(frozen=True)
class Drawing:
    """A plot: `name` is its file's, `draw` draws it in a theme, `words` say what it shows.

    It stands beside the table of `group`, or in its topic's own section; a file or the page may do without it.
    """

    name: str
    title: str
    draw: Callable[[Theme], Figure]
    words: str = ""
    group: Group | None = None
    in_files: bool = True
    on_page: bool = True


@dataclass(frozen=True)
class Finding:
    """A sentence beside the headline."""

    text: str
    order: int = GAIN

    @property
    def loss(self) -> bool:
        return self.order == LOSS


@dataclass(frozen=True)
class Topic:
    """The forms of one topic; `name` is its files' and its place on the page, `intro` stands below its title.

    grid: figures by cell, on the page and in files; frame: the CSV of a topic without a grid; sheets: its tables in
    Markdown and LaTeX, where they are not the grid's; table: its rows on the page, where they are not by cell;
    drawings, remarks (below its table), notes (below a group's table), findings (beside the headline).
    """

    name: str
    title: str
    intro: str = ""
    grid: Callable[[Scope], Grid | None] = field(default=lambda scope: None)
    frame: Callable[[Scope], pd.DataFrame | None] = field(default=lambda scope: None)
    sheets: Callable[[Scope], Sequence[Sheet]] = field(default=lambda scope: ())
    table: Callable[[Scope], Table | None] = field(default=lambda scope: None)
    drawings: Callable[[Scope], Iterable[Drawing]] = field(default=lambda scope: ())
    remarks: Callable[[Scope], Iterable[str]] = field(default=lambda scope: ())
    notes: Callable[[Scope, Group], Iterable[Note]] = field(default=lambda scope, group: ())
    findings: Callable[[Scope], Iterable[Finding]] = field(default=lambda scope: ())
