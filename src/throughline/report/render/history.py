"""All cells over several archives and the present results: a table of what changed, and one plot of all cells."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import accumulate, pairwise
from typing import Any

from matplotlib.figure import Figure as Plot
from matplotlib.ticker import FuncFormatter

from throughline import statistics
from throughline.numbers import reading
from throughline.records.compared import Compared, ComparedArchive, Difference
from throughline.report.render import plots
from throughline.report.render.plots import PAGE, Theme
from throughline.report.render.tables import Table, texts
from throughline.report.topic import Topic

LINES, PARTS, TICKS = 10, 6, 3
"""The most lines of the plot, named changes before a measurement, and named measurements on the axis."""
NAME = 14
"""How many characters of an archive's name stand on the axis."""
INTRO = (
    "Each cell over time, from all archives and the present results. The table says what changed between two "
    "measurements. The plot shows how far the median of each cell is from its first measurement. A bar reaches from "
    "the slowest to the fastest repeat. A dashed line has the number of its change in the table."
)
HEADINGS = ("measurement", "began", "the present results are", "version", "change", "what changed before it")


@dataclass(frozen=True)
class Measurement:
    """The present results, or those of an archive. change: its number, if something changed before it."""

    name: str
    started: str
    archive: ComparedArchive | None = None
    changed: Sequence[str] = ()
    change: int = 0

    @property
    def day(self) -> str:
        try:
            return datetime.fromisoformat(self.started).strftime("%Y-%m-%d")
        except ValueError:
            return "date not known"


@dataclass(frozen=True)
class Look:
    """A cell in the measurement `at`. differs: facts that differ from the present results."""

    at: int
    repeats: Sequence[float]
    differs: Sequence[Difference] = ()

    @property
    def median(self) -> float:
        return statistics.median(list(self.repeats)) or math.nan


Histories = Mapping[str, Sequence[Look]]
"""The looks at each cell, oldest first."""


def section(compared: Compared) -> dict[str, Any]:
    """Return the history as the page prints it."""
    timeline = measurements(compared)
    every = histories(compared, timeline)
    timeline = _with_changes(timeline, every)
    shown = dict(sorted(every.items(), key=lambda entry: -_largest_change(entry[1]))[:LINES])
    remarks = [f"{archive.name}: {text}." for archive in compared.archives for text in archive.unreadable]
    if len(every) > LINES:
        remarks.append(f"The plot has the {LINES} of {len(every)} cells that changed most.")
    remarks.append("results/tables/compare.csv has every cell of every archive, with ratio, interval and verdict.")
    words = "; ".join(
        f"{name}: {', '.join(f'{timeline[look.at].name} {reading(look.median)}' for look in looks)}"
        for name, looks in shown.items()
    )
    drawn = plots.inline(draw(shown, timeline, PAGE), "history", "Over time", words)
    topic = Topic("history", "Over time", INTRO)
    return {"topic": topic, "table": _table(timeline), "plots": [drawn], "remarks": remarks}


def measurements(compared: Compared) -> list[Measurement]:
    """Return the measurements, oldest first."""
    accepted = [archive.acceptance for archive in compared.archives if archive.acceptance]
    now = compared.started or next((one.started_here for one in accepted if one.started_here), "9")
    found = [
        Measurement(archive.name, archive.started or (archive.acceptance and archive.acceptance.started) or "", archive)
        for archive in compared.archives
    ]
    return sorted([*found, Measurement("here", now)], key=lambda one: (one.started, one.archive is None))


def histories(compared: Compared, timeline: Sequence[Measurement]) -> Histories:
    """Return the looks at every cell that the present results have, and at each kind of measurement of acceptances."""
    places, found = {one.name: place for place, one in enumerate(timeline)}, dict[str, list[Look]]()
    for archive in compared.archives:
        everywhere = {id(cell): [*archive.differs, *cell.differs] for cell in archive.cells}
        accepted = archive.acceptance
        for one in (*archive.cells, *(accepted.kinds if accepted else ())):
            differs = everywhere.get(id(one), accepted.differs if accepted else ())
            looks = found.setdefault(one.name, [Look(places["here"], one.ours)])
            looks.append(Look(places[archive.name], one.theirs, differs))
    return {name: sorted(looks, key=lambda look: look.at) for name, looks in found.items()}


def _with_changes(timeline: Sequence[Measurement], every: Histories) -> list[Measurement]:
    """Return the measurements with what changed before each, in any cell.

    A look knows its differences from the present results. A fact that is none of them has the present value.
    """
    changed: list[dict[str, None]] = [{} for _ in timeline]
    for before, after in (pair for looks in every.values() for pair in pairwise(looks)):
        then, now = ({fact.name: fact for fact in look.differs} for look in (before, after))
        for name, fact in (then | now).items():
            old, new = (facts[name].there if name in facts else fact.here for facts in (then, now))
            if old != new:
                changed[after.at][f"{name} from {old} to {new}"] = None
    numbers = accumulate(map(bool, changed))
    return [
        replace(one, changed=list(texts), change=number if texts else 0)
        for one, texts, number in zip(timeline, changed, numbers, strict=True)
    ]


def _largest_change(looks: Sequence[Look]) -> float:
    medians = [look.median for look in looks]
    return math.log(max(medians) / min(medians))


def _table(timeline: Sequence[Measurement]) -> Table:
    rows = []
    for one in timeline:
        more = f"; and {len(one.changed) - PARTS} more (results/compare.json)" if len(one.changed) > PARTS else ""
        told = [outcome(one.archive), one.archive.version or ""] if one.archive else ["", ""]
        rows.append([one.name, one.day, *told, str(one.change or ""), "; ".join(one.changed[:PARTS]) + more])
    return texts(HEADINGS, rows)


def draw(shown: Histories, timeline: Sequence[Measurement], theme: Theme) -> Plot:
    """Draw how far the median of each cell is from that of its first measurement, in per cent."""
    figure, axes = plots.blank(theme, "Change since the first measurement", "")
    axes.set_xlabel("")
    axes.axhline(0, color=theme.muted, lw=0.8, zorder=1)
    names, labels = _short(list(shown)), []
    for index, (name, looks) in enumerate(zip(names, shown.values(), strict=True)):
        first, colour, marker = looks[0].median, theme.colour(index), theme.marker(index)
        at = [look.at + 0.03 * (index - (len(shown) - 1) / 2) for look in looks]  # no line hides another
        low, middle, high = (
            [100 * (speed / first - 1) for speed in speeds]
            for speeds in zip(*((min(look.repeats), look.median, max(look.repeats)) for look in looks), strict=True)
        )
        axes.plot(at, middle, marker=marker, ls=plots.dashes(marker), color=colour, ms=5, lw=1.4, zorder=3)
        axes.vlines(at, low, high, color=colour, lw=1.0, alpha=0.6, zorder=2)
        labels.append((at[-1], middle[-1], name, f"{middle[-1]:+.1f} %", colour, marker))
    axes.set_ylim(axes.get_ylim())
    axes.set_xlim(-0.4, len(timeline) - 0.6)
    step, last = math.ceil(len(timeline) / TICKS), len(timeline) - 1
    ticks = [place for place in range(len(timeline)) if (last - place) % step == 0]
    axes.set_xticks(ticks, [f"{_cut(timeline[place].name)}\n{timeline[place].day}" for place in ticks])
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:+.4g} %" if value else "0 %"))
    for place, one in ((place - 0.5, one) for place, one in enumerate(timeline) if one.change):
        axes.axvline(place, color=theme.muted, ls=(0, (3, 3)), lw=0.9, zorder=1)
        look: dict[str, Any] = {"ha": "center", "va": "bottom", "fontsize": 8, "color": theme.muted}
        axes.annotate(str(one.change), (place, 1.0), xycoords=("data", "axes fraction"), **look)
    return plots.finish(figure, axes, labels, theme, "")


def _short(names: Sequence[str]) -> list[str]:
    """Return the names without the words that all of them have."""
    shared = set.intersection(*(set(name.split()) for name in names)) if len(names) > 1 else set()
    return [" ".join(word for word in name.split() if word not in shared) or name for name in names]


def _cut(name: str) -> str:
    return name if len(name) <= NAME else f"{name[: NAME - 3]}..."


def outcome(archive: ComparedArchive) -> str:
    """Return how many cells have each verdict."""
    counted = Counter(cell.words for cell in archive.cells)
    return ", ".join(f"{count} {verdict}" for verdict, count in counted.most_common()) or "no cell in common"
