"""Beside others: published and imported results next to ours, and what is doubtful about any of them."""

from collections.abc import Iterator

import pandas as pd

from throughline.report.analysis.beside import Beside
from throughline.report.numbers import reading, span
from throughline.report.render import markup
from throughline.report.render.tables import Table
from throughline.report.topics import LOSS, Finding, Scope, Topic

COLUMNS = ["origin", "source", "place", "framework", "topology", "precision", "batch_size_per_device",
           "samples_per_s", "their_samples_per_s", "ratio", "ratio_at_least", "ratio_at_most", "differs",
           "doubts"]  # fmt: skip


def frame(scope: Scope) -> pd.DataFrame | None:
    """Every like row of others, with our median over theirs; None where there is none."""
    rows = [_record(one) for one in scope.beside]
    return pd.DataFrame(rows, columns=COLUMNS) if rows else None


def _record(one: Beside) -> list[object]:
    other, ours = one.other, one.row.cell.median_speed if one.row.cell else None
    who = [other.origin, *(markup.spreadsheet(text or "") for text in (other.source, other.place))]
    which = [one.row.framework, str(one.row.topology), one.group.precision, other.batch_per_device]
    said = [markup.spreadsheet("; ".join(texts)) for texts in (one.differs, one.doubts)]
    return [*who, *which, ours, one.samples_per_s, one.ratio, *one.range, *said]


def table(scope: Scope) -> Table:
    """The same rows as the page shows them."""
    header = [
        "ours",
        "theirs",
        "ours against theirs, per second",
        "ratio",
        "range of the ratio",
        "what differs",
        "doubtful",
    ]
    return header, [_row(one) for one in scope.beside]


def _row(one: Beside) -> list[str]:
    group, row, other = one.group, one.row, one.other
    ours = f"{row.shown} {row.topology}, {group.precision}, {group.batch_name}"
    theirs = f"{other.origin}: {other.source}, {other.framework}"
    median = row.cell.median_speed if row.cell else None
    speeds = f"{reading(median)} against {reading(one.samples_per_s)}"
    said = "; ".join(one.differs), "; ".join(one.doubts)
    return [ours, theirs, speeds, f"{one.ratio:.3f}", span(one.range, 3), *said]


INTRO = (
    "Results of others for the same model, sequence, precision, batch and number of devices of one kind. The range "
    "goes from our slowest repeat over the most that their printed digits allow to our fastest over the least."
)
BESIDE = Topic("beside", "Beside others", INTRO, frame=frame, table=table)


def doubtful(scope: Scope) -> Table:
    """A row per doubt about our rows and imported ones; published ones stand beside ours."""
    return ["rule", "row", "how it follows"], [
        [one.rule, f"{one.row.origin}: {one.row.source}, {one.row.framework}, {one.row.devices} devices", one.text]
        for one in scope.doubts
    ]


def findings(scope: Scope) -> Iterator[Finding]:
    """How many rows are doubtful."""
    if scope.doubts:
        count = len({id(one.row) for one in scope.doubts})
        yield Finding(f"{count} of the rows cannot be as they stand: see Doubtful figures.", LOSS)


RULES = (
    "Rules that hold for every row, whoever has measured it; docs/compare.md lists them. The printed digits of a "
    "figure say how exactly it is checked."
)
DOUBTFUL = Topic("doubtful", "Doubtful figures", RULES, table=doubtful, findings=findings)
