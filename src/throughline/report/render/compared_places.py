"""An acceptance beside those of archives, as the page and tables/compare_acceptance.csv show it."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean, variance
from typing import Any

from throughline import ratios
from throughline.files import write_text
from throughline.numbers import percent
from throughline.records import read_compared
from throughline.records.acceptance import NAMES
from throughline.records.compared import ComparedAcceptance, ComparedArchive, ComparedPlace
from throughline.report.render import table_files, tested_ratios
from throughline.report.render.tables import CSV, FORMS, PAGE, Column, Entry, Line, Table
from throughline.report.topic import Topic

INTRO = (
    "Every kind of place as a whole, then the single places that are faster or slower. Above 1, the present "
    "acceptance is faster, for latencies as well. The two were measured at different times, so a verdict also "
    "reflects what else has changed between them."
)
NAMED = 12
"""How many differences and places are named below a table."""
TEST = (
    "Places are compared as a whole by a paired t-test on the logarithms of their medians, if both acceptances call "
    "the same nodes by the same numbers, otherwise by Welch's. A single place is compared by its repeats: a t-test "
    "whose variance is averaged with that of all places, because a few repeats hardly tell their own. "
    "Holm's correction counts all lines. Neither side was measured twice, so a verdict is about these runs only."
)
LINES = "results/tables/compare_acceptance.csv has every place."
NUMBERED = "Both call the same nodes by the same numbers."
NOT_NUMBERED = (
    "Which node here is which node there is not known: the numbers are of another cluster, of another "
    "results/acceptance.local.json, or of simulated nodes. So only kinds of places are compared as a whole."
)
COLUMNS = (
    Column("place", "place", names=True),
    Column("figure", "figure"),
    *(Column(key, forms=(CSV,)) for key in ("archive", "what", "kind", "whole")),
    Column("size", "size", "rows, elements or bytes", whole=True),
    Column("unit", "unit"),
    *tested_ratios.COLUMNS,
)


def table(name: str, places: Sequence[ComparedPlace]) -> Table:
    """Return a line for each of these places. name: that of the archive."""
    return Table(COLUMNS, [Line(_entries(name, place)) for place in places], forms=FORMS)


def _figure(place: ComparedPlace) -> str:
    return NAMES.get((place.what, place.figure), f"{place.what}: {place.figure}")


def _entries(name: str, place: ComparedPlace) -> list[Entry]:
    parts = [name, place.what, place.kind, "yes" if place.whole else "no"]
    return [
        Entry.words(place.place),
        Entry.words(_figure(place)),
        *map(Entry.words, parts),
        Entry.of(place.size, lambda size: f"{size:,}", "the figure has no size"),
        Entry.words(place.unit),
        *tested_ratios.entries(place),
    ]


def write(compared: Path, output: Path) -> None:
    """Write the places in results/compare.json as CSV, unrounded."""
    archives = read_compared(compared).archives
    lines = [
        line
        for archive in archives
        if archive.acceptance
        for line in table(archive.name, archive.acceptance.places).lines
    ]
    figures = Table(COLUMNS, lines, forms=FORMS).in_form(CSV)
    assert figures
    write_text(output, table_files.csv(figures).to_csv(index=False, lineterminator="\n"))


def section(archive: ComparedArchive, number: int) -> dict[str, Any]:
    """Return the comparison with the acceptance of one archive, as the page prints it."""
    accepted = archive.acceptance
    assert accepted
    shown = table(archive.name, _shown(accepted)).in_form(PAGE)
    topic = Topic(f"acceptance-{number}", f"The acceptance compared with {archive.name}", INTRO)
    return {"topic": topic, "table": shown, "plots": [], "remarks": list(_remarks(accepted))}


def _shown(accepted: ComparedAcceptance) -> list[ComparedPlace]:
    """Return the lines of the page: what stands for all places of a kind or has no others, and what has changed."""
    wholes = [place for place in accepted.places if place.whole or place.kind == "all"]
    changed = [place for place in accepted.places if place.verdict in ("faster", "slower") and place not in wholes]
    return [*wholes, *sorted(changed, key=lambda place: place.ratio)]


def least_losses(places: Sequence[ComparedPlace]) -> list[tuple[float, str]]:
    """Return the smallest loss of a single place that is told in 9 of 10 cases, with its figure, for each figure.

    A loss is a share of the speed. The noise of a figure is that of the repeats of all places, and Holm's correction
    counts all lines. A figure whose repeats are all equal is left out.
    """
    tested = [place for place in places if place.p is not None]
    figures: dict[str, list[ComparedPlace]] = {}
    for place in tested:
        where = "all nodes" if place.kind == "all" else place.kind
        if not place.whole:
            figures.setdefault(f"{_figure(place)}, {where}", []).append(place)
    found = []
    for figure, several in figures.items():
        sides = [[math.log(value) for value in side] for place in several for side in (place.ours, place.theirs)]
        noise, repeats = math.sqrt(fmean(map(variance, sides))), min(map(len, sides))
        if noise and (loss := ratios.least_loss(repeats, noise, len(tested))):
            found.append((loss, figure))
    return found


def _remarks(accepted: ComparedAcceptance) -> Iterator[str]:
    single = [place for place in accepted.places if not place.whole]
    slower = sorted((place for place in single if place.verdict == "slower"), key=lambda place: place.ratio)
    if single:
        named = "; ".join(f"{place.name} {100 * (place.ratio - 1):+.1f} %" for place in slower[:NAMED])
        more = f"; and {len(slower) - NAMED} more" if len(slower) > NAMED else ""
        yield f"Slower: {len(slower)} of {len(single)} figures of single places" + (
            f" ({named}{more})." if slower else "."
        )
    if losses := least_losses(accepted.places):
        (least, easy), (most, hard) = min(losses), max(losses)
        rest = f" ({easy}) to {percent(most)} ({hard})" if most > least else ""
        yield (
            f"A single place is called slower in 9 of 10 cases if it has lost about {percent(least)}{rest}. This "
            "follows from the noise of the repeats and from the number of lines. A smaller loss may stay unnamed."
        )
    yield NUMBERED if accepted.numbered else NOT_NUMBERED
    there, here = (started or "a time that is not known" for started in (accepted.started, accepted.started_here))
    yield f"Measured from {there} there, from {here} here."
    if accepted.differs:
        yield f"What differs, what matters most first: {'; '.join(map(str, accepted.differs[:NAMED]))}."
    for where, places in (("here", accepted.only_here), ("there", accepted.only_there)):
        if places:
            others = f" and {len(places) - 3} more" if len(places) > 3 else ""
            yield f"Only {where}: {', '.join(places[:3])}{others}."
    yield TEST
    yield LINES
