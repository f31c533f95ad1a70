"""results/compare.json as the page and the tables show it: our results beside those of archives and folders.

There are a table over all machines, one for the cells of each archive, and one for each acceptance. More than two
archives are a history: a line for each measurement, and one plot of all cells.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from pathlib import Path
from typing import Any

from markupsafe import Markup
from matplotlib.figure import Figure as Plot
from matplotlib.ticker import FuncFormatter

from throughline import __version__, ratios, statistics
from throughline.numbers import percent, reading, signed, span
from throughline.progress import duration
from throughline.records import read_compared
from throughline.records.acceptance import name_of
from throughline.records.compared import Compared, ComparedAcceptance, ComparedArchive, Difference, MachineCell
from throughline.report.render import plots, table_files, tables
from throughline.report.render.tables import CSV, NOT_KNOWN, PAGE, Column, Entry, Table, interval
from throughline.report.topic import Topic, section

NAMED = 12
"""How many differences are named below a table."""
Line = tuple[ComparedArchive, Any]
"""An archive, and something that both sides have measured."""


def _field(name: str) -> Callable[[Line], Any]:
    return lambda line: getattr(line[1], name)


def _in_csv(*names: str) -> list[Column]:
    return [Column(name, read=_field(name), forms=(CSV,)) for name in names]


TESTED = (
    Column("here", "here", "median", read=lambda line: statistics.median(line[1].ours), show=reading),
    Column("there", "there", "median", read=lambda line: statistics.median(line[1].theirs), show=reading),
    *_in_csv("ratio"),
    Column("tested_ratio", "tested ratio", read=lambda line: Entry.of(
        line[1].tested_ratio, "{:.3f}".format, line[1].because)),
    *_in_csv("tested_at_least", "tested_at_most", "corrected_at_least", "corrected_at_most"),
    interval(lambda line: span((line[1].corrected_at_least, line[1].corrected_at_most), 3)
             if line[1].corrected_at_least else NOT_KNOWN),
    *_in_csv("p", "p_holm"),
    Column("verdict", "verdict", read=lambda line: Entry.verdict(line[1])),
    Column("because", "because", read=_field("because")),
)  # fmt: skip
"""The columns of what both sides have measured: the medians, their ratio, its interval, the test and its verdict."""


def _differs(line: Line) -> str:
    return "; ".join(map(str, line[1].differs))


CELLS = (
    Column(heading="cell", read=_field("name"), forms=(PAGE,), names=True),
    Column("archive", read=lambda line: line[0].name, forms=(CSV,)),
    *_in_csv("benchmark", "batch", "precision", "framework", "topology"),
    Column("unit", "unit", read=_field("unit")),
    *TESTED,
    *_in_csv("smallest_difference"),
    Column("differs", read=_differs, forms=(CSV,)),
    Column(heading="differs in this cell", read=_differs, forms=(PAGE,), optional=True),
)
KINDS = (
    Column("places", "places", read=_field("places")),
    Column("figure", "figure", read=lambda line: name_of(line[1].what, line[1].figure), names=True),
    Column("archive", read=lambda line: line[0].name, forms=(CSV,)),
    *_in_csv("what", "kind"),
    Column("size", "size", "rows, elements or bytes", whole=True, read=lambda line: Entry.of(
        line[1].size, "{:,}".format, "the figure has no size")),
    Column("unit", "unit", read=_field("unit")),
    *TESTED,
    Column("lost_most", "lost most", read=lambda line: "; ".join(
        f"{place.place} {signed(place.ratio - 1)}" for place in line[1].worst)),
)  # fmt: skip


def write(compared: Path, cells: Path, machines: Path, kinds: Path) -> None:
    """Write results/compare.json as CSV, unrounded: the cells, what they cost on all machines, and the acceptances."""
    found = read_compared(compared)
    of_kinds = [(side, kind) for side in found.archives if side.acceptance for kind in side.acceptance.kinds]
    table_files.write_csv(_cells(found.archives), cells)
    whole = ("work", "batch", "repeats")
    columns = [Column(key, read=attrgetter(key), whole=key in whole) for key in IN_FILE]
    table_files.write_csv(Table.of(found.machines, columns), machines)
    table_files.write_csv(Table.of(of_kinds, KINDS), kinds)


def _cells(archives: Sequence[ComparedArchive]) -> Table:
    return Table.of([(archive, cell) for archive in archives for cell in archive.cells], CELLS)


def sections(compared: Compared) -> Iterator[dict[str, Any]]:
    """Yield the comparisons as the page prints them: all machines, then each archive, or a history of more than two.

    The cells of a history one by one would be a page that nobody reads: results/tables/compare.csv has them.
    """
    if compared.machines:
        yield _over_machines(compared.machines)
    if len(compared.archives) > 2:
        yield history(compared)
        return
    for number, archive in enumerate(compared.archives, start=1):
        if archive.cells:
            intro = (
                "Each cell that both sides have. Above 1, the present results are faster. A verdict also reflects what "
                "else has changed between the two measurements; the lines below the table name it."
            )
            topic = Topic(f"archive-{number}", f"Compared with {archive.name}", intro)
            yield section(topic, _cells([archive]).in_form(PAGE), remarks(compared, archive))
        if archive.acceptance:
            yield _acceptance(archive, archive.acceptance, number)


def remarks(compared: Compared, archive: ComparedArchive) -> Iterator[str]:
    """Say what came out, what differs between the two sides, and what only one side has."""
    yield f"{outcome(archive)}."
    days = "how far apart is not known"
    if archive.days_apart is not None:
        apart = archive.days_apart
        days = f"{apart:,.0f} days apart" if apart >= 2 else f"{duration(86400 * apart)} apart"
    began = f"{archive.started or NOT_KNOWN} there, from {compared.started or NOT_KNOWN} here"
    yield f"Measured from {began}: {archive.together or days}."
    if archive.version and archive.version != __version__:
        yield f"Version {archive.version} of Throughline made {archive.name}; version {__version__} compares."
    nothing = "nothing that the records state"
    yield f"What differs in every cell, what matters most first: {_differing(archive.differs) or nothing}."
    yield from _only(archive.only_here, archive.only_there, archive.failed)
    yield from (f"Left out: {text}." for text in archive.unreadable)
    yield (
        "The test is Welch's t-test on logarithms, with Holm's correction for all cells of this archive. A/A runs of "
        "either side enter it, and without them a verdict is about these runs only (extras: [aa])."
    )


def _differing(differs: Sequence[Difference]) -> str:
    """Return the first differences, and how many more there are."""
    more = [f"{len(differs) - NAMED} more (results/compare.json)"] if len(differs) > NAMED else []
    return "; ".join([*map(str, differs[:NAMED]), *more])


def _only(here: Sequence[str], there: Sequence[str], failed: Mapping[str, str]) -> Iterator[str]:
    """Say what only one side has, and why if it is known."""
    for where, names in (("here", here), ("there", there)):
        if names:
            others = f" and {len(names) - 3} more" if len(names) > 3 else ""
            shown = (f"{name} ({failed[name]})" if name in failed else name for name in names[:3])
            yield f"Only {where}: {', '.join(shown)}{others}."


def _acceptance(archive: ComparedArchive, acceptance: ComparedAcceptance, number: int) -> dict[str, Any]:
    """Return the comparison with the acceptance of one archive: what was decided stands first."""
    first = ("slower", "faster", "not comparable")
    kinds = sorted(acceptance.kinds, key=lambda one: first.index(one.verdict) if one.verdict in first else len(first))
    intro = (
        "Every kind of measurement, and the places that lost most. Above 1, the present acceptance is faster, also for "
        "latencies. The two were measured at different times, so a verdict also reflects what else has changed."
    )
    topic = Topic(f"acceptance-{number}", f"The acceptance compared with {archive.name}", intro)
    table = Table.of([(archive, kind) for kind in kinds], KINDS).in_form(PAGE)
    return section(topic, table, _of_acceptance(acceptance))


def _of_acceptance(acceptance: ComparedAcceptance) -> Iterator[str]:
    yield f"Measured from {acceptance.started or NOT_KNOWN} there, from {acceptance.started_here or NOT_KNOWN} here."
    if not acceptance.numbered:
        yield (
            "Which node here is which node there is not known: the numbers are of another cluster, of another "
            "results/acceptance.local.json, or of simulated nodes. So no places are named."
        )
    if acceptance.differs:
        yield f"What differs, what matters most first: {_differing(acceptance.differs)}."
    yield from _only(acceptance.only_here, acceptance.only_there, {})
    yield (
        "The test is a t-test on the logarithms of the places' medians: paired, if both acceptances call the same "
        "nodes by the same numbers, otherwise Welch's. A kind with a single place is compared by its repeats. Holm's "
        "correction counts all lines. Neither side was measured twice, so a verdict is about these runs only. Whether "
        "a single place is slow now, the verdict of the present acceptance says: it compares the place with its peers."
    )


NO_PAIR = "only the fastest cell on the fewest and on the most devices is compared with the first machine"
TWO_LINES = Markup("{}<small>{}</small>")
IN_FILE = [name for name in MachineCell.model_fields if name not in ("price_source", "reasons")]
"""The columns of the CSV."""


def _money(name: str, read: Callable[[Any], str] = reading) -> Callable[[MachineCell], Entry]:
    """Return the reader of a price, with its currency in the text."""
    return lambda cell: Entry.of(
        getattr(cell, name), lambda price: f"{read(price)} {cell.currency}", cell.reasons.get("per_million_samples")
    )


def _task(cell: MachineCell) -> Entry:
    if cell.task_hours is None:
        return Entry(reason=cell.reasons.get("task_hours"))
    price = f"{reading(cell.task_price)} {cell.currency}" if cell.task_price else NOT_KNOWN
    return Entry("", cell.task_hours, html=TWO_LINES.format(f"{reading(cell.task_hours)} h", price))


def _best(cell: MachineCell) -> Entry:
    if cell.best_value is None:
        return Entry(reason=cell.reasons.get("best_value"))
    html = Markup('<span class="best">★ yes</span>') if cell.best_value == "yes" else None
    return Entry(cell.best_value, cell.best_value or None, html=html)


def _with_interval(value: float | None, ends: Sequence[Any], places: int, title: str, unit: str = "") -> Entry:
    text = "" if value is None else f"{value:.{places}f} {unit}".rstrip()
    return Entry("", value, title, html=TWO_LINES.format(text, "" if None in ends else span(ends, places)))


def _worth(cell: MachineCell) -> Entry:
    title = f"compared with {cell.break_even_with}" if cell.break_even_with else NO_PAIR
    return _with_interval(cell.worth, (cell.worth_at_least, cell.worth_at_most), 3, title)


def _break_even(cell: MachineCell) -> Entry:
    ends = cell.break_even_at_least, cell.break_even_at_most
    title = "no price of the first machine is known" if cell.worth else NO_PAIR
    return _with_interval(cell.break_even_price, ends, 2, title, cell.break_even_currency or "")


MACHINES = (
    Column(heading="machine and cell", style="text", names=True, read=lambda cell: Entry(
        html=Markup('{}<br><span class="quiet">{}</span>').format(
            f"{cell.machine}, {cell.device}" if cell.device else cell.machine, cell.name))),
    Column(heading="throughput", small="median", by_value=True, read=lambda cell: Entry(
        "", cell.throughput, html=TWO_LINES.format(reading(cell.throughput), cell.unit))),
    Column(heading="price", small="device hour", read=_money("price_per_device_hour", "{:.4g}".format),
           optional=True, by_value=True),
    Column(heading="price", small="million samples", read=_money("price_per_million_samples"),
           optional=True, by_value=True),
    Column(heading="whole task", read=_task, optional=True, by_value=True),
    Column(heading="best value", read=_best, optional=True),
    Column(heading="an hour is worth", small="hours of the first machine", read=_worth, by_value=True),
    Column(heading="break-even", small="price", read=_break_even, optional=True, by_value=True),
    Column(heading="its price is", small="beside break-even", optional=True,
           read=lambda cell: Entry(cell.price_is or "", cell.price_is)),
)  # fmt: skip


def _over_machines(cells: Sequence[MachineCell]) -> dict[str, Any]:
    """Return the table over all machines as the page prints it: costs, the best value, and the break-even prices."""
    intro = (
        "Cells that do the same work on several machines: the same model, data, optimizer, dropout, clipping and job. "
        "The best value is the lowest price per sample, if all prices are in one currency and the repeats tell it "
        "apart from all others. For the fastest cells, on the fewest and on the most devices of both, the table says "
        "how many device hours of the first machine a device hour is worth. This number times the price there is the "
        f"break-even price. The small numbers are intervals with {percent(ratios.INTERVAL)}."
    )
    sources = dict.fromkeys(cell.price_source for cell in cells if cell.price_source)
    table = Table.of(cells, MACHINES, facts=[("price", source) for source in sources], style="grid")
    reasons = {cell.benchmark: why for cell in cells if (why := cell.reasons.get("best_value"))}
    notes = (f"{benchmark}: no best value, because {why}." for benchmark, why in reasons.items())
    return section(Topic("machines", "All machines", intro), table.in_form(PAGE), notes)


LINES, TICKS = 10, 3
"""The most lines of the plot, and named measurements on its axis."""
SHORT = 14
"""How many characters of an archive's name stand on the axis."""
HERE = "here"
HISTORY = (
    "Each cell over time, from all archives and the present results. The table says in what each measurement differs "
    "from the present one. The plot shows how far the median of each cell is from its first measurement. A bar reaches "
    "from the slowest to the fastest repeat."
)
Timeline = Mapping[str, str]
"""Maps each measurement, oldest first, to the day when it began."""
Histories = Mapping[str, Mapping[str, Sequence[float]]]
"""The repeats of each cell, by measurement, oldest first."""


def history(compared: Compared) -> dict[str, Any]:
    """Return the history as the page prints it."""
    dates = timeline(compared)
    every = histories(compared, dates)

    def largest_change(name: str) -> float:
        medians = [statistics.median(repeats) or math.nan for repeats in every[name].values()]
        return math.log(max(medians) / min(medians))

    shown = {name: every[name] for name in sorted(every, key=largest_change, reverse=True)[:LINES]}
    remarks = [f"{archive.name}: {text}." for archive in compared.archives for text in archive.unreadable]
    if len(every) > LINES:
        remarks.append(f"The plot has the {LINES} of {len(every)} cells that changed most.")
    remarks.append("results/tables/compare.csv has every cell of every archive, with ratio, interval and verdict.")
    archives = {archive.name: archive for archive in compared.archives}
    rows = [
        {
            "measurement": name,
            "began": day,
            "the present results are": outcome(archive) if archive else "",
            "version": (archive and archive.version) or "",
            "what differs": _differing(archive.differs) if archive else "",
        }
        for name, day in dates.items()
        for archive in [archives.get(name)]
    ]
    drawn = plots.inline(draw(shown, dates, plots.PAGE), "history", "Over time")
    return section(Topic("history", "Over time", HISTORY), tables.texts(rows), remarks, [drawn])


def timeline(compared: Compared) -> Timeline:
    """Return the measurements and the days when they began, oldest first."""
    accepted = [archive.acceptance for archive in compared.archives if archive.acceptance]
    now = compared.started or next((one.started_here for one in accepted if one.started_here), "9")
    started = {
        archive.name: archive.started or (archive.acceptance and archive.acceptance.started) or ""
        for archive in compared.archives
    }
    every = sorted([*started.items(), (HERE, now)], key=lambda item: (item[1], item[0] == HERE))
    return {name: _day(time) for name, time in every}


def _day(time: str) -> str:
    try:
        return datetime.fromisoformat(time).strftime("%Y-%m-%d")
    except ValueError:
        return "date not known"


def histories(compared: Compared, dates: Timeline) -> Histories:
    """Return the repeats of every cell of the present results, and of each kind of measurement of acceptances."""
    found: dict[str, dict[str, Sequence[float]]] = {}
    for archive in compared.archives:
        accepted = archive.acceptance
        for one in (*archive.cells, *(accepted.kinds if accepted else ())):
            found.setdefault(one.name, {HERE: one.ours})[archive.name] = one.theirs
    return {name: {at: repeats[at] for at in dates if at in repeats} for name, repeats in found.items()}


def draw(shown: Histories, dates: Timeline, theme: plots.Theme) -> Plot:
    """Draw how far the median of each cell is from that of its first measurement, in per cent."""
    figure, axes = plots.blank(theme, "Change since the first measurement", "")
    axes.set_xlabel("")
    axes.axhline(0, color=theme.muted, lw=0.8, zorder=1)
    shared = set.intersection(*(set(name.split()) for name in shown)) if len(shown) > 1 else set()
    names, labels = list(dates), []
    for index, (name, looks) in enumerate(shown.items()):
        colour, marker = theme.colour(index), theme.marker(index)
        at = [names.index(look) + 0.03 * (index - (len(shown) - 1) / 2) for look in looks]  # no line hides another
        ends = [(min(repeats), statistics.median(repeats) or math.nan, max(repeats)) for repeats in looks.values()]
        low, middle, high = ([100 * (v / ends[0][1] - 1) for v in values] for values in zip(*ends, strict=True))
        axes.plot(at, middle, marker=marker, ls=plots.dashes(marker), color=colour, ms=5, lw=1.4, zorder=3)
        axes.vlines(at, low, high, color=colour, lw=1.0, alpha=0.6, zorder=2)
        short = " ".join(word for word in name.split() if word not in shared) or name
        labels.append((at[-1], middle[-1], short, f"{middle[-1]:+.1f} %", colour, marker))
    axes.set_ylim(axes.get_ylim())
    axes.set_xlim(-0.4, len(names) - 0.6)
    ticks = range(len(names) - 1, -1, -math.ceil(len(names) / TICKS))
    short_names = [name if len(name) <= SHORT else f"{name[: SHORT - 3]}..." for name in names]
    axes.set_xticks(ticks, [f"{short_names[at]}\n{dates[names[at]]}" for at in ticks])
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:+.4g} %" if value else "0 %"))
    return plots.finish(figure, axes, labels, theme, "")


def outcome(archive: ComparedArchive) -> str:
    """Return how many cells have each verdict."""
    counted = Counter(cell.words for cell in archive.cells)
    return ", ".join(f"{count} {verdict}" for verdict, count in counted.most_common()) or "no cell in common"
