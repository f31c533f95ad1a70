"""results/acceptance.json as its page and tables show it: who is slow, and beside whom. links.py has the links."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import pandas as pd

from throughline.acceptance import verdict
from throughline.files import write_text
from throughline.numbers import percent, reading
from throughline.records.acceptance import (
    Acceptance,
    ExpectedFigure,
    Finding,
    FleetFigure,
    PlaceVerdict,
    Standing,
    name_of,
)
from throughline.report.render import links, tables
from throughline.report.render.tables import NOT_KNOWN, Entry, Table
from throughline.report.topic import Topic

INTRO = (
    "Every device, node and link beside its peers: the median of its repeats, its distance from the median of the "
    "others, and the range of these others. A place is called slow if it is slower than its peers by more than the "
    "tolerance, and stands out among all places and figures."
)
PUBLISHED = (
    "Published figures are often the best of many tries, so a sound place may reach less. The verdict does not depend "
    "on them."
)
COLUMNS = (
    "place", "figure", "size", "unit", "median", "lowest_repeat", "highest_repeat", "repeats", "distance_from_others",
    "others_lowest", "others_highest", "p", "p_holm", "limit_of_hardware", "slow",
)  # fmt: skip
ORDER = get_args(PlaceVerdict)
"""The order of places on the page: those that are slow or in doubt stand first."""


def standings(acceptance: Acceptance) -> pd.DataFrame:
    """Return a line for each place in each figure."""
    rows = [
        (
            str(standing.place),
            figure.words,
            figure.size,
            figure.unit,
            standing.median,
            standing.low,
            standing.high,
            len(standing.repeats),
            standing.distance,
            standing.others_low,
            standing.others_high,
            standing.p,
            standing.p_holm,
            figure.limit,
            _verdict(standing),
        )
        for figure in acceptance.figures
        for standing in figure.standings
    ]
    return pd.DataFrame(rows, columns=COLUMNS).astype({"size": "Int64"})


def _verdict(standing: Standing) -> str:
    return f"because of {standing.because}" if standing.verdict == "explained" else standing.verdict


def sections(acceptance: Acceptance) -> Iterator[dict[str, Any]]:
    """Yield the acceptance as the page prints it: the verdict, what is expected, the links, and all places."""
    headings = ["where", "what is slower", "what is the cause", "what differs there"]
    findings = tables.texts(headings, [_finding(finding) for finding in acceptance.findings])
    notes = list(verdict.notes(acceptance))
    yield _section(Topic("verdict", "The verdict"), findings if acceptance.findings else None, notes)
    if acceptance.expected:
        yield _section(Topic("expected", "What is expected"), _wanted(acceptance.expected))
    if acceptance.published:
        topic = Topic("published", "Beside what others have published", PUBLISHED)
        yield _section(topic, _wanted(acceptance.published, are_promised=False))
    if of_links := links.section(acceptance):
        yield of_links
    tolerance = f"tolerance: {percent(acceptance.tolerance, 1)} (accept.tolerance)"
    yield _section(Topic("places", "All places", INTRO), _places(acceptance), [tolerance])


def _section(topic: Topic, table: Table | None, remarks: Sequence[str] = ()) -> dict[str, Any]:
    return {"topic": topic, "table": table, "plots": [], "remarks": list(remarks)}


def _finding(finding: Finding) -> list[str | Entry]:
    slow = []
    for figure in finding.slow:
        where = "" if figure.place == finding.place else f" ({figure.place})"
        others = f"{_distance(figure.others_low)} to {_distance(figure.others_high)}"
        slow.append(f"{figure.words}{where}: {_distance(figure.distance)} (the others: {others})")
    facts = [f"{fact.fact}: {fact.here} here, {fact.others} in the others" for fact in finding.facts]
    nothing = "nothing that was observed" if finding.slow else ""  # what was refused has no peers
    return [str(finding.place), "\n".join(slow) or finding.sentence, finding.because, "\n".join(facts) or nothing]


def _wanted(figures: Sequence[ExpectedFigure], are_promised: bool = True) -> Table:
    """Return a line for each figure that is expected or published, beside the slowest place."""
    rows: list[list[str | Entry]] = []
    for figure in figures:
        word, chip = ("short", "slower") if figure.short else ("reached", "faster")
        if figure.reached is None:
            word, chip = "not measured", "inconclusive"
        size = f" ({figure.size:,})" if figure.size else ""
        rows.append(
            [
                f"{name_of(figure.what, figure.figure)}{size}, {figure.at}",
                *([Entry.words(word, chip)] if are_promised else []),
                f"{reading(figure.expected)} {figure.unit}",
                f"{reading(figure.reached)} {figure.unit}" if figure.reached else NOT_KNOWN,
                figure.place or NOT_KNOWN,
                percent(figure.share, 1) or NOT_KNOWN,
                figure.source,
            ]
        )
    verdicts = ["verdict"] if are_promised else []
    wanted = "expected" if are_promised else "published"
    return tables.texts(["figure", *verdicts, wanted, "slowest place", "where", "share", "source"], rows)


def _places(acceptance: Acceptance) -> Table:
    """Return a line for each place in each figure, those that are slow or in doubt first."""
    limits = ["limit"] if any(figure.limit for figure in acceptance.figures) else []
    headings = ["place", "figure", "verdict", "distance from the others", "range of the others", "median", "unit"]
    headings += ["size (rows, elements or bytes)", "repeats", *limits]
    lines = [(figure, standing) for figure in acceptance.figures for standing in figure.standings]
    lines.sort(key=lambda line: ORDER.index(line[1].verdict))
    rows = [_place(figure, standing)[: len(headings)] for figure, standing in lines]
    return tables.texts(headings, rows)


def _place(figure: FleetFigure, standing: Standing) -> list[str | Entry]:
    low, high = standing.others_low, standing.others_high
    return [
        str(standing.place),
        figure.words,
        Entry.words(_verdict(standing), chip="slower" if standing.slow else ""),
        Entry.of(standing.distance, _distance, "it has no peers"),
        NOT_KNOWN if low is None or high is None else f"{_distance(low)} to {_distance(high)}",
        reading(standing.median),
        figure.unit,
        Entry.of(figure.size, lambda size: f"{size:,}", "the figure has no size"),
        str(len(standing.repeats)),
        Entry.of(figure.limit, reading, "no source says what the hardware can reach"),
    ]


def _distance(share: float) -> str:
    return f"{100 * share:+.1f} %"


def write(acceptance: Acceptance, places: Path, pairs: Path) -> None:
    """Write all places, and all pairs at all message sizes, as CSV with unrounded figures."""
    for output, frame in ((places, standings(acceptance)), (pairs, links.pairs(acceptance))):
        write_text(output, frame.to_csv(index=False, lineterminator="\n"))
