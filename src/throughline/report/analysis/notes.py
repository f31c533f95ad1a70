"""The notes beside a group's results: the reasons and warnings of its cells, and steps that were not compiled."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING

from throughline import frameworks
from throughline.grouping import grouped
from throughline.records import Summary
from throughline.report.analysis.baseline import ONE_DEVICE

if TYPE_CHECKING:
    from throughline.report.analysis.cells import Cell, Group

NAMED = 6
"""A warning about more cells than these names none of them."""
NUMBER = re.compile(r"(?<![\w.-])\d+(?:\.\d+)?(?!\w|\.\d|-\d)")
"""A number that is a word of its own: no part of a version, a date, a topology or a name."""


def merged(texts: Iterable[str]) -> list[str]:
    """Return the texts in their order. Of texts that differ only in their numbers, the one with the largest remains."""
    return list(map(_largest, grouped(texts, form).values()))


def _largest(texts: Iterable[str]) -> str:
    return max(texts, key=lambda text: list(map(float, NUMBER.findall(text))))


def form(text: str) -> str:
    """Return a text with `#` for its numbers."""
    return NUMBER.sub("#", text)


@dataclass(frozen=True)
class Note:
    """A reason or a warning, and the cells it is about."""

    where: str
    text: str
    kind: str


def notes(group: Group) -> list[Note]:
    """Return the reasons and warnings of all cells, after a note for each baseline that is not one device.

    Texts that differ only in their numbers are one note, which says whose numbers it has.
    """
    told: dict[tuple[str, str], list[tuple[Cell, str]]] = {}
    for cell in group.cells:
        for kind, texts in (("reason", cell.record.reasons), ("warning", cell.record.warnings)):
            for text in texts:
                told.setdefault((kind, form(text)), []).append((cell, text))
    text = "its speedups are relative to {}, the smallest topology on which the model's layout is possible"
    moved = {name: base for name, base in group.summary.baselines.items() if base != ONE_DEVICE}
    return [
        *(Note(name, text.format(base), "reason") for name, base in moved.items()),
        *(
            Note(_place(group, [cell for cell, _ in same]), _told(group, same), kind)
            for (kind, _), same in told.items()
        ),
    ]


def _told(group: Group, same: Sequence[tuple[Cell, str]]) -> str:
    largest = _largest(text for _, text in same)
    cells = [cell for cell, text in same if text == largest]
    return largest if len(cells) == len(same) else f"{largest} (numbers of {_place(group, cells[:1])})"


def _place(group: Group, cells: Sequence[Cell]) -> str:
    """Name these cells, such as `torch 1n1g, 1n2g; jax 1n1g`; of many, say how many."""
    named = dict.fromkeys((cell.framework, str(cell.topology)) for cell in cells)
    total = sum(bool(cell.record.statuses) for cell in group.cells)
    if len(named) > NAMED:
        return f"all {total} cells" if len(named) == total else f"{len(named)} of {total} cells"
    return in_groups(named)


def in_groups(pairs: Iterable[tuple[str, str]], colon: str = "") -> str:
    """Return pairs as text, such as `torch 1n1g, 1n2g; jax 1n1g`. colon: stands behind the first of each pair."""
    groups = grouped(dict.fromkeys(pairs), itemgetter(0))
    return "; ".join(f"{first}{colon} {', '.join(second for _, second in same)}" for first, same in groups.items())


def not_compiled(group: Group) -> Iterator[Note]:
    """Yield a note for each framework whose steps on GPUs were not compiled, although it can compile them."""
    summary = group.summary
    on_gpus = summary.device is not None and summary.device.kind != "cpu"
    if not (on_gpus and group.trains) or summary.options.compile is True:
        return
    why = eager(summary)
    if summary.options.compile is False:
        why = dict.fromkeys(group.frameworks, "options.compile is false")
    for name, reason in why.items():
        if group.series(name) and "compile" in frameworks.features(name, summary.model):
            yield Note(name, f"slower than these GPUs could be, because the step is not compiled: {reason}", "reason")


def eager(summary: Summary) -> dict[str, str]:
    """Map each framework whose runs left the model eager to the reason, if the summary's `compile` is `auto`."""
    told = {name: str((built or {}).get("compiling", "")) for name, built in (summary.settings or {}).items()}
    return {name: words for name, words in told.items() if words.startswith("not compiled")}
