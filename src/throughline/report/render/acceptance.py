"""results/acceptance.json as its page and tables show it: who is slow, and beside whom. links.py has the links."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from throughline.files import write_text
from throughline.numbers import percent, reading
from throughline.records.acceptance import Acceptance, FigureEntry, Finding, StandingEntry, unsure
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
    lines = [
        Line(_entries(figure, one, verdict))
        for figure in acceptance.figures
        for one, verdict in zip(figure.standings, _verdicts(acceptance, figure), strict=True)
    ]
    return Table(COLUMNS, lines, forms=FORMS)


def _verdicts(acceptance: Acceptance, figure: FigureEntry) -> Iterator[str]:
    """Yield a word for each place. If a place is far behind because of one that a finding names, it says which one."""
    behind = {one.place.words for one in unsure(figure, [], acceptance.tolerance)}
    for one in figure.standings:
        because = [finding.place.words for finding in acceptance.findings if finding.explains(one.place)]
        if one.slow:
            yield "slow"
        elif one.place.words in behind:
            yield f"because of {because[0]}" if because else "not certain"
        else:
            yield "as its peers" if figure.judged else "not judged"


def _entries(figure: FigureEntry, one: StandingEntry, verdict: str) -> list[Entry]:
    ends = (one.others_low, one.others_high)
    between = NOT_KNOWN if None in ends else f"{_distance(one.others_low)} to {_distance(one.others_high)}"
    return [
        Entry.words(one.place.words),
        Entry.words(figure.words),
        Entry.of(figure.size, lambda size: f"{size:,}", "the figure has no size"),
        Entry.words(figure.unit),
        Entry.of(one.median, reading),
        Entry(value=one.low),
        Entry(value=one.high),
        Entry(str(len(one.repeats)), len(one.repeats)),
        Entry.of(one.distance, _distance, "it has no peers"),
        Entry(value=one.others_low),
        Entry(value=one.others_high),
        Entry.words(between),
        Entry(value=one.p),
        Entry(value=one.p_holm),
        Entry.of(figure.limit, reading, "no source says what it can reach"),
        Entry.words(verdict, chip="slower" if one.slow else ""),
    ]


def _distance(share: float | None) -> str:
    return NOT_KNOWN if share is None else f"{100 * share:+.1f} %"


def sections(acceptance: Acceptance) -> Iterator[dict[str, Any]]:
    """Yield the acceptance as the page prints it: the verdict, what is expected, the links, and all places."""
    found = tables.texts(["what is slow", "what differs there"], [_finding(one) for one in acceptance.findings])
    yield {
        "topic": Topic("verdict", "The verdict"),
        "table": found if acceptance.findings else None,
        "plots": [],
        "remarks": [
            *acceptance.unjudged,
            *acceptance.away_in_words(),
            *acceptance.unsure_in_words(),
            *acceptance.remarks,
            *acceptance.missing_in_words(),
        ],
    }
    if acceptance.expected:
        rows: list[list[str | Entry]] = [
            [one.sentence, one.source, Entry.words(*_reached(one.short, one.reached))] for one in acceptance.expected
        ]
        table = tables.texts(["expected", "source", "verdict"], rows)
        yield {"topic": Topic("expected", "What is expected"), "table": table, "plots": [], "remarks": []}
    if acceptance.published:
        rows = [[one.sentence, one.source, _share(one.share)] for one in acceptance.published]
        table = tables.texts(["published", "source", "reached"], rows)
        topic = Topic("published", "Beside what others have published", PUBLISHED)
        yield {"topic": topic, "table": table, "plots": [], "remarks": []}
    if of_links := links.section(acceptance):
        yield of_links
    figures = standings(acceptance).in_form(PAGE)
    tolerance = f"tolerance: {percent(acceptance.tolerance, 1)} (accept.tolerance)"
    yield {"topic": Topic("places", "All places", INTRO), "table": figures, "plots": [], "remarks": [tolerance]}


def _share(share: float | None) -> str:
    return "not measured" if share is None else percent(share, 1)


def _reached(short: bool, reached: float | None) -> tuple[str, str]:
    if reached is None:
        return "not measured", "inconclusive"
    return ("short", "slower") if short else ("reached", "faster")


def _finding(finding: Finding) -> list[str | Entry]:
    facts = [f"{fact.fact}: {fact.here} here, {fact.others} in the others" for fact in finding.facts]
    nothing = "nothing that was observed" if finding.slow else ""  # what was refused has no peers
    return [finding.sentence, "\n".join(facts) or nothing]


def write(acceptance: Acceptance, places: Path, pairs: Path) -> None:
    """Write all places, and all pairs at all message sizes, as CSV with unrounded figures."""
    for output, table in ((places, standings(acceptance).in_form(CSV)), (pairs, links.csv(acceptance))):
        assert table
        write_text(output, table_files.csv(table).to_csv(index=False, lineterminator="\n"))
