"""All cells over several archives and the present results: a line for each measurement, and one plot of all cells."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from matplotlib.figure import Figure as Plot
from matplotlib.ticker import FuncFormatter

from throughline import statistics
from throughline.records.compared import Compared, ComparedArchive, ComparedCell, ComparedKind
from throughline.report.render import plots
from throughline.report.render.plots import PAGE, Theme
from throughline.report.render.tables import texts
from throughline.report.topic import Topic

LINES, PARTS, TICKS = 10, 6, 3
"""The most lines of the plot, named differences of a measurement, and named measurements on the axis."""
NAME = 14
"""How many characters of an archive's name stand on the axis."""
HERE = "here"
INTRO = (
    "Each cell over time, from all archives and the present results. The table says in what each measurement differs "
    "from the present one. The plot shows how far the median of each cell is from its first measurement. A bar reaches "
    "from the slowest to the fastest repeat."
)
Timeline = Mapping[str, str]
"""Maps each measurement, oldest first, to the day when it began."""
Histories = Mapping[str, Mapping[str, Sequence[float]]]
"""The repeats of each cell, by measurement, oldest first."""


def section(compared: Compared) -> dict[str, Any]:
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
    table = texts([_row(name, day, archives.get(name)) for name, day in dates.items()])
    drawn = plots.inline(draw(shown, dates, PAGE), "history", "Over time")
    return {"topic": Topic("history", "Over time", INTRO), "table": table, "plots": [drawn], "remarks": remarks}


def _row(name: str, day: str, archive: ComparedArchive | None) -> dict[str, str]:
    differs = [str(fact) for fact in archive.differs] if archive else []
    more = [f"{len(differs) - PARTS} more (results/compare.json)"] if len(differs) > PARTS else []
    return {
        "measurement": name,
        "began": day,
        "the present results are": outcome(archive) if archive else "",
        "version": (archive and archive.version) or "",
        "what differs": "; ".join([*differs[:PARTS], *more]),
    }


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
        both: list[ComparedCell | ComparedKind] = [*archive.cells]
        for one in [*both, *(archive.acceptance.kinds if archive.acceptance else [])]:
            found.setdefault(one.name, {HERE: one.ours})[archive.name] = one.theirs
    return {name: {at: repeats[at] for at in dates if at in repeats} for name, repeats in found.items()}


def draw(shown: Histories, dates: Timeline, theme: Theme) -> Plot:
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
    short_names = [name if len(name) <= NAME else f"{name[: NAME - 3]}..." for name in names]
    axes.set_xticks(ticks, [f"{short_names[at]}\n{dates[names[at]]}" for at in ticks])
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:+.4g} %" if value else "0 %"))
    return plots.finish(figure, axes, labels, theme, "")


def outcome(archive: ComparedArchive) -> str:
    """Return how many cells have each verdict."""
    counted = Counter(cell.words for cell in archive.cells)
    return ", ".join(f"{count} {verdict}" for verdict, count in counted.most_common()) or "no cell in common"
