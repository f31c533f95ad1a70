"""Decide for a CI whether cells became slower: by more than the noise, and by more than a limit."""

import math
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from throughline.files import UserError
from throughline.numbers import percent
from throughline.records import Compared
from throughline.records.compared import ComparedArchive, ComparedCell, ComparedPlace

Decision = Literal["slower", "fine", "cannot be told"]
STATUS: dict[Decision, int] = {"fine": 0, "slower": 1, "cannot be told": 2}
ANNOTATIONS: dict[Decision, str] = {"slower": "error", "cannot be told": "warning", "fine": "notice"}


@dataclass(frozen=True)
class Judged:
    archive: str
    cell: ComparedCell | ComparedPlace
    decision: Decision

    def __str__(self) -> str:
        cell, tested = self.cell, ""
        if cell.tested_ratio and cell.tested_at_least and cell.tested_at_most:
            change, low, high = (end - 1 for end in (cell.tested_ratio, cell.tested_at_least, cell.tested_at_most))
            tested = f"{100 * change:+.1f} % ({100 * low:+.1f} to {100 * high:+.1f} %), "
        return f"{cell.name} against {self.archive}: {self.decision}: {tested}{cell.words}, {cell.because}"


def share(text: str) -> float:
    """Return the share that a text such as `2%` or `0.02` states; UserError if it states none."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(%?)\s*", text)
    value = float(match[1]) / (100 if match[2] else 1) if match else math.nan
    if not 0 <= value < 1:
        raise UserError(f"--by {text} is no share", next_step="write it as 2% or 0.02")
    return value


def judge(compared: Compared, by: float) -> list[Judged]:
    """Decide each cell and each place of each archive. `by`: a loss of speed up to this share is accepted."""
    return [
        Judged(archive.name, cell, _decision(cell, 1 - by))
        for archive in compared.archives
        for cell in _everything(archive)
    ]


def _everything(archive: ComparedArchive) -> Iterator[ComparedCell | ComparedPlace]:
    yield from archive.cells
    if archive.acceptance:
        yield from archive.acceptance.places


def _decision(cell: ComparedCell | ComparedPlace, limit: float) -> Decision:
    """Decide one cell. limit: the smallest ratio that is accepted.

    It is slower if the test says so and its ratio is below the limit. It is fine if the whole interval is above the
    limit, or if the test says that it is faster or no different. Otherwise a loss beyond the limit is possible.
    """
    if cell.tested_ratio is None or cell.tested_at_least is None or cell.verdict == "not comparable":
        return "cannot be told"
    if cell.verdict == "slower" and cell.tested_ratio < limit:
        return "slower"
    if cell.tested_at_least >= limit or cell.verdict in ("faster", "slower"):
        return "fine"
    return "cannot be told"


def status(judged: Sequence[Judged]) -> int:
    """Return the exit status: 1 if something is slower, else 2 if something cannot be told, else 0."""
    decisions = {one.decision for one in judged}
    if "slower" in decisions:
        return STATUS["slower"]
    return STATUS["cannot be told" if "cannot be told" in decisions or not judged else "fine"]


def lines(judged: Sequence[Judged], by: str) -> Iterator[str]:
    """Yield a line for each cell, and how many there are. On GitHub Actions, the lines are its annotations."""
    on_github = os.environ.get("GITHUB_ACTIONS") == "true"
    for one in judged:
        command = f"::{ANNOTATIONS[one.decision]} title=Training speed::" if on_github else ""
        yield f"{command}{_escaped(str(one)) if on_github else one}"
    counted = Counter(one.decision for one in judged)
    told = ", ".join(f"{counted[decision]} {decision}" for decision in STATUS if counted[decision])
    what = "cells and places" if any(isinstance(one.cell, ComparedPlace) for one in judged) else "cells"
    yield f"{len(judged)} {what}: {told or 'nothing to compare'} (slower: by more than {percent(share(by), 1)})"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
