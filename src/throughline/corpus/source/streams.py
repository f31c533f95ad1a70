"""A dump's files as text, checked while they are read, and the places at which they can be cut.

A position is, by the file's kind: `xml`: a byte of the file; `bz2-streams`: a byte of the file at which a stream begins
(a part reads its own streams only); `bz2`: a byte of the decompressed text, for files of fewer streams than parts (each
part decompresses from the beginning and keeps its share, which needs neither twice the disk nor packing it again).
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
"""A dump unpacks to some 5 times its size. More than 1,000 times, beyond the first 64 MiB, is no dump."""
_STREAM = re.compile(rb"BZh[1-9]1AY&SY")


@dataclass(frozen=True)
class DumpFile:
    """One file of the dump; `end` is the position after its last page, in the unit of its kind."""

    path: str
    kind: str
    end: int


def text(file: DumpFile, begin: int) -> Iterator[tuple[int, bytes]]:
    """Text from position `begin` to the end of the file, each time with the position at which it stands."""
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
    """Decompressed text from the stream at `offset` on, each time with the offset of the stream it comes from.

    Python's bz2 file object takes whatever follows a stream and is no stream for padding, so a damaged stream
    header would silently end the dump; here it is an error. So is a file that grows without end.
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
    """The file's kind and end, and a function from a byte of the file on disk to a position to cut it at.

    The function is monotonic, 0 is the beginning and `size` the end. `pieces`: how many parts share this file.
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
    """Where streams seem to begin, from a byte of the file on. What nobody asks for is not read."""
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for match in _STREAM.finditer(data, begin):
            yield match.start()


def _streams_backwards(path: Path) -> Iterator[int]:
    """The same from the end on."""
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        end = len(data)
        while (end := data.rfind(b"BZh", 0, end)) >= 0:
            if _STREAM.match(data, end):
                yield end


def _is_stream(path: Path, start: int) -> bool:
    """True where the bytes at `start` really decompress, so that the magic there is no coincidence."""
    try:
        return next(decompressed(path, start), None) is not None
    except UserError:
        return False


def _damaged(path: Path, offset: int) -> UserError:
    return UserError(
        f"{path} is damaged at byte {offset}", why="the bz2 stream there does not decompress", next_step=WHOLE_AGAIN
    )


def _tail(path: Path) -> bytes:
    """The text of the last streams, enough of it to see how the dump ends."""
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
