"""results/compare.json as the page and tables/compare.csv show it: our cells beside those of archives."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from throughline import __version__, ratios
from throughline.files import write_text
from throughline.numbers import percent, span
from throughline.records import read_compared
from throughline.records.compared import Compared, ComparedArchive, ComparedCell, Together
from throughline.report.render import compared_places, history, table_files, tested_ratios
from throughline.report.render.tables import CSV, FORMS, NOT_KNOWN, PAGE, Column, Entry, Line, Table
from throughline.report.topic import Topic
from throughline.spec import Topology

INTRO = (
    "Each cell that both sides have. Above 1, the present results are faster. A verdict also reflects what else has "
    "changed between the two measurements; the lines below the table name it."
)
TOGETHER: Mapping[Together, str] = {
    "the same runs": "the two sides are the same runs",
    "in turn": "the repeats of both sides were interleaved, as in one workflow",
    "at the same time": "the two sides were measured at the same time, but not in turn",
}
DEVICE = "device.name"
"""The beginning of the difference between two devices."""
NAMED = 12
"""How many differences are named below a table."""
TEST = (
    "The test is Welch's t-test on logarithms, with Holm's correction for all cells of this archive. A/A runs of "
    "either side enter it, and without them a verdict is about these runs only (extras: [aa])."
)
CELLS = "results/tables/compare.csv has every cell of every archive, with ratio, interval and verdict."
COLUMNS = (
    Column(heading="cell", forms=(PAGE,), names=True),
    *(
        Column(key, forms=(CSV,))
        for key in ("archive", "benchmark", "batch", "precision", "framework", "topology", "unit")
    ),
    *tested_ratios.COLUMNS,
    Column("smallest_difference", forms=(CSV,)),
    Column("differs", "only here differs"),
)


def table(archives: Sequence[ComparedArchive]) -> Table:
    """Return a line for each cell of these archives."""
    return Table(
        COLUMNS, [Line(_entries(archive, cell)) for archive in archives for cell in archive.cells], forms=FORMS
    )


def _entries(archive: ComparedArchive, cell: ComparedCell) -> list[Entry]:
    parts = [archive.name, cell.benchmark, str(cell.batch), cell.precision, cell.framework, cell.topology, cell.unit]
    return [
        Entry(cell.name),
        *map(Entry.words, parts),
        *tested_ratios.entries(cell),
        Entry(value=cell.smallest_difference),
        Entry.words("; ".join(cell.differs)),
    ]


def write(compared: Path, output: Path) -> None:
    """Write results/compare.json as CSV, unrounded."""
    figures = table(read_compared(compared).archives).in_form(CSV)
    assert figures
    write_text(output, table_files.csv(figures).to_csv(index=False, lineterminator="\n"))


def sections(compared: Compared) -> Iterator[dict[str, Any]]:
    """Yield the comparisons as the page prints them: a section for each archive, or a history of more than two.

    Their cells one by one would be a page that nobody reads: results/tables/compare.csv has them.
    """
    if len(compared.archives) > 2:
        shown = _overview(compared.archives).in_form(PAGE)
        left_out = [f"{archive.name}: {text}." for archive in compared.archives for text in archive.unreadable]
        section = history.section(compared)
        yield section | {"table": shown, "remarks": [*section["remarks"], *left_out, CELLS, TEST]}
        return
    for number, archive in enumerate(compared.archives, start=1):
        if archive.cells:
            topic = Topic(f"archive-{number}", f"Compared with {archive.name}", INTRO)
            shown = table([archive]).in_form(PAGE)
            yield {"topic": topic, "table": shown, "plots": [], "remarks": list(remarks(compared, archive))}
        if archive.acceptance:
            yield compared_places.section(archive, number)


def remarks(compared: Compared, archive: ComparedArchive) -> Iterator[str]:
    """Say what came out, what differs between the two sides, and what only one side has."""
    yield f"{_outcome(archive)}."
    started = f"from {archive.started or 'a time that is not known'} there, from {compared.started or '?'} here"
    yield f"Measured {started}: {_apart(archive)}."
    yield f"Version {archive.version} of Throughline made {archive.name}; version {__version__} compares."
    if archive.differs:
        more = len(archive.differs) - NAMED
        named = "; ".join(archive.differs[:NAMED]) + (f"; and {more} more (results/compare.json)" if more > 0 else "")
        yield f"What differs in every cell, what matters most first: {named}."
    else:
        yield "Nothing that the records state differs in every cell."
    if text := _break_even(archive):
        yield text
    for where, names in (("here", archive.only_here), ("there", archive.only_there)):
        if names:
            others = f" and {len(names) - 3} more" if len(names) > 3 else ""
            shown = (f"{name} ({why})" if (why := archive.failed.get(name)) else name for name in names[:3])
            yield f"Only {where}: {', '.join(shown)}{others}."
    yield from (f"Left out: {text}." for text in archive.unreadable)
    yield TEST


def _apart(archive: ComparedArchive) -> str:
    """Say how far apart in time the two sides were measured."""
    if archive.together:
        return TOGETHER[archive.together]
    if archive.days_apart is None:
        return "how far apart the two sides are is not known"
    hours = 24 * archive.days_apart
    for unit, count in (("day", archive.days_apart), ("hour", hours), ("minute", 60 * hours)):
        if count >= 1:
            whole = round(count)
            return f"{whole:,} {unit}{'' if whole == 1 else 's'} lie{'s' if whole == 1 else ''} between the two sides"
    return "one side follows the other within a minute"


def _break_even(archive: ComparedArchive) -> str:
    """Say what a device hour is worth here and there, if the devices differ; from the cell with the most devices."""
    cells = [
        cell for cell in archive.cells if any(text.startswith(DEVICE) for text in (*archive.differs, *cell.differs))
    ]
    known = [cell for cell in cells if cell.tested_ratio and cell.tested_at_least and cell.tested_at_most]
    if not known:
        return ""
    cell = max(known, key=lambda cell: Topology.parse(cell.topology).world)
    assert cell.tested_ratio and cell.tested_at_least and cell.tested_at_most
    ends = span((cell.tested_at_least, cell.tested_at_most), 3)
    return (
        f"Break-even price: a device hour here is worth {cell.tested_ratio:.3f} device hours there ({ends} with "
        f"{percent(ratios.INTERVAL)}), on {cell.name}. So multiply the price of a device hour there by it."
    )


def _overview(archives: Sequence[ComparedArchive]) -> Table:
    """Return a line for each archive: when it was measured, what came out, and what differs in every cell."""
    columns = [Column(heading=text) for text in ("archive", "measured from", "version", "outcome", "differs")]
    lines = [
        Line([
            Entry.words(archive.name),
            Entry.words(archive.started or NOT_KNOWN),
            Entry.words(archive.version),
            Entry.words(_outcome(archive)),
            Entry.words("; ".join(archive.differs[:3]) + (" ..." if archive.differs[3:] else "")),
        ])
        for archive in archives
    ]  # fmt: skip
    return Table(columns, lines)


def _outcome(archive: ComparedArchive) -> str:
    counted = Counter(cell.words for cell in archive.cells)
    return ", ".join(f"{count} {verdict}" for verdict, count in counted.most_common()) or "no cell in common"
