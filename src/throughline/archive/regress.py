"""Decide for a CI whether cells became slower: by more than the noise, and by more than a limit."""

import math
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from throughline.files import UserError
from throughline.numbers import percent, signed
from throughline.records import Compared
from throughline.records.compared import ComparedArchive, ComparedCell, ComparedKind

Decision = Literal["slower", "fine", "cannot be told"]
STATUS: dict[Decision, int] = {"fine": 0, "slower": 1, "cannot be told": 2}
WORST_FIRST: tuple[Decision, ...] = ("slower", "cannot be told", "fine")
ANNOTATIONS: dict[Decision, str] = {"slower": "error", "cannot be told": "warning", "fine": "notice"}
GONE = "the archive has it, and the present results have no figure for it"


@dataclass(frozen=True)
class Judged:
    """One cell or place against one archive. why: the figures and the verdict that decide it, or what is missing."""

    archive: str
    name: str
    decision: Decision
    why: str

    def __str__(self) -> str:
        return f"{self.name} against {self.archive}: {self.decision}: {self.why}"


def share(text: str) -> float:
    """Return the share that a text such as `2%` or `0.02` states; UserError if it states none."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(%?)\s*", text)
    value = float(match[1]) / (100 if match[2] else 1) if match else math.nan
    if not 0 <= value < 1:
        raise UserError(f"--by {text} is no share", next_step="write it as 2% or 0.02")
    return value


def judge(compared: Compared, by: float) -> list[Judged]:
    """Decide each cell and each place of each archive. `by`: a loss of speed up to this share is accepted."""
    return [item for archive in compared.archives for item in _of_archive(archive, 1 - by)]


def _of_archive(archive: ComparedArchive, limit: float) -> Iterator[Judged]:
    accepted = archive.acceptance
    for cell in (*archive.cells, *(accepted.kinds if accepted else ())):
        why = f"{cell.words}, {cell.because}"
        if cell.tested_ratio and cell.tested_at_least and cell.tested_at_most:  # the interval that decides
            change, low, high = (end - 1 for end in (cell.tested_ratio, cell.tested_at_least, cell.tested_at_most))
            why = f"{signed(change)} ({100 * low:+.1f} to {signed(high)}, 90 % interval), {why}"
        yield Judged(archive.name, cell.name, _decision(cell, limit), why)
    for name in (*archive.only_there, *(accepted.only_there if accepted else ())):
        why = ": ".join(filter(None, [GONE, archive.failed.get(name)]))
        yield Judged(archive.name, name, "cannot be told", why)
    for why in archive.unreadable:
        yield Judged(archive.name, "a summary", "cannot be told", why)


def _decision(cell: ComparedCell | ComparedKind, limit: float) -> Decision:
    """Decide one cell. limit: the smallest ratio that is accepted.

    It is slower if the test says so and the whole interval is below the limit, and fine if the whole interval is not.
    Otherwise nobody can tell: the interval has ratios on both sides of the limit, or the loss may be noise.
    """
    low, high = cell.tested_at_least, cell.tested_at_most
    if low is None or high is None or cell.verdict == "not comparable":
        return "cannot be told"
    if low >= limit:
        return "fine"
    return "slower" if cell.verdict == "slower" and high < limit else "cannot be told"


def status(judged: Sequence[Judged]) -> int:
    """Return the exit status: 1 if something is slower, else 2 if something cannot be told or is gone, else 0."""
    decisions = {item.decision for item in judged} or {"cannot be told"}
    return STATUS[next(decision for decision in WORST_FIRST if decision in decisions)]


def lines(judged: Sequence[Judged], by: str) -> Iterator[str]:
    """Yield a line for each cell, and how many there are. On GitHub Actions, the lines are its annotations."""
    on_github = os.environ.get("GITHUB_ACTIONS") == "true"
    for item in judged:
        escaped = str(item).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
        yield f"::{ANNOTATIONS[item.decision]} title=Training speed::{escaped}" if on_github else str(item)
    counted = Counter(item.decision for item in judged)
    counts = ", ".join(f"{counted[decision]} {decision}" for decision in STATUS if counted[decision])
    yield f"{len(judged)} compared: {counts or 'nothing'} (slower: by more than {percent(share(by), 1)})"
