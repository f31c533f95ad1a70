"""results/acceptance.json as its page and tables show it: who is slow, and beside whom. links.py has the links."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from throughline.acceptance import verdict
from throughline.files import write_text
from throughline.numbers import percent, reading
from throughline.records.acceptance import Acceptance, ExpectedFigure, Finding, FleetFigure, Standing
from throughline.report.render import links, table_files, tables
from throughline.report.render.tables import CSV, FORMS, NOT_KNOWN, PAGE, Column, Entry, Line, Table
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
    Column("place", "place", names=True),
    Column("figure", "figure"),
    Column("size", "size", "rows, elements or bytes", whole=True),
    Column("unit", "unit"),
    Column("median", "median"),
    Column("lowest_repeat", forms=(CSV,)),
    Column("highest_repeat", forms=(CSV,)),
    Column("repeats", "repeats"),
    Column("distance_from_others", "distance", "from the others"),
    Column("others_lowest", forms=(CSV,)),
    Column("others_highest", forms=(CSV,)),
    Column(heading="range of the others", forms=(PAGE,)),
    Column("p", forms=(CSV,)),
    Column("p_holm", forms=(CSV,)),
    Column("limit_of_hardware", "at most", "of the hardware"),
    Column("slow", "verdict"),
)


def standings(acceptance: Acceptance) -> Table:
    """Return a line for each place in each figure."""
    lines = [Line(_entries(figure, standing)) for figure in acceptance.figures for standing in figure.standings]
    return Table(COLUMNS, lines, forms=FORMS)


def _entries(figure: FleetFigure, standing: Standing) -> list[Entry]:
    low, high = standing.others_low, standing.others_high
    between = NOT_KNOWN if low is None or high is None else f"{_distance(low)} to {_distance(high)}"
    verdict = f"because of {standing.because}" if standing.verdict == "explained" else standing.verdict
    return [
        Entry.words(str(standing.place)),
        Entry.words(figure.words),
        Entry.of(figure.size, lambda size: f"{size:,}", "the figure has no size"),
        Entry.words(figure.unit),
        Entry.of(standing.median, reading),
        Entry(value=standing.low),
        Entry(value=standing.high),
        Entry(str(len(standing.repeats)), len(standing.repeats)),
        Entry.of(standing.distance, _distance, "it has no peers"),
        Entry(value=low),
        Entry(value=high),
        Entry.words(between),
        Entry(value=standing.p),
        Entry(value=standing.p_holm),
        Entry.of(figure.limit, reading, "no source says what it can reach"),
        Entry.words(verdict, chip="slower" if standing.slow else ""),
    ]


def _distance(share: float) -> str:
    return f"{100 * share:+.1f} %"


def sections(acceptance: Acceptance) -> Iterator[dict[str, Any]]:
    """Yield the acceptance as the page prints it: the verdict, what is expected, the links, and all places."""
    findings = tables.texts(["what is slow", "what differs there"], [_finding(one) for one in acceptance.findings])
    yield _section(
        Topic("verdict", "The verdict"), findings if acceptance.findings else None, [*verdict.notes(acceptance)]
    )
    if acceptance.expected:
        table = tables.texts(["expected", "source", "verdict"], [_expected(one) for one in acceptance.expected])
        yield _section(Topic("expected", "What is expected"), table)
    if acceptance.published:
        rows: list[list[str | Entry]] = [
            [one.sentence, one.source, "not measured" if one.share is None else percent(one.share, 1)]
            for one in acceptance.published
        ]
        table = tables.texts(["published", "source", "reached"], rows)
        yield _section(Topic("published", "Beside what others have published", PUBLISHED), table)
    if of_links := links.section(acceptance):
        yield of_links
    tolerance = f"tolerance: {percent(acceptance.tolerance, 1)} (accept.tolerance)"
    yield _section(Topic("places", "All places", INTRO), standings(acceptance).in_form(PAGE), [tolerance])


def _section(topic: Topic, table: Table | None, remarks: list[str] | None = None) -> dict[str, Any]:
    return {"topic": topic, "table": table, "plots": [], "remarks": remarks or []}


def _expected(figure: ExpectedFigure) -> list[str | Entry]:
    words, chip = ("short", "slower") if figure.short else ("reached", "faster")
    if figure.reached is None:
        words, chip = "not measured", "inconclusive"
    return [figure.sentence, figure.source, Entry.words(words, chip)]


def _finding(finding: Finding) -> list[str | Entry]:
    facts = [f"{fact.fact}: {fact.here} here, {fact.others} in the others" for fact in finding.facts]
    nothing = "nothing that was observed" if finding.slow else ""  # what was refused has no peers
    return [finding.sentence, "\n".join(facts) or nothing]


def write(acceptance: Acceptance, places: Path, pairs: Path) -> None:
    """Write all places, and all pairs at all message sizes, as CSV with unrounded figures."""
    table = standings(acceptance).in_form(CSV)
    assert table
    for output, frame in ((places, table_files.csv(table)), (pairs, links.pairs(acceptance))):
        write_text(output, frame.to_csv(index=False, lineterminator="\n"))
