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
WHOLE_AGAIN = "download the file again and compare it with the checksum published beside it"
READ = 1 << 18
"""Bytes that are read at a time."""
_UNPACKED = 1 << 20
_RATIO, _BEFORE = 1000, 64 << 20
"""A dump unpacks to about 5 times its size. A file that unpacks to more than 1,000 times (plus 64 MiB) is no dump."""
_STREAM = re.compile(rb"BZh[1-9]1AY&SY")


@dataclass(frozen=True)
class DumpFile:
    """One file of the dump. `end` is the position of the file's end, in the unit of its kind."""

    path: str
    kind: str
    end: int


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
                raise _damaged(path, start) from None
            length += len(text)
            if length > _BEFORE + _RATIO * (stream.tell() - offset):
                raise UserError(
                    f"{path} unpacks to more than {_RATIO:,} times its size",
                    why=f"no dump does; it was read to byte {stream.tell()}, in the bz2 stream at byte {start}",
                    next_step="use the dump as it was published",
                )
            if text:
                yield start, text
            if not unit.eof:
                data = stream.read(READ) if unit.needs_input else b""
                continue
            data = unit.unused_data
            if len(data) < 3:
                data += stream.read(READ)
            if not data:
                return
            start = stream.tell() - len(data)
            if not data.startswith(b"BZh"):
                raise _damaged(path, start)
            unit = bz2.BZ2Decompressor()
        raise UserError(
            f"{path} ends in the middle of its compressed data", why="the file is not whole", next_step=WHOLE_AGAIN
        )


def positions(path: Path, size: int, pieces: int) -> tuple[DumpFile, Callable[[int], int]]:
    """Return the file with its kind and end, and a function that maps a byte on disk to a position to cut at.

    The function is monotonic and maps 0 to the beginning and `size` to the end. `pieces`: how many parts share this
    file.
    """
    with path.open("rb") as stream:
        if stream.read(3) != b"BZh":
            stream.seek(max(0, size - 4096))
            _check_closing(path, stream.read())
            return DumpFile(str(path), "xml", size), lambda byte: byte
        few = sum(1 for _ in islice(_streams(path), pieces)) < pieces if pieces > 1 else False
    if few:
        progress, length, tail = Progress(f"measuring {path.name}", 0), 0, b""
        for _, text in decompressed(path, 0):
            length, tail = length + len(text), (tail + text)[-4096:]
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


def _streams_backwards(path: Path) -> Iterator[int]:
    """Yield where streams seem to begin, from the end of the file backwards."""
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        end = len(data)
        while (end := data.rfind(b"BZh", 0, end)) >= 0:
            if _STREAM.match(data, end):
                yield end


def _is_stream(path: Path, start: int) -> bool:
    """True if the bytes at `start` really decompress, so that the magic bytes there are no coincidence."""
    try:
        return next(decompressed(path, start), None) is not None
    except UserError:
        return False


def _damaged(path: Path, offset: int) -> UserError:
    return UserError(
        f"{path} is damaged at byte {offset}", why="the bz2 stream there does not decompress", next_step=WHOLE_AGAIN
    )


def _tail(path: Path) -> bytes:
    """Return the text of the last streams, enough to see how the dump ends."""
    tail = b""
    for start in _streams_backwards(path):
        if not start or _is_stream(path, start):
            tail = b""
            for _, text in decompressed(path, start):
                tail = (tail + text)[-4096:]
            if len(tail) > len(CLOSING) + 16:
                break
    return tail


def _check_closing(path: Path, tail: bytes) -> None:
    if not tail.rstrip().endswith(CLOSING):
        raise UserError(
            f"{path} is not a whole dump",
            why=f"it does not end with {CLOSING.decode()}: the download or the copy stopped early",
            next_step=WHOLE_AGAIN,
        )
