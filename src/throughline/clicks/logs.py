"""Criteo's logs: read their lines, and write synthetic logs in their format.

A line has a label, 13 whole numbers and 26 categories of 8 hex digits, separated by tabs. An empty number or category
is missing.
"""

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from throughline import files
from throughline.clicks.reading import FIELDS, NUMBERS, Rows
from throughline.files import UserError
from throughline.randomness import splitmix64
from throughline.text_files import UNREADABLE, opened
from throughline.workloads import wide_deep

LINE = re.compile(rb"[01](?:\t(?:-?\d{1,10})?){13}(?:\t(?:[0-9a-f]{8})?){26}")
LINES_AT_ONCE = 1 << 17
"""How many lines are in memory at a time."""
DRAWN_AT_ONCE = 1 << 14
"""How many synthetic lines are drawn at a time. The number decides the values."""
MISSING = 0.05
"""The share of synthetic numbers that are missing. The rule of clicks counts a missing number as 0."""


def blocks(path: Path) -> Iterator[tuple[Rows, list[int]]]:
    """Yield the rows of a log, some at a time, with the numbers (from 1) of the malformed lines among them.

    The file may be compressed with gzip, whatever its name is. UserError if it cannot be read to its end.
    """
    try:
        with opened(path) as stream:
            first = 1
            while lines := [line.rstrip(b"\r\n") for line in islice(stream, LINES_AT_ONCE)]:
                bad = [first + at for at, line in enumerate(lines) if not LINE.fullmatch(line)]
                yield _rows([line for line in lines if LINE.fullmatch(line)] if bad else lines), bad
                first += len(lines)
    except UNREADABLE as error:
        raise UserError(
            f"{path} cannot be read to its end",
            why=str(error),
            next_step="correct clicks.source in config.yaml, or copy the file again from its source",
        ) from None


def _rows(lines: list[bytes]) -> Rows:
    """Return the rows of well-formed lines."""
    cells = np.array([line.split(b"\t") for line in lines], "S11").reshape(-1, 1 + NUMBERS + FIELDS)
    whole = cells[:, 1 : 1 + NUMBERS]
    counts = np.where(whole == b"", b"0", whole).astype(np.int64)
    categories = np.ascontiguousarray(cells[:, 1 + NUMBERS :].astype("S8"))
    return {
        "labels": cells[:, 0].astype(np.uint8),
        "numbers": np.log1p(np.maximum(counts, 0)).astype("<f4"),
        "ids": hashed(categories),
    }


def hashed(categories: NDArray[Any]) -> NDArray[np.uint32]:
    """Return a hash u4[N, 26] of each category S8[N, 26].

    Equal categories in different fields are hashed differently. A missing category is a category of its own.
    """
    digits = categories.view(np.uint8).reshape(*categories.shape, 8).astype(np.uint64)
    nibbles = np.where(digits > 57, digits - np.uint64(87), digits - np.uint64(48)) & np.uint64(15)
    values = (nibbles << np.arange(28, -1, -4, dtype=np.uint64)).sum(2, dtype=np.uint64)
    values = np.where(categories == b"", np.uint64(1 << 32), values)
    field = np.arange(FIELDS, dtype=np.uint64) << np.uint64(40)
    return (splitmix64(values + field) >> np.uint64(32)).astype("<u4")


def write_synthetic(path: Path, day: int, rows: int, values: int) -> None:
    """Write a synthetic log: values by Zipf's law within each field, and clicks by a rule that can be learned.

    day: decides what is drawn. values: the number of different categories in all fields together.
    """
    draw = np.random.Generator(np.random.Philox(key=day))
    sizes = wide_deep.cardinalities(values)
    with files.atomic(path) as temporary, temporary.open("wb") as stream:
        for first in range(0, rows, DRAWN_AT_ONCE):
            count = min(DRAWN_AT_ONCE, rows - first)
            drawn = wide_deep.drawn(draw, count, sizes)
            numbers = draw.lognormal(size=(count, NUMBERS)).astype(np.int64)
            missing = draw.random(numbers.shape) < MISSING
            labels = wide_deep.clicked(draw, drawn, np.log1p(np.where(missing, 0, numbers)))
            names = (drawn * 2654435761 % 2**32).tolist()
            whole = np.where(missing, "", numbers.astype("U11")).tolist()
            for label, some, categories in zip(labels.astype(int).tolist(), whole, names, strict=True):
                cells = [str(label), *some, *(f"{category:08x}" for category in categories)]
                stream.write("\t".join(cells).encode() + b"\n")
