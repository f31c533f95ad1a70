"""The history of every cell over several archives: one small line for each, with intervals and changes marked."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from markupsafe import Markup, escape

from throughline import statistics
from throughline.numbers import reading
from throughline.records.compared import Compared, ComparedCell, ComparedPlace
from throughline.report.topic import Topic

WIDTH, HEIGHT = 300, 64
"""The size of a line, in its own units."""
INTRO = (
    "Each cell over time, oldest first, from all archives and the present results. A dot is a median; its bar reaches "
    "from the slowest to the fastest repeat. A dashed line marks where devices, software or settings changed. The "
    "scale begins at the slowest and ends at the fastest repeat of the cell."
)


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
    plots = [
        Markup("{}<figcaption>{}</figcaption>").format(line(looks, unit), name)
        for name, unit, looks in histories(compared)
    ]
    return {"topic": Topic("history", "Over time", INTRO), "table": None, "plots": plots, "remarks": []}


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


def line(looks: Sequence[Look], unit: str) -> Markup:
    """Return the line of one cell."""
    low, high = min(min(look.repeats) for look in looks), max(max(look.repeats) for look in looks)
    room = (high - low) or high or 1.0

    def height(value: float) -> float:
        return 4 + (HEIGHT - 8) * (high - value) / room

    step = WIDTH / max(1, len(looks))
    places = [step * (index + 0.5) for index in range(len(looks))]
    marks, before = [], None
    for x, look in zip(places, looks, strict=True):
        if before is not None and look.changed != before.changed:
            marks.append(
                f'<path class="change" d="M{x - step / 2:.4g} 0V{HEIGHT}"><title>{_change(before, look)}</title></path>'
            )
        ends = f"M{x:.4g} {height(max(look.repeats)):.4g}V{height(min(look.repeats)):.4g}"
        told = f"{escape(look.name)}, {_day(look.started)}: {reading(look.median)} {escape(unit)}"
        dot = f'<circle class="dot" cx="{x:.4g}" cy="{height(look.median):.4g}" r="2.6"/>'
        marks.append(f'<g><title>{told}</title><path d="{ends}"/>{dot}</g>')
        before = look
    points = " ".join(f"{x:.4g},{height(look.median):.4g}" for x, look in zip(places, looks, strict=True))
    words = ", ".join(f"{look.name} {reading(look.median)}" for look in looks)
    return Markup(
        f'<svg class="history" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(words)} {escape(unit)}">'
        f'<polyline points="{points}"/>{"".join(marks)}</svg>'
    )


def _change(before: Look, after: Look) -> str:
    """Return what changed between two looks, as far as the differences from the present results tell."""
    changed = [*(text for text in before.changed if text not in after.changed),
               *(text for text in after.changed if text not in before.changed)]  # fmt: skip
    return str(escape("; ".join(changed[:6])))


def _day(started: str) -> str:
    try:
        return datetime.fromisoformat(started).strftime("%Y-%m-%d")
    except ValueError:
        return "date not known"
