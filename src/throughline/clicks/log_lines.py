"""Read the lines of Criteo's logs: a label, 13 whole numbers and 26 categories of 8 hex digits, separated by tabs.

An empty number or category is missing.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from throughline.files import UserError
from throughline.randomness import splitmix64

NUMBERS, FIELDS = 13, 26
LINE = re.compile(rb"[01](?:\t(?:-?\d{1,10})?){13}(?:\t(?:[0-9a-f]{8})?){26}")
AT_ONCE = 1 << 17
"""How many lines are in memory at a time."""
TYPES = {"labels": ("u1", ()), "numbers": ("<f4", (NUMBERS,)), "ids": ("<u4", (FIELDS,))}
"""The arrays of parts and shards: type, and shape of a row. `ids` are hashes, which a run maps to its vocabulary."""

Rows = dict[str, NDArray[Any]]


def blocks(path: Path) -> Iterator[tuple[Rows, list[int]]]:
    """Yield the rows of a log, some at a time, with the numbers (from 1) of the malformed lines among them.

    The file may be compressed with gzip, whatever its name is. UserError if it cannot be read to its end.
    """
    try:
        with path.open("rb") as plain:
            packed = plain.read(2) == b"\x1f\x8b"
        with gzip.open(path) if packed else path.open("rb") as stream:
            first = 1
            while lines := [line.rstrip(b"\r\n") for line in islice(stream, AT_ONCE)]:
                bad = [first + at for at, line in enumerate(lines) if not LINE.fullmatch(line)]
                yield rows([line for line in lines if LINE.fullmatch(line)] if bad else lines), bad
                first += len(lines)
    except (OSError, EOFError) as error:
        raise UserError(
            f"{path} cannot be read to its end",
            why=str(error),
            next_step="correct clicks.source in config.yaml, or copy the file again from its source",
        ) from None


def rows(lines: list[bytes]) -> Rows:
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
