"""The history of every cell over several archives: one small line for each, with intervals and changes marked."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any

from markupsafe import Markup, escape

from throughline import statistics
from throughline.numbers import reading
from throughline.records.compared import Compared, ComparedCell, ComparedPlace
from throughline.report.topic import Topic

WIDTH, HEIGHT = 300, 64
"""The size of a line, in its own units."""
LEFT, TOP, FOOT = 44, 10, 12
"""The room for values at the left, for the numbers of changes above, and for dates below."""
NAME = 22
"""How many characters of an archive's name stand at an end of a line."""
CHANGES, PARTS = 40, 6
"""How many changes are named below the lines, and how many parts of each."""
INTRO = (
    "Each cell over time, oldest first, from all archives and the present results. A dot is a median; its bar reaches "
    "from the slowest to the fastest repeat. The scale begins at the slowest and ends at the fastest repeat of the "
    "cell, and both stand at the left, in the unit beside the name. The first and the last measurement stand below. A "
    "dashed line with a number marks where devices, software or settings changed; a line above the plots says what."
)
DIFFERS = re.compile(r"(.+?): (.*) here, (.*) there")
"""A difference between the present results and an archive, as archive/differing.py words it."""


@dataclass(frozen=True)
class Look:
    """A cell at one time. changed: what differs from the present results."""

    started: str
    name: str
    repeats: Sequence[float]
    changed: tuple[str, ...] = ()

    @property
    def median(self) -> float:
        return statistics.median(list(self.repeats)) or 0.0


def section(compared: Compared) -> dict[str, Any]:
    """Return the history as the page prints it."""
    every = list(histories(compared))
    changes = numbered([looks for _, _, looks in every])
    plots = [
        Markup("{}<figcaption>{}, {}</figcaption>").format(line(looks, unit, changes), name, unit)
        for name, unit, looks in every
    ]
    remarks = [f"Change {number}, {text}." for text, number in list(changes.items())[:CHANGES]]
    if len(changes) > CHANGES:
        remarks.append(f"{len(changes) - CHANGES} more changes are in results/compare.json.")
    return {"topic": Topic("history", "Over time", INTRO), "table": None, "plots": plots, "remarks": remarks}


def numbered(every: Sequence[Sequence[Look]]) -> dict[str, int]:
    """Map each change of all cells in words to its number, oldest first."""
    found = {(look.started, _change(before, look)) for looks in every for before, look in pairwise(looks)}
    return {text: number for number, (_, text) in enumerate(sorted(change for change in found if change[1]), start=1)}


def histories(compared: Compared) -> Iterator[tuple[str, str, list[Look]]]:
    """Yield name, unit and looks of every cell that the present results have, oldest look first.

    Of an acceptance, those of all places of a kind as a whole.
    """
    found: dict[str, tuple[ComparedCell | ComparedPlace, list[Look]]] = {}
    for archive in compared.archives:
        for cell in archive.cells:
            changed = (*archive.differs, *cell.differs)
            now = Look(compared.started or "9", "here", cell.ours)
            look = Look(archive.started or "", archive.name, cell.theirs, changed)
            found.setdefault(cell.name, (cell, [now]))[1].append(look)
        accepted = archive.acceptance
        for place in accepted.places if accepted else ():
            if accepted and (place.whole or place.kind == "all"):  # all places one by one would be a page for nobody
                now = Look(accepted.started_here or "9", "here", place.ours)
                look = Look(accepted.started or "", archive.name, place.theirs, tuple(accepted.differs))
                found.setdefault(place.name, (place, [now]))[1].append(look)
    for name, (last, looks) in found.items():
        yield name, last.unit, sorted(looks, key=lambda look: look.started)


def line(looks: Sequence[Look], unit: str, changes: Mapping[str, int]) -> Markup:
    """Return the line of one cell. changes: the numbers of all changes."""
    low, high = min(min(look.repeats) for look in looks), max(max(look.repeats) for look in looks)
    room = (high - low) or high or 1.0

    def height(value: float) -> float:
        return TOP + 4 + (HEIGHT - 8) * (high - value) / room

    step = (WIDTH - LEFT) / max(1, len(looks))
    places = [LEFT + step * (index + 0.5) for index in range(len(looks))]
    marks = []
    for x, look in zip(places, looks, strict=True):
        ends = f"M{x:.4g} {height(max(look.repeats)):.4g}V{height(min(look.repeats)):.4g}"
        told = f"{escape(_named(look))}: {reading(look.median)} {escape(unit)}"
        dot = f'<circle class="dot" cx="{x:.4g}" cy="{height(look.median):.4g}" r="2.6"/>'
        marks.append(f'<g><title>{told}</title><path d="{ends}"/>{dot}</g>')
    for x, (before, look) in zip(places[1:], pairwise(looks), strict=True):
        if text := _change(before, look):
            title = f"<title>{escape(text)}</title>"
            marks.append(f'<path class="change" d="M{x - step / 2:.4g} {TOP}v{HEIGHT}">{title}</path>')
            marks.append(_text(x - step / 2, TOP - 2, str(changes[text]), "middle"))
    marks += [
        _text(LEFT - 3, height(high) + 3, reading(high), "end"),
        _text(LEFT - 3, height(low) + 3, reading(low), "end"),
        _text(LEFT, TOP + HEIGHT + FOOT - 3, _short(looks[0]), "start"),
        _text(WIDTH, TOP + HEIGHT + FOOT - 3, _short(looks[-1]), "end"),
    ]
    points = " ".join(f"{x:.4g},{height(look.median):.4g}" for x, look in zip(places, looks, strict=True))
    words = ", ".join(f"{look.name} {reading(look.median)}" for look in looks)
    return Markup(
        f'<svg class="history" viewBox="0 0 {WIDTH} {TOP + HEIGHT + FOOT}" role="img" '
        f'aria-label="{escape(words)} {escape(unit)}"><polyline points="{points}"/>{"".join(marks)}</svg>'
    )


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.4g}" y="{y:.4g}" text-anchor="{anchor}">{escape(text)}</text>'


def _change(before: Look, after: Look) -> str:
    """Return where and what changed between two looks; empty if nothing did.

    A look knows its differences from the present results. What is none has the present value.
    """
    then, now = (_values(look.changed) for look in (before, after))
    parts = []
    for name in dict.fromkeys([*then, *now]):
        here = (then.get(name) or now[name])[0]
        old, new = (known[name][1] if name in known else here for known in (then, now))
        if old != new:
            parts.append(f"{name} from {old} to {new}")
    if not parts:
        return ""
    more = f"; and {len(parts) - PARTS} more" if len(parts) > PARTS else ""
    return f"before {_named(after)}: {'; '.join(parts[:PARTS])}{more}"


def _values(changed: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Map the name of each difference to the values here and there."""
    found = (DIFFERS.fullmatch(text) for text in changed)
    return {match[1]: (match[2], match[3]) for match in found if match}


def _named(look: Look) -> str:
    return f"{look.name}, {_day(look.started)}"


def _short(look: Look) -> str:
    name = look.name if len(look.name) <= NAME else f"{look.name[: NAME - 3]}..."
    return f"{name}, {_day(look.started)}"


def _day(started: str) -> str:
    try:
        return datetime.fromisoformat(started).strftime("%Y-%m-%d")
    except ValueError:
        return "date not known"
