"""Show published and imported results beside ours."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from throughline.comparables.similar import SimilarResult
from throughline.numbers import reading, span
from throughline.records import Result
from throughline.report.analysis.cells import Cell
from throughline.report.render import tables, throughput_plots
from throughline.report.render.plots import Point, Series
from throughline.report.render.tables import Table, texts
from throughline.report.topic import Drawing, Scope, Topic

NO_BREAK = "\N{NO-BREAK SPACE}"
LINES = 6
"""The most lines in a plot, including ours: as many as there are colours."""


def csv(scope: Scope) -> Table | None:
    """Return every row of others that is like one of ours, with the ratio of the two; None if there is none."""
    return tables.records([_record(scope, *pair) for pair in scope.similar]) if scope.similar else None


def _record(scope: Scope, cell: Cell, similar: SimilarResult) -> dict[str, Any]:
    other = similar.other
    return {
        "origin": other.origin,
        "source": other.source,
        "place": other.place or "",
        "framework": cell.framework,
        "topology": str(cell.topology),
        "precision": cell.group.precision,
        "batch_size_per_device": other.batch,
        "samples_per_s": cell.median,
        "their_samples_per_s": similar.samples_per_s,
        "ratio": similar.ratio,
        "ratio_at_least": similar.range[0],
        "ratio_at_most": similar.range[1],
        "differs": "; ".join(similar.differs),
        "implausible": _doubts(scope, other),
    }


def _doubts(scope: Scope, other: Result) -> str:
    """Return what is implausible about a row of others."""
    return other.implausible or "; ".join(doubt.text for doubt in scope.doubts if doubt.row is other)


def table(scope: Scope) -> Table:
    """Return the same rows as the page shows them. Topologies with the same differences to ours share a row."""
    alike: defaultdict[tuple[str, ...], list[tuple[Cell, SimilarResult]]] = defaultdict(list)
    for cell, similar in scope.similar:
        other, group = similar.other, cell.group
        ours = f"{cell.shown}, {group.precision}, {group.batch_name}"
        theirs = f"{other.origin}: {other.source}, {other.framework}"
        alike[ours, theirs, "; ".join(similar.differs)].append((cell, similar))
    rows = []
    for (ours, theirs, differs), results in alike.items():
        doubts = [(cell.topology, _doubts(scope, similar.other)) for cell, similar in results]
        ratios = "\n".join(_ratio(cell, similar) for cell, similar in results)
        rows.append([ours, theirs, ratios, differs, "\n".join(f"{name}: {text}" for name, text in doubts if text)])
    return texts(["ours", "theirs", "our speed over theirs, with its range", "theirs differ in", "implausible"], rows)


def _ratio(cell: Cell, similar: SimilarResult) -> str:
    speeds = f"{reading(cell.median)} / {reading(similar.samples_per_s)}"
    text = f"{cell.topology}: {speeds} = {similar.ratio:.3f} ({span(similar.range, 3)})"
    return text.replace(" ", NO_BREAK)


def drawings(scope: Scope) -> Iterator[Drawing]:
    """Draw the throughput of every group with the longest series of each other source."""
    for group in scope.groups:
        sources: defaultdict[tuple[str, ...], list[tuple[Cell, SimilarResult]]] = defaultdict(list)
        for cell, similar in scope.similar:
            if cell.group is group:
                other = similar.other
                sources[other.source, other.framework, other.software or "", other.options].append((cell, similar))
        longest = {results[0][1].other.source: _series(results) for results in sorted(sources.values(), key=len)}
        several = [series for series in longest.values() if len(series.points) > 1]
        lines = sorted(several, key=lambda series: -len(series.points))[: max(1, LINES - len(group.frameworks))]
        if lines:
            heading = f"{group.benchmark}: beside others, {group.precision}, {group.batch_text}"
            words = "; ".join(f"{series.name}: {len(series.points)} points" for series in lines)
            draw = partial(throughput_plots.throughput, group, elsewhere=lines)
            yield Drawing(f"{group.name}_beside", heading, draw, words)


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
TOPIC = Topic("beside", "Beside others", INTRO, order=190, csv=csv, table=table, drawings=drawings)
