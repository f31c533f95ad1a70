"""results/compare.json as the page and the tables show it: our cells beside those of archives and folders."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from throughline import __version__
from throughline.files import write_text
from throughline.records import read_compared
from throughline.records.compared import Compared, ComparedArchive, Together
from throughline.report.render import compare_acceptance, history, table_files, tested_ratios
from throughline.report.render import machines as over_machines
from throughline.report.render.tables import CSV, PAGE, Column, Table
from throughline.report.render.tested_ratios import field
from throughline.report.topic import Topic

INTRO = (
    "Each cell that both sides have. Above 1, the present results are faster. A verdict also reflects what else has "
    "changed between the two measurements; the lines below the table name it."
)
TOGETHER: Mapping[Together, str] = {
    "the same runs": "the two sides are the same runs",
    "in turn": "the repeats of both sides were interleaved, as in one workflow",
    "at the same time": "the two sides were measured at the same time, but not in turn",
}
NAMED = 12
"""How many differences are named below a table."""
TEST = (
    "The test is Welch's t-test on logarithms, with Holm's correction for all cells of this archive. A/A runs of "
    "either side enter it, and without them a verdict is about these runs only (extras: [aa])."
)
IN_FILE = ("benchmark", "batch", "precision", "framework", "topology", "unit")
"""Columns of the CSV, in which the page has the name of the cell."""
COLUMNS = (
    Column(heading="cell", read=field("name"), forms=(PAGE,), names=True),
    Column("archive", read=lambda line: line[0].name, forms=(CSV,)),
    *(Column(key, read=field(key), forms=(CSV,)) for key in IN_FILE),
    *tested_ratios.COLUMNS,
    Column("smallest_difference", read=field("smallest_difference"), forms=(CSV,)),
    Column("differs", "only here differs", read=lambda line: "; ".join(map(str, line[1].differs))),
)


def table(archives: Sequence[ComparedArchive], form: str) -> Table | None:
    """Return a line for each cell of these archives."""
    return Table.of([(archive, cell) for archive in archives for cell in archive.cells], COLUMNS).in_form(form)


def write(compared: Path, cells: Path, machines: Path) -> None:
    """Write results/compare.json as two CSV files, unrounded: the cells, and what they cost on all machines."""
    found = read_compared(compared)
    for output, shown in ((cells, table(found.archives, CSV)), (machines, over_machines.in_file(found.machines))):
        assert shown
        write_text(output, table_files.csv(shown).to_csv(index=False, lineterminator="\n"))


def sections(compared: Compared) -> Iterator[dict[str, Any]]:
    """Yield the comparisons as the page prints them: all machines, then each archive, or a history of more than two.

    The cells of a history one by one would be a page that nobody reads: results/tables/compare.csv has them.
    """
    if compared.machines:
        yield over_machines.section(compared.machines)
    if len(compared.archives) > 2:
        yield history.section(compared)
        return
    for number, archive in enumerate(compared.archives, start=1):
        if archive.cells:
            topic, told = Topic(f"archive-{number}", f"Compared with {archive.name}", INTRO), remarks(compared, archive)
            yield {"topic": topic, "table": table([archive], PAGE), "plots": [], "remarks": list(told)}
        if archive.acceptance:
            yield compare_acceptance.section(archive, number)


def remarks(compared: Compared, archive: ComparedArchive) -> Iterator[str]:
    """Say what came out, what differs between the two sides, and what only one side has."""
    yield f"{history.outcome(archive)}."
    started = f"from {archive.started or 'a time that is not known'} there, from {compared.started or '?'} here"
    yield f"Measured {started}: {_apart(archive)}."
    if archive.version:
        yield f"Version {archive.version} of Throughline made {archive.name}; version {__version__} compares."
    if archive.differs:
        more = len(archive.differs) - NAMED
        named = "; ".join(map(str, archive.differs[:NAMED]))
        rest = f"; and {more} more (results/compare.json)" if more > 0 else ""
        yield f"What differs in every cell, what matters most first: {named}{rest}."
    else:
        yield "Nothing that the records state differs in every cell."
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
