"""Show published and imported results beside ours."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial

from throughline.comparables.similar import SimilarResult
from throughline.numbers import reading, span
from throughline.report.render import tables, throughput_plots
from throughline.report.render.plots import Point, Series
from throughline.report.render.tables import Table, texts
from throughline.report.topic import Drawing, Scope, Topic

COLUMNS = ["origin", "source", "place", "framework", "topology", "precision", "batch_size_per_device",
           "samples_per_s", "their_samples_per_s", "ratio", "ratio_at_least", "ratio_at_most", "differs",
           "implausible"]  # fmt: skip
NO_BREAK = "\N{NO-BREAK SPACE}"
LINES = 6
"""The most lines in a plot, including ours: as many as there are colours."""


def csv(scope: Scope) -> Table | None:
    """Return every row of others that is like one of ours, with the ratio of the two; None if there is none."""
    rows = [dict(zip(COLUMNS, _record(similar), strict=True)) for similar in scope.similar]
    return tables.records(rows) if rows else None


def _record(similar: SimilarResult) -> list[float | str | None]:
    ours, other = similar.ours, similar.other
    who = [other.origin, other.source or "", other.place or ""]
    which = [ours.result.framework, str(ours.topology), ours.result.precision, other.batch]
    figures = [ours.cell.median_speed, similar.samples_per_s, similar.ratio, *similar.range]
    return [*who, *which, *figures, "; ".join(similar.differs), "; ".join(similar.doubts)]


def table(scope: Scope) -> Table:
    """Return the same rows as the page shows them. Topologies with the same differences to ours share a row."""
    alike: defaultdict[tuple[str, ...], list[SimilarResult]] = defaultdict(list)
    for similar in scope.similar:
        cell, other = similar.ours, similar.other
        ours = f"{cell.shown}, {cell.result.precision}, {cell.batch}"
        theirs = f"{other.origin}: {other.source}, {other.framework}"
        alike[ours, theirs, "; ".join(similar.differs)].append(similar)
    rows = []
    for (ours, theirs, differs), results in alike.items():
        doubts = [f"{result.ours.topology}: {'; '.join(result.doubts)}" for result in results if result.doubts]
        rows.append([ours, theirs, "\n".join(map(_ratio, results)), differs, "\n".join(doubts)])
    return texts(["ours", "theirs", "our speed over theirs, with its range", "theirs differ in", "implausible"], rows)


def _ratio(similar: SimilarResult) -> str:
    speeds = f"{reading(similar.ours.cell.median_speed)} / {reading(similar.samples_per_s)}"
    text = f"{similar.ours.topology}: {speeds} = {similar.ratio:.3f} ({span(similar.range, 3)})"
    return text.replace(" ", NO_BREAK)


def drawings(scope: Scope) -> Iterator[Drawing]:
    """Draw the throughput of every group with the longest series of each other source."""
    for group in scope.groups:
        tables: defaultdict[tuple[str, ...], list[SimilarResult]] = defaultdict(list)
        for similar in scope.similar:
            if similar.ours.table == group.name:
                other = similar.other
                tables[other.source, other.framework, other.software or "", other.options].append(similar)
        longest = {results[0].other.source: _series(results) for results in sorted(tables.values(), key=len)}
        several = [series for series in longest.values() if len(series.points) > 1]
        lines = sorted(several, key=lambda series: -len(series.points))[: max(1, LINES - len(group.frameworks))]
        if lines:
            heading = f"{group.benchmark}: beside others, {group.precision}, {group.batch_text}"
            words = "; ".join(f"{series.name}: {len(series.points)} points" for series in lines)
            yield Drawing(
                f"{group.name}_beside", heading, partial(throughput_plots.throughput, group, elsewhere=lines), words
            )


def _series(results: Sequence[SimilarResult]) -> Series:
    """Return one line of others. If there are several rows on a topology, the first one counts."""
    first = {result.ours.topology: result for result in reversed(results)}
    points = [
        Point(topology, result.samples_per_s)
        for topology, result in sorted(first.items(), key=lambda item: (item[0].world, item[0]))
    ]
    return Series(results[0].other.framework.partition(" (")[0], tuple(points), results[0].other.origin)


INTRO = (
    "Results of others for the same model, sequence, precision and batch, on as many devices of the same kind. The "
    "ratio is our median divided by their figure. Its range is that of our slowest and our fastest repeat, divided by "
    "the largest and the smallest value that their printed digits allow."
)
TOPIC = Topic("beside", "Beside others", INTRO, order=190, csv=csv, table=table, drawings=drawings)
