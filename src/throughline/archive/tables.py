"""Make the tables of an archive again from its summaries, and say what differs."""

import bisect
import csv
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from throughline.archive.differences import ROUNDING, Difference, Found

Columns = Mapping[str, Sequence[str]]


def folders(kept: Path, again: Path, name: str) -> Found:
    """Yield the tables in `kept` that are not those in `again`. name: that of the folder in the archive."""
    stated, derived = ({path.relative_to(of): path for path in of.rglob("*") if path.is_file()} for of in (kept, again))
    for path in sorted(stated.keys() | derived.keys()):
        if path not in stated or path not in derived:
            told = "the archive lacks this table" if path not in stated else "no such table follows from the summaries"
            yield Difference(f"{name}/{path}", "", told, word=True)
            continue
        one, other = (of[path].read_text(encoding="utf-8", errors="replace") for of in (stated, derived))
        yield from lines(f"{name}/{path}", one, other)
        if path.suffix == ".csv" and one != other:
            yield from _numbers(f"{name}/{path}", one, other)


def lines(name: str, stated: str, derived: str) -> Found:
    """Yield the first line of a text that differs."""
    if line := _first_difference(stated.splitlines(), derived.splitlines()):
        yield Difference(name, f"line {line}", "another line follows from the summaries", word=True)


def _first_difference(one: Sequence[str], other: Sequence[str]) -> int | None:
    """Return the number of the first line that differs."""
    pairs = enumerate(zip(one, other, strict=False), 1)
    return next((number for number, (a, b) in pairs if a != b), None if len(one) == len(other) else len(one) + 1)


def _numbers(name: str, stated: str, derived: str) -> Found:
    """Yield the numbers of a table that stand nowhere in the same column of the table that follows.

    Other rules may sort the rows otherwise, and may have other columns. They make no other number in a column of the
    same name.
    """
    try:
        ours, theirs = _columns(stated), _columns(derived)
    except csv.Error as error:
        yield Difference(name, "", f"it cannot be read: {error}")
        return
    for column in (name for name in ours if name in theirs):
        known = sorted(value for cell in theirs[column] if (value := _number(cell)) is not None)
        for line, cell in enumerate(ours[column], 2):
            value = _number(cell)
            if value is not None and not _among(value, known):
                told = f"{column} states {cell[:40]}, and no such number follows from the summaries"
                yield Difference(name, f"row {line}", told)


def _columns(text: str) -> dict[str, list[str]]:
    rows = csv.reader(io.StringIO(text))
    header, *rest = [*rows] or [[]]
    return {name: [row[at] if at < len(row) else "" for row in rest] for at, name in enumerate(header)}


def _number(cell: str) -> float | None:
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _among(value: float, known: Sequence[float]) -> bool:
    """True if a number is one of these, but for the rounding of sums."""
    at = bisect.bisect_left(known, value)
    return any(math.isclose(value, one, rel_tol=ROUNDING, abs_tol=1e-12) for one in known[max(0, at - 1) : at + 1])
