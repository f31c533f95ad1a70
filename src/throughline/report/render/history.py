"""All cells over several archives and the present results: a table of what changed, and one plot of all cells."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any

from matplotlib.figure import Figure as Plot
from matplotlib.ticker import FuncFormatter

from throughline import statistics
from throughline.records.compared import Compared, ComparedArchive, ComparedCell, ComparedKind, Difference
from throughline.report.render import plots
from throughline.report.render.plots import PAGE, Theme
from throughline.report.render.tables import texts
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


@dataclass
class Measurement:
    """The present results, or those of an archive. changed: what changed before it; change: the number of that."""

    name: str
    started: str
    archive: ComparedArchive | None = None
    changed: dict[str, None] = field(default_factory=dict)
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
        return statistics.median(self.repeats) or math.nan


Histories = Mapping[str, Sequence[Look]]
"""The looks at each cell, oldest first."""


def section(compared: Compared) -> dict[str, Any]:
    """Return the history as the page prints it."""
    timeline = measurements(compared)
    every = histories(compared, timeline)
    _note_changes(timeline, every)

    def largest_change(name: str) -> float:
        medians = [look.median for look in every[name]]
        return math.log(max(medians) / min(medians))

    shown = {name: every[name] for name in sorted(every, key=largest_change, reverse=True)[:LINES]}
    remarks = [f"{archive.name}: {text}." for archive in compared.archives for text in archive.unreadable]
    if len(every) > LINES:
        remarks.append(f"The plot has the {LINES} of {len(every)} cells that changed most.")
    remarks.append("results/tables/compare.csv has every cell of every archive, with ratio, interval and verdict.")
    rows = []
    for one in timeline:
        more = f"; and {len(one.changed) - PARTS} more (results/compare.json)" if len(one.changed) > PARTS else ""
        rows.append(
            {
                "measurement": one.name,
                "began": one.day,
                "the present results are": outcome(one.archive) if one.archive else "",
                "version": (one.archive and one.archive.version) or "",
                "change": str(one.change or ""),
                "what changed before it": "; ".join([*one.changed][:PARTS]) + more,
            }
        )
    drawn = plots.inline(draw(shown, timeline, PAGE), "history", "Over time")
    return {"topic": Topic("history", "Over time", INTRO), "table": texts(rows), "plots": [drawn], "remarks": remarks}


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
        both: list[tuple[ComparedCell | ComparedKind, list[Difference]]]
        both = [(cell, [*archive.differs, *cell.differs]) for cell in archive.cells]
        if archive.acceptance:
            both += [(kind, archive.acceptance.differs) for kind in archive.acceptance.kinds]
        for one, differs in both:
            looks = found.setdefault(one.name, [Look(places["here"], one.ours)])
            looks.append(Look(places[archive.name], one.theirs, differs))
    return {name: sorted(looks, key=lambda look: look.at) for name, looks in found.items()}


def _note_changes(timeline: Sequence[Measurement], every: Histories) -> None:
    """Note and number what changed before each measurement, in any cell.

    A look knows its differences from the present results. A fact that is none of them has the present value.
    """
    for before, after in (pair for looks in every.values() for pair in pairwise(looks)):
        then, now = ({fact.name: fact for fact in look.differs} for look in (before, after))
        for name, fact in (then | now).items():
            old, new = (facts[name].there if name in facts else fact.here for facts in (then, now))
            if old != new:
                timeline[after.at].changed[f"{name} from {old} to {new}"] = None
    for number, one in enumerate((one for one in timeline if one.changed), start=1):
        one.change = number


def draw(shown: Histories, timeline: Sequence[Measurement], theme: Theme) -> Plot:
    """Draw how far the median of each cell is from that of its first measurement, in per cent."""
    figure, axes = plots.blank(theme, "Change since the first measurement", "")
    axes.set_xlabel("")
    axes.axhline(0, color=theme.muted, lw=0.8, zorder=1)
    shared = set.intersection(*(set(name.split()) for name in shown)) if len(shown) > 1 else set()
    labels = []
    for index, (name, looks) in enumerate(shown.items()):
        colour, marker = theme.colour(index), theme.marker(index)
        at = [look.at + 0.03 * (index - (len(shown) - 1) / 2) for look in looks]  # no line hides another
        ends = ((min(look.repeats), look.median, max(look.repeats)) for look in looks)
        low, middle, high = ([100 * (v / looks[0].median - 1) for v in values] for values in zip(*ends, strict=True))
        axes.plot(at, middle, marker=marker, ls=plots.dashes(marker), color=colour, ms=5, lw=1.4, zorder=3)
        axes.vlines(at, low, high, color=colour, lw=1.0, alpha=0.6, zorder=2)
        short = " ".join(word for word in name.split() if word not in shared) or name
        labels.append((at[-1], middle[-1], short, f"{middle[-1]:+.1f} %", colour, marker))
    axes.set_ylim(axes.get_ylim())
    axes.set_xlim(-0.4, len(timeline) - 0.6)
    ticks = range(len(timeline) - 1, -1, -math.ceil(len(timeline) / TICKS))
    names = (name if len(name) <= NAME else f"{name[: NAME - 3]}..." for name in (timeline[at].name for at in ticks))
    axes.set_xticks(ticks, [f"{name}\n{timeline[at].day}" for name, at in zip(names, ticks, strict=True)])
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:+.4g} %" if value else "0 %"))
    for place, one in enumerate(timeline):
        if one.change:
            axes.axvline(place - 0.5, color=theme.muted, ls=(0, (3, 3)), lw=0.9, zorder=1)
            look: dict[str, Any] = {"ha": "center", "va": "bottom", "fontsize": 8, "color": theme.muted}
            axes.annotate(str(one.change), (place - 0.5, 1.0), xycoords=("data", "axes fraction"), **look)
    return plots.finish(figure, axes, labels, theme, "")


def outcome(archive: ComparedArchive) -> str:
    """Return how many cells have each verdict."""
    counted = Counter(cell.words for cell in archive.cells)
    return ", ".join(f"{count} {verdict}" for verdict, count in counted.most_common()) or "no cell in common"
