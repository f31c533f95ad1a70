"""An acceptance beside those of archives, as the page and tables/compare_acceptance.csv show it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from throughline import ratios
from throughline.files import write_text
from throughline.numbers import percent, span
from throughline.records import read_compared
from throughline.records.acceptance import name_of
from throughline.records.compared import ComparedAcceptance, ComparedArchive, ComparedKind
from throughline.report.render import table_files, tested_ratios
from throughline.report.render.tables import CSV, PAGE, Column, Entry, Table
from throughline.report.render.tested_ratios import field
from throughline.report.topic import Topic

INTRO = (
    "Every kind of measurement, and the places that lost most. Above 1, the present acceptance is faster, also for "
    "latencies. The two were measured at different times, so a verdict also reflects what else has changed meanwhile."
)
NAMED = 12
"""How many differences are named below a table."""
TEST = (
    "The test is a t-test on the logarithms of the places' medians: paired, if both acceptances call the same nodes by "
    "the same numbers, otherwise Welch's. A kind with a single place is compared by its repeats. Holm's correction "
    "counts all lines. Neither side was measured twice, so a verdict is about these runs only. Whether a single place "
    "is slow now, the verdict of the present acceptance says: it compares the place with its peers."
)
NUMBERED = "Both call the same nodes by the same numbers."
NOT_NUMBERED = (
    "Which node here is which node there is not known: the numbers are of another cluster, of another "
    "results/acceptance.local.json, or of simulated nodes. So no places are named."
)


Line = tuple[ComparedArchive, ComparedKind]


def _size(line: Line) -> Entry:
    return Entry.of(line[1].size, "{:,}".format, "the figure has no size")


def _worst(line: Line) -> str:
    return "; ".join(f"{place.place} {100 * (place.ratio - 1):+.1f} %" for place in line[1].worst)


def _figure(line: Line) -> str:
    return name_of(line[1].what, line[1].figure)


def _interval(line: Line) -> str:
    low, high = line[1].tested_at_least, line[1].tested_at_most
    return span((low, high), 3) if low and high else line[1].because


OF_TEST = {column.key or column.heading: column for column in tested_ratios.COLUMNS}
COLUMNS = (
    Column("places", read=field("places")),
    Column("figure", read=_figure),
    Column("archive", read=lambda line: line[0].name),
    Column("what", read=field("what")),
    Column("kind", read=field("kind")),
    Column("size", read=_size, whole=True),
    Column("unit", read=field("unit")),
    *tested_ratios.COLUMNS,
    Column("lost_most", read=_worst),
)
"""The columns of the CSV."""
SHOWN = (
    Column(heading="figure", read=_figure, names=True),
    Column(heading="places", read=field("places")),
    OF_TEST["verdict"],
    OF_TEST["tested_ratio"],
    Column(heading="its interval", small=percent(ratios.INTERVAL), read=_interval),
    Column(heading="lost most", read=lambda line: _worst(line).replace("; ", "\n")),
    OF_TEST["here"],
    OF_TEST["there"],
    Column(heading="unit", read=field("unit")),
    Column(heading="size", small="rows, elements or bytes", read=_size),
)
"""The columns of the page."""
ORDER = ("slower", "faster", "not comparable")
"""Kinds of measurements with these verdicts stand first on the page."""


def write(compared: Path, output: Path) -> None:
    """Write the kinds of measurements in results/compare.json as CSV, unrounded."""
    archives = read_compared(compared).archives
    lines = [(archive, kind) for archive in archives if archive.acceptance for kind in archive.acceptance.kinds]
    table = Table.of(lines, COLUMNS).in_form(CSV)
    assert table
    write_text(output, table_files.csv(table).to_csv(index=False, lineterminator="\n"))


def section(archive: ComparedArchive, number: int) -> dict[str, Any]:
    """Return the comparison with the acceptance of one archive, as the page prints it."""
    assert archive.acceptance
    topic = Topic(f"acceptance-{number}", f"The acceptance compared with {archive.name}", INTRO)
    rank = {verdict: place for place, verdict in enumerate(ORDER)}
    kinds = sorted(archive.acceptance.kinds, key=lambda kind: rank.get(kind.verdict, len(ORDER)))
    table = Table.of([(archive, kind) for kind in kinds], SHOWN).in_form(PAGE)
    return {"topic": topic, "table": table, "plots": [], "remarks": list(_remarks(archive.acceptance))}


def _remarks(acceptance: ComparedAcceptance) -> Iterator[str]:
    yield NUMBERED if acceptance.numbered else NOT_NUMBERED
    there, here = (started or "a time that is not known" for started in (acceptance.started, acceptance.started_here))
    yield f"Measured from {there} there, from {here} here."
    if acceptance.differs:
        yield f"What differs, what matters most first: {'; '.join(map(str, acceptance.differs[:NAMED]))}."
    for where, places in (("here", acceptance.only_here), ("there", acceptance.only_there)):
        if places:
            others = f" and {len(places) - 3} more" if len(places) > 3 else ""
            yield f"Only {where}: {', '.join(places[:3])}{others}."
    yield TEST
