"""Show published and imported results beside ours, and what is implausible about our own rows."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

from throughline.comparables.plausibility import SPEEDUP, Doubt
from throughline.comparables.published import SimilarResult
from throughline.grouping import grouped
from throughline.numbers import counted, reading, span
from throughline.records import Result
from throughline.report.analysis.advice import Note
from throughline.report.analysis.cells import Cell, Group
from throughline.report.render.plots import Point, Series
from throughline.report.render.tables import CSV, PAGE, Column, Table, ends_in_csv, texts
from throughline.report.topic import Drawing, Scope, Topic
from throughline.report.topics import throughput

SERIES = attrgetter("source", "framework", "software", "options")
"""Returns what all results in one line of a plot have in common."""
LINES = 6
"""The most lines in a plot, including ours: as many as there are colours."""


def table(scope: Scope) -> Table | None:
    """Return every row of others that is like one of ours, with the ratio of the two; None if there is none."""

    def of(name: str, read: Callable[[Cell, SimilarResult], Any], heading: str = "", **fields: Any) -> Column:
        return Column(name, heading, read=lambda pair: read(*pair), forms=(PAGE, CSV) if heading else (CSV,), **fields)

    columns = (
        Column(heading="ours", read=lambda pair: pair[0].where, forms=(PAGE,)),
        of("origin", lambda _, similar: similar.other.origin, "origin"),
        of("source", lambda _, similar: similar.other.source, "theirs"),
        of("place", lambda _, similar: similar.other.place or ""),
        of("framework", lambda cell, _: cell.framework),
        of("topology", lambda cell, _: str(cell.topology)),
        of("precision", lambda cell, _: cell.group.precision),
        of("batch_size_per_device", lambda _, similar: similar.other.batch),
        of("samples_per_s", lambda cell, _: cell.median, "our speed", show=reading),
        of("their_samples_per_s", lambda _, similar: similar.samples_per_s, "their speed", show=reading),
        of("ratio", lambda _, similar: similar.ratio, "ours over theirs", show="{:.3f}".format),
        *ends_in_csv("ratio_at_least", "ratio_at_most", lambda pair: pair[1].range),
        Column(heading="its range", read=lambda pair: span(pair[1].range, 3), forms=(PAGE,)),
        of("differs", lambda _, similar: "; ".join(similar.differs), "theirs differ in"),
        of("implausible", lambda _, similar: _doubts(scope, similar.other), "implausible"),
    )
    return Table.if_any(scope.similar, columns, forms=(PAGE, CSV))


def _doubts(scope: Scope, other: Result) -> str:
    """Return what is implausible about a row of others."""
    return other.implausible or "; ".join(doubt.text for doubt in scope.doubts if doubt.row is other)


def drawings(scope: Scope) -> Iterator[Drawing]:
    """Draw the throughput of every group with the longest series of each other source."""
    for group in scope.groups:
        here = (pair for pair in scope.similar if pair[0].group is group)
        sources = grouped(here, lambda pair: SERIES(pair[1].other))
        longest = {results[0][1].other.source: _series(results) for results in sorted(sources.values(), key=len)}
        several = [series for series in longest.values() if len(series.points) > 1]
        lines = sorted(several, key=lambda series: -len(series.points))[: max(1, LINES - len(group.frameworks))]
        if lines:
            heading = f"{group.benchmark}: beside others, {group.settings}"
            draw = partial(throughput.plot, group, elsewhere=lines)
            yield Drawing(f"{group.name}_beside", heading, draw)


def _series(results: Sequence[tuple[Cell, SimilarResult]]) -> Series:
    """Return one line of others. If there are several rows on a topology, the first one counts."""
    first = {cell.topology: similar.samples_per_s for cell, similar in reversed(results)}
    points = tuple(Point(topology, first[topology]) for topology in sorted(first, key=lambda t: (t.world, t)))
    other = results[0][1].other
    return Series(other.framework.partition(" (")[0], points, other.origin)


INTRO = (
    "Results of others for the same model, sequence, precision and batch, on as many devices of the same kind. The "
    "ratio is our median divided by their figure. Its range is that of our slowest and our fastest repeat, divided by "
    "the largest and the smallest value that their printed digits allow."
)
BESIDE = Topic("beside", "Beside others", INTRO, order=190, table=table, drawings=drawings)


def _about_ours(scope: Scope) -> list[tuple[Doubt, str]]:
    """Return the doubts about our rows, each with the framework and the number of its devices."""
    ours = [doubt for doubt in scope.doubts if doubt.row.origin == "measured"]
    return [(doubt, f"{doubt.row.framework}, {counted(doubt.row.devices or 0, 'device')}") for doubt in ours]


def implausible(scope: Scope) -> Table | None:
    """Return a line for each doubt about our rows. Doubts about rows of others stand beside those rows."""
    return texts([
        {"rule": doubt.rule, "row": f"{doubt.row.source}, {where}", "how it follows": doubt.text}
        for doubt, where in _about_ours(scope)
    ])  # fmt: skip


def notes(scope: Scope, group: Group) -> Iterator[Note]:
    """Yield a warning for each rule that one of the group's rows breaks. A cell's own warnings have its speedup."""
    yield from dict.fromkeys(
        Note(where, f"implausible: {doubt.rule} (see Implausible figures)", "warning")
        for doubt, where in _about_ours(scope)
        if doubt.row.source == f"{group.benchmark} {group.name}" and doubt.rule != SPEEDUP
    )


RULES = (
    "Rules check every row, whoever measured it; docs/explanation/method-implausible.md lists them. A figure with more "
    "printed digits is checked more exactly."
)
IMPLAUSIBLE = Topic("implausible", "Implausible figures", RULES, order=200, table=implausible, notes=notes)
