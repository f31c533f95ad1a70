"""Read a dump's files as text, check them while reading, and find the places at which they can be cut.

What a position means depends on the kind of the file:
* `xml`: a byte of the file.
* `bz2-streams`: a byte of the file at which a stream begins. Each part reads only its own streams.
* `bz2`: a byte of the decompressed text, for a file with fewer streams than parts. Each part decompresses the file from
  the beginning and keeps its share. So nothing has to be unpacked to disk or packed again.
"""

import bz2
import mmap
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from throughline.files import UserError
from throughline.progress import Progress

CLOSING = b"</mediawiki>"
READ = 1 << 18
"""Bytes that are read at a time."""
_UNPACKED = 1 << 20
_RATIO, _BEFORE = 1000, 64 << 20
"""A dump unpacks to about 5 times its size. A file that unpacks to more than 1,000 times (plus 64 MiB) is no dump."""
_TAIL = 4096
_STREAM = re.compile(rb"BZh[1-9]1AY&SY")


@dataclass(frozen=True)
class DumpFile:
    """One file of the dump. `end` is the position of the file's end, in the unit of its kind."""

    path: str
    kind: str
    end: int


def damaged(path: str | Path, why: str) -> UserError:
    """Return the error for a file that does not hold a whole dump."""
    return UserError(
        f"{path} is damaged, or not whole",
        why=why,
        next_step="download the file again and compare it with the checksum published beside it",
    )


def text(file: DumpFile, begin: int) -> Iterator[tuple[int, bytes]]:
    """Yield the text from position `begin` to the end of the file in pieces, each after its position."""
    path = Path(file.path)
    if file.kind == "xml":
        with path.open("rb") as stream:
            stream.seek(begin)
            while data := stream.read(READ):
                yield begin, data
                begin += len(data)
    elif file.kind == "bz2-streams":
        yield from decompressed(path, begin)
    else:
        position = 0
        for _, data in decompressed(path, 0):
            skip = min(max(begin - position, 0), len(data))
            if skip < len(data):
                yield position + skip, data[skip:]
            position += len(data)


def decompressed(path: Path, offset: int) -> Iterator[tuple[int, bytes]]:
    """Yield decompressed text from the stream at `offset` on, in pieces, each after the offset of its stream.

    Python's bz2 file object ignores data after a stream that do not begin another stream, as if they were padding. So a
    damaged stream header would silently end the dump. Here it is an error. A file that unpacks to far too much is too.
    """
    with path.open("rb") as stream:
        stream.seek(offset)
        start, unit, data, length = offset, bz2.BZ2Decompressor(), stream.read(READ), 0
        while data or not unit.needs_input:
            try:
                text = unit.decompress(data, _UNPACKED)
            except (OSError, ValueError):
                raise damaged(path, f"the bz2 stream at byte {start} does not decompress") from None
            length += len(text)
            if length > _BEFORE + _RATIO * (stream.tell() - offset):
                raise damaged(path, f"the bz2 stream at byte {start} unpacks to more than {_RATIO:,} times its size")
            if text:
                yield start, text
            if not unit.eof:
                data = stream.read(READ) if unit.needs_input else b""
                continue
            data = unit.unused_data or stream.read(READ)
            if not data:
                return
            start = stream.tell() - len(data)
            unit = bz2.BZ2Decompressor()
        raise damaged(path, "it ends in the middle of its compressed data")


def positions(path: Path, size: int, pieces: int) -> tuple[DumpFile, Callable[[int], int]]:
    """Return the file with its kind and end, and a function that maps a byte on disk to a position to cut at.

    The function is monotonic and maps 0 to the beginning and `size` to the end. `pieces`: how many parts share this
    file. UserError if the dump in the file does not end as it should.
    """
    with path.open("rb") as stream:
        if stream.read(3) != b"BZh":
            stream.seek(max(0, size - _TAIL))
            _check_closing(path, stream.read())
            return DumpFile(str(path), "xml", size), lambda byte: byte
    if pieces > 1 and sum(1 for _ in islice(_streams(path), pieces)) < pieces:
        progress, length, tail = Progress(f"measuring {path.name}", 0), 0, b""
        for _, text in decompressed(path, 0):
            length, tail = length + len(text), (tail + text)[-_TAIL:]
            progress.to(length)
        _check_closing(path, tail)
        return DumpFile(str(path), "bz2", length), lambda byte: byte * length // size
    _check_closing(path, _tail(path))

    def border(byte: int) -> int:
        if not 0 < byte < size:
            return byte
        return next((start for start in _streams(path, byte) if _is_stream(path, start)), size)

    return DumpFile(str(path), "bz2-streams", size), border


def _streams(path: Path, begin: int = 0) -> Iterator[int]:
    """Yield where streams seem to begin, from a byte of the file on. The file is read only as far as needed."""
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for match in _STREAM.finditer(data, begin):
            yield match.start()


def _is_stream(path: Path, start: int) -> bool:
    """True if the bytes at `start` really decompress, so that the magic bytes there are no coincidence."""
    try:
        return next(decompressed(path, start), None) is not None
    except UserError:
        return False


def _tail(path: Path) -> bytes:
    """Return the text of the last streams, enough to see how the dump ends."""
    tail = b""
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        start = len(data)
        while start > 0 and len(tail) <= len(CLOSING) + 16:
            start = data.rfind(b"BZh", 0, start)
            if start == 0 or (_STREAM.match(data, start) and _is_stream(path, start)):
                tail = b""
                for _, text in decompressed(path, start):
                    tail = (tail + text)[-_TAIL:]
    return tail


def is_end(text: bytes) -> bool:
    """Return whether a text is blank but for comments, as what follows the last tag of XML may be."""
    return not re.sub(rb"<!--.*?-->", b"", text, flags=re.DOTALL).strip()


def _check_closing(path: Path, tail: bytes) -> None:
    _, closing, after = tail.partition(CLOSING)
    if not closing:
        raise damaged(path, f"it does not end with {CLOSING.decode()}: the download or the copy stopped early")
    if not is_end(after):
        raise damaged(path, f"something follows {CLOSING.decode()}: {after.strip()[:60]!r}")
