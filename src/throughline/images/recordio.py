"""MXNet's RecordIO as in InsightFace's data sets: `train.rec` with pictures and classes, and `train.idx` beside it.

A record is a magic number, its length, and its content padded to a multiple of four bytes. The content begins with the
header of MXNet's image records: how many labels follow, one label, two numbers. In these data sets record 0 holds no
picture. Its two labels are the number of pictures plus one, and the number of all records. The records after the
pictures say which pictures show the same person. We do not need them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

MAGIC = 0xCED7230A
HEAD = struct.Struct("<II")
"""The magic number and the length. The upper three bits of the length say if the next record continues this one."""
LENGTH = (1 << 29) - 1
IMAGE = struct.Struct("<IfQQ")
"""How many labels follow, a label, and two numbers that we do not need."""


class Broken(Exception):
    """A file is broken. The message says how."""


def pictures(path: Path) -> Iterator[tuple[int, tuple[int, int], int]]:
    """Yield for each picture: the number of its record, its place (first byte, number of bytes), and its class."""
    places = _index(path.with_suffix(".idx"))
    with path.open("rb") as stream:
        last = max(places)
        if 0 in places:
            labels, _ = _record(stream, places[0])
            last = int(labels[0]) - 1 if len(labels) == 2 else last
        for number in range(1 if 0 in places else min(places), last + 1):
            if number not in places:
                raise Broken(f"its index lacks record {number}")
            labels, (offset, size) = _record(stream, places[number])
            if size == 0:
                raise Broken(f"record {number} holds no picture")
            yield number, (offset, size), int(labels[0])


def _index(path: Path) -> dict[int, int]:
    """Map the number of each record to its first byte in the file."""
    try:
        pairs = [line.split("\t") for line in path.read_text(encoding="ascii").splitlines() if line]
        places = {int(number): int(place) for number, place in pairs}
    except FileNotFoundError:
        raise Broken(f"{path.name}, its index, is missing") from None
    except (ValueError, UnicodeDecodeError):
        raise Broken(f"{path.name} is no index: each line has a number and a place") from None
    if not places:
        raise Broken(f"{path.name} is empty")
    return places


def _record(stream: BinaryIO, place: int) -> tuple[tuple[float, ...], tuple[int, int]]:
    """Return the labels of a record, and the place of its picture (first byte, number of bytes)."""
    stream.seek(place)
    head = stream.read(HEAD.size)
    magic, length = HEAD.unpack(head) if len(head) == HEAD.size else (0, 0)
    if magic != MAGIC:
        raise Broken(f"at byte {place} there is no record")
    if length > LENGTH:
        raise Broken(f"the record at byte {place} goes on in another one, which pictures do not")
    content = stream.read(min(length, IMAGE.size))
    if len(content) < IMAGE.size:
        raise Broken(f"the record at byte {place} is cut off")
    count, label, _, _ = IMAGE.unpack(content)
    if 4 * count > length - IMAGE.size:
        raise Broken(f"the record at byte {place} has more labels than bytes")
    labels = struct.unpack(f"<{count}f", stream.read(4 * count)) if count else (label,)
    begin = place + HEAD.size + IMAGE.size + 4 * count
    return labels, (begin, length - IMAGE.size - 4 * count)
