"""Show published and imported results beside ours, and what is doubtful about any of them."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial

import pandas as pd
from matplotlib.figure import Figure

from throughline.numbers import reading, span
from throughline.report.analysis.beside import Beside
from throughline.report.analysis.cells import Group
from throughline.report.analysis.plausibility import Doubt
from throughline.report.analysis.values import Point, Series, Value
from throughline.report.render import markup
from throughline.report.render.plots import Theme
from throughline.report.render.tables import Table
from throughline.report.topic import LOSS, Drawing, Finding, Scope, Topic
from throughline.report.topics import throughput

COLUMNS = ["origin", "source", "place", "framework", "topology", "precision", "batch_size_per_device",
           "samples_per_s", "their_samples_per_s", "ratio", "ratio_at_least", "ratio_at_most", "differs",
           "doubts"]  # fmt: skip
NO_BREAK = "\N{NO-BREAK SPACE}"
LINES = 6
"""The most lines in a plot, including ours: as many as there are colours."""


def frame(scope: Scope) -> pd.DataFrame | None:
    """Return every row of others that is like one of ours, with the ratio of the two; None if there is none."""
    rows = [_record(one) for one in scope.beside]
    return pd.DataFrame(rows, columns=COLUMNS) if rows else None


def _record(one: Beside) -> list[object]:
    other, ours = one.other, one.row.cell.median_speed if one.row.cell else None
    who = [other.origin, *(markup.spreadsheet(text or "") for text in (other.source, other.place))]
    which = [one.row.framework, str(one.row.topology), one.group.precision, other.batch_per_device]
    said = [markup.spreadsheet("; ".join(texts)) for texts in (one.differs, one.doubts)]
    return [*who, *which, ours, one.samples_per_s, one.ratio, *one.range, *said]


def table(scope: Scope) -> Table:
    """Return the same rows as the page shows them. Topologies with the same differences to ours share a row."""
    alike: defaultdict[tuple[str, ...], list[Beside]] = defaultdict(list)
    for one in scope.beside:
        group, other = one.group, one.other
        ours = f"{one.row.shown}, {group.precision}, {group.batch_name}"
        theirs = f"{other.origin}: {other.source}, {other.framework}"
        alike[ours, theirs, "; ".join(one.differs)].append(one)
    rows = []
    for (ours, theirs, differs), every in alike.items():
        doubts = [f"{one.row.topology}: {'; '.join(one.doubts)}" for one in every if one.doubts]
        rows.append([ours, theirs, "\n".join(map(_ratio, every)), differs, "\n".join(doubts)])
    return ["ours", "theirs", "our speed over theirs, with its range", "theirs differ in", "doubtful"], rows


def _ratio(one: Beside) -> str:
    ours = reading(one.row.cell.median_speed if one.row.cell else None)
    speeds = f"{ours} / {reading(one.samples_per_s)}"
    text = f"{one.row.topology}: {speeds} = {one.ratio:.3f} ({span(one.range, 3)})"
    return text.replace(" ", NO_BREAK)


def drawings(scope: Scope) -> Iterator[Drawing]:
    """Draw the throughput of every group with the longest series of each other source."""
    for group in scope.groups:
        found: defaultdict[tuple[str, ...], list[Beside]] = defaultdict(list)
        for one in scope.beside:
            if one.group is group:
                other = one.other
                found[other.source, other.framework, other.software or "", other.options].append(one)
        longest = {rows[0].other.source: _series(rows) for rows in sorted(found.values(), key=len)}
        several = [one for one in longest.values() if len(one.points) > 1]
        series = sorted(several, key=lambda one: -len(one.points))[: max(1, LINES - len(group.frameworks))]
        if series:
            heading = f"{group.benchmark}: beside others, {group.precision}, {group.batch_text}"
            words = "; ".join(f"{one.name}: {len(one.points)} points" for one in series)
            draw = partial(_draw, group, series)
            yield Drawing(f"{group.name}_beside", heading, draw, words)


def _series(rows: Sequence[Beside]) -> Series:
    """Return one line of others. If there are several rows on a topology, the first one counts."""
    first = {one.row.topology: one for one in reversed(rows)}
    points = [
        Point(topology, Value(one.other.source, one.samples_per_s, source=one.other.origin))
        for topology, one in sorted(first.items(), key=lambda item: (item[0].world, item[0]))
    ]
    return Series(rows[0].other.framework.partition(" (")[0], tuple(points))


def _draw(group: Group, series: Sequence[Series], theme: Theme) -> Figure:
    return throughput.throughput(group, theme, series)


INTRO = (
    "Results of others for the same model, sequence, precision and batch, on as many devices of the same kind. The "
    "ratio is our median divided by their figure. Its range is that of our slowest and our fastest repeat, divided by "
    "the largest and the smallest value that their printed digits allow."
)
BESIDE = Topic("beside", "Beside others", INTRO, order=190, frame=frame, table=table, drawings=drawings)


def _own(scope: Scope) -> list[Doubt]:
    return [one for one in scope.doubts if one.row.origin == "measured"]


def doubtful(scope: Scope) -> Table:
    """Return a row per doubt about our rows. Doubts about other rows stand beside those rows."""
    return ["rule", "row", "how it follows"], [
        [one.rule, f"{one.row.source}, {one.row.framework}, {_devices(one.row.devices or 0)}", one.text]
        for one in _own(scope)
    ]


def _devices(count: int) -> str:
    return f"{count} device{'' if count == 1 else 's'}"


def findings(scope: Scope) -> Iterator[Finding]:
    """Say how many rows are doubtful."""
    count = len({one.row.model_dump_json() for one in _own(scope)})
    if count:
        rows = "1 row of this benchmark has" if count == 1 else f"{count} rows of this benchmark have"
        yield Finding(f"{rows} doubtful figures: see Doubtful figures.", LOSS)


RULES = (
    "The same rules check every row, whoever measured it; docs/compare.md lists them. A figure with more printed "
    "digits is checked more exactly."
)
DOUBTFUL = Topic("doubtful", "Doubtful figures", RULES, order=200, table=doubtful, findings=findings)
