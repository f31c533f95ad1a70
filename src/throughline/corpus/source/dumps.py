"""MediaWiki dumps: is it one, is it whole, where can it be cut, and the pages of one part.

A dump is one or several files of pages-articles XML, plain or bz2. Cutting only notes positions: nothing is copied.
One rule makes the parts tile the dump whatever the borders are: a page belongs to the part in which its `<page>`
begins. (Text is escaped in a dump, so `<page>` never occurs inside an article.)

Three kinds of file, by what a position in them means:

* `xml`: a byte of the file.
* `bz2-streams`: a byte of the compressed file at which a bz2 stream begins, as in Wikimedia's multistream dumps. A part
  reads its own streams only.
* `bz2`: a byte of the decompressed text, for files of fewer streams than parts (a single stream as a rule). Each part
  decompresses from the beginning and keeps its share. That costs time, and needs neither twice the disk nor
  another pass of compression; reading bz2 is several times faster than extracting text.
"""

from __future__ import annotations

import bz2
import mmap
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import Enum, auto
from itertools import pairwise
from pathlib import Path
from typing import Any

from throughline import files
from throughline.corpus.progress import Progress
from throughline.files import UserError

SCHEMA = 1
SAMPLE_PACKAGE = "gensim"
SAMPLE_FILE = "enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"
CLOSING = b"</mediawiki>"
_READ = 1 << 18
_HEADER_AT_MOST = 1 << 20
_STREAM = re.compile(rb"BZh[1-9]1AY&SY")
_ARCHIVES = {b"\x1f\x8b": "gzip", b"7z": "7z", b"PK": "zip", b"\xfd7": "xz", b"\x28\xb5": "zstd"}
_WHOLE_AGAIN = "download the file again and compare it with the checksum published beside it"


@dataclass(frozen=True)
class DumpFile:
    """One file of the dump; `end` is the position after its last page, in the unit of its kind."""

    path: str
    kind: str
    end: int


@dataclass(frozen=True)
class Piece:
    """The pages that begin in [begin, end) of a file."""

    file: int
    begin: int
    end: int


@dataclass(frozen=True)
class Cut:
    """A dump cut into parts. `header` is the XML from `<mediawiki>` to `</siteinfo>`, where there is one."""

    header: str
    wiki: str
    files: tuple[DumpFile, ...]
    parts: tuple[tuple[Piece, ...], ...]


def find_sample() -> Path:
    """The piece of a real English Wikipedia dump that the installed gensim carries as test data."""
    from importlib import metadata

    try:
        listed = metadata.distribution(SAMPLE_PACKAGE).files or []
        path = next(Path(str(file.locate())) for file in listed if file.name == SAMPLE_FILE)
    except (metadata.PackageNotFoundError, StopIteration):
        path = None
    if path is None or not path.is_file():
        raise UserError(
            "the sample corpus is not on this machine",
            why=f"it is read from the package {SAMPLE_PACKAGE}, which lacks {SAMPLE_FILE} or is not installed",
            next_step="python -m pip install --no-deps -r envs/sample.txt",
        )
    return path


def copy_sample(path: str | Path) -> None:
    """Copy the sample dump to `path`."""
    source = find_sample()
    with files.atomic(path) as temporary:
        temporary.write_bytes(source.read_bytes())


def cut(paths: Sequence[str | Path], parts: int) -> Cut:
    """Cut the dump files into `parts` parts of about the same size on disk (some may hold no page).

    UserError for a file that is absent, empty, not a dump or not whole, and for files of different wikis.
    """
    if len({Path(path).resolve() for path in paths}) < len(paths):
        raise UserError("the dump lists a file twice", next_step="name each file once in corpus.dump")
    headers = [_header(Path(path)) for path in paths]
    wikis = [tag(header, "dbname") or tag(header, "base") or tag(header, "sitename") or "" for header in headers]
    if len(set(wikis)) > 1:
        raise UserError(
            f"the dump's files come from different wikis: {', '.join(sorted(set(wikis)))}",
            why="articles are told apart by their page ids, which are unique within one wiki",
            next_step="make a corpus of its own for each wiki",
        )
    sizes = [Path(path).stat().st_size for path in paths]
    targets = [part * sum(sizes) // parts for part in range(parts + 1)]
    found: list[DumpFile] = []
    pieces: list[list[Piece]] = [[] for _ in range(parts)]
    base = 0
    for index, (path, size) in enumerate(zip(paths, sizes, strict=True)):
        inner = [min(max(target - base, 0), size) for target in targets]
        file, position = _positions(Path(path), size, len({i for i in inner if 0 < i < size}) + 1)
        for part, (low, high) in enumerate(pairwise(inner)):
            begin, end = position(low), position(high)
            if begin < end:
                pieces[part].append(Piece(index, begin, end))
        found.append(file)
        base += size
    return Cut(headers[0].decode(), wikis[0], tuple(found), tuple(tuple(part) for part in pieces))


def write(path: str | Path, dump: Cut) -> None:
    """Write the cut as JSON."""
    files.write_json(
        path,
        {
            "schema": SCHEMA,
            "wiki": dump.wiki,
            "files": [asdict(file) for file in dump.files],
            "parts": [[asdict(piece) for piece in part] for part in dump.parts],
            "header": dump.header,
        },
    )


def read(path: str | Path) -> Cut:
    """The cut in a JSON file that `write` made."""
    value: dict[str, Any] = files.read_json(path)
    if value.get("schema") != SCHEMA:
        raise UserError(
            f"{path} has the schema {value.get('schema')}, not {SCHEMA}",
            why="another version of Throughline wrote it",
            next_step="remove it and run snakemake again",
        )
    return Cut(
        header=value["header"],
        wiki=value["wiki"],
        files=tuple(DumpFile(**file) for file in value["files"]),
        parts=tuple(tuple(Piece(**piece) for piece in part) for part in value["parts"]),
    )


def pages(dump: Cut, part: int, progress: Progress | None = None) -> Iterator[bytes]:
    """Each page of a part as its XML from `<page>` to `</page>`, in the dump's order.

    UserError where the dump turns out to be damaged or to end inside a page.
    """
    done = 0
    for piece in dump.parts[part]:
        file = dump.files[piece.file]
        first = 0 if file.kind == "bz2" else piece.begin

        def report(position: int, base: int = done - first) -> None:
            if progress is not None:
                progress.to(base + position)

        yield from _pages(file, piece, report)
        done += piece.end - first


def units(dump: Cut, part: int) -> int:
    """How much `pages` reads for a part, in the unit its progress counts (bytes, compressed or not)."""
    return sum(piece.end - (0 if dump.files[piece.file].kind == "bz2" else piece.begin) for piece in dump.parts[part])


def _pages(file: DumpFile, piece: Piece, report: Callable[[int], None]) -> Iterator[bytes]:
    """The pages that begin in a piece. What stands between pages may only be blank: a damaged `<page>` would else
    be a page lost in silence. Each gap is checked by the part that holds the page before it, the head by the first.
    """
    buffer = bytearray()
    inside = 0  # so many bytes of the buffer lie before the piece's end
    at = 0  # what stands before was dealt with
    resume = 0  # where the search for `</page>` goes on after more was read
    before = _Before.HEAD if piece.begin == 0 else _Before.UNKNOWN
    for position, text in _text(file, piece.begin):
        divisible = file.kind != "bz2-streams"
        share = min(max(piece.end - position, 0), len(text)) if divisible else len(text) * (position < piece.end)
        inside += share
        buffer += text
        report(min(position, piece.end))
        while True:
            page = buffer.find(b"<page>", at)
            at = _check_gap(file.path, before, buffer, at, page)
            if page >= inside:
                return
            if page < 0:
                if before is _Before.UNKNOWN and len(buffer) >= inside + 5 and share < len(text):
                    return
                resume = at
                break
            end = buffer.find(b"</page>", max(page, resume))
            if buffer.find(b"<page>", page + 6, end if end >= 0 else None) >= 0:
                raise _lost(file.path, "a page begins inside another one")
            if end < 0:
                at, resume = page, max(page, len(buffer) - 6)
                break
            at = resume = end + len(b"</page>")
            before = _Before.PAGE
            yield bytes(buffer[page:at])
        del buffer[:at]
        inside, resume, at = max(inside - at, 0), resume - at, 0
    if buffer.startswith(b"<page>"):
        raise UserError(f"{file.path} ends inside a page", why="the file is not whole", next_step=_WHOLE_AGAIN)


class _Before(Enum):
    """What stands before the next `<page>`."""

    HEAD = auto()
    PAGE = auto()
    UNKNOWN = auto()  # the end of a page that another part holds


def _check_gap(path: str, before: _Before, buffer: bytearray, at: int, page: int) -> int:
    """Check what stands from `at` up to a `<page>` (absent: -1), as far as it was read; returns how far it is settled.

    UserError where it is neither blank nor the end of the dump.
    """
    stop = page if page >= 0 else len(buffer)
    if before is _Before.PAGE:
        rest = bytes(buffer[at:stop]).strip()
        if rest and (page >= 0 or not any(fits.startswith(rest) for fits in (b"<page>", CLOSING))):
            raise _lost(path, f"between two pages stands {rest[:60]!r}")
        return stop if page >= 0 else stop - len(bytes(buffer[at:stop]).lstrip())
    if before is _Before.HEAD and buffer.find(b"</page>", at, stop) >= 0:
        raise _lost(path, "a page ends before the first one begins")
    return stop if page >= 0 else max(at, stop - 6)


def _lost(path: str, why: str) -> UserError:
    return UserError(f"{path} is damaged", why=f"{why}: a page would be lost", next_step=_WHOLE_AGAIN)


def _text(file: DumpFile, begin: int) -> Iterator[tuple[int, bytes]]:
    """Text from position `begin` to the end of the file, each time with the position at which it stands."""
    path = Path(file.path)
    if file.kind == "xml":
        with path.open("rb") as stream:
            stream.seek(begin)
            while data := stream.read(_READ):
                yield begin, data
                begin += len(data)
    elif file.kind == "bz2-streams":
        yield from _decompressed(path, begin)
    else:
        position = 0
        for _, data in _decompressed(path, 0):
            skip = min(max(begin - position, 0), len(data))
            if skip < len(data):
                yield position + skip, data[skip:]
            position += len(data)


def _decompressed(path: Path, offset: int) -> Iterator[tuple[int, bytes]]:
    """Decompressed text from the stream at `offset` on, each time with the offset of the stream it comes from.

    Python's bz2 file object takes whatever follows a stream and is no stream for padding, so a damaged stream
    header would silently end the dump; here it is an error.
    """
    with path.open("rb") as stream:
        stream.seek(offset)
        start, unit, data = offset, bz2.BZ2Decompressor(), stream.read(_READ)
        while data:
            try:
                text = unit.decompress(data)
            except (OSError, ValueError):
                raise _damaged(path, start) from None
            if text:
                yield start, text
            if not unit.eof:
                data = stream.read(_READ)
                continue
            data = unit.unused_data
            if len(data) < 3:
                data += stream.read(_READ)
            if data:
                start = stream.tell() - len(data)
                if not data.startswith(b"BZh"):
                    raise _damaged(path, start)
                unit = bz2.BZ2Decompressor()
        if not unit.eof:
            raise UserError(
                f"{path} ends in the middle of its compressed data",
                why="the file is not whole",
                next_step=_WHOLE_AGAIN,
            )


def _positions(path: Path, size: int, pieces: int) -> tuple[DumpFile, Callable[[int], int]]:
    """The file's kind and end, and a function from a byte of the file on disk to a position to cut it at.

    The function is monotonic, 0 is the beginning and `size` the end. `pieces`: how many parts share this file.
    """
    with path.open("rb") as stream:
        compressed = stream.read(3) == b"BZh"
        if not compressed:
            stream.seek(max(0, size - 4096))
            _check_closing(path, stream.read())
            return DumpFile(str(path), "xml", size), lambda byte: byte
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            starts = [match.start() for match in _STREAM.finditer(data)]
        if pieces > 1 and len(starts) < pieces:
            length, tail = _length_and_tail(path)
            _check_closing(path, tail)
            return DumpFile(str(path), "bz2", length), lambda byte: byte * length // size
    _check_closing(path, _tail(path, starts))

    def border(byte: int) -> int:
        for start in starts[bisect_left(starts, byte) :]:
            if byte == 0 or _is_stream(path, start):
                return start if byte else 0
        return size

    return DumpFile(str(path), "bz2-streams", size), border


def _is_stream(path: Path, start: int) -> bool:
    """True where the bytes at `start` really decompress, so that the magic there is no coincidence."""
    unit = bz2.BZ2Decompressor()
    with path.open("rb") as stream:
        stream.seek(start)
        while not unit.eof and (data := stream.read(_READ)):
            try:
                if unit.decompress(data):
                    return True
            except (OSError, ValueError):
                return False
    return False


def _damaged(path: Path, offset: int) -> UserError:
    return UserError(
        f"{path} is damaged at byte {offset}",
        why="the bz2 stream there does not decompress",
        next_step=_WHOLE_AGAIN,
    )


def _length_and_tail(path: Path) -> tuple[int, bytes]:
    progress = Progress(f"measuring {path.name}", 0)
    length, tail = 0, b""
    for _, text in _decompressed(path, 0):
        length += len(text)
        tail = (tail + text)[-4096:]
        progress.to(length)
    return length, tail


def _tail(path: Path, starts: list[int]) -> bytes:
    """The text of the last streams, enough of it to see how the dump ends."""
    tail = b""
    for start in reversed(starts):
        if start and not _is_stream(path, start):
            continue
        tail = b""
        for _, text in _decompressed(path, start):
            tail = (tail + text)[-4096:]
        if len(tail) > len(CLOSING) + 16:
            break
    return tail


def _check_closing(path: Path, tail: bytes) -> None:
    if not tail.rstrip().endswith(CLOSING):
        raise UserError(
            f"{path} is not a whole dump",
            why=f"it does not end with {CLOSING.decode()}: the download or the copy stopped early",
            next_step=_WHOLE_AGAIN,
        )


def _header(path: Path) -> bytes:
    """The XML from `<mediawiki` to `</siteinfo>` (of its opening tag alone where there is no <siteinfo>).

    UserError where the file is no dump, or does not say which of its pages are articles.
    """
    text = _beginning(path)
    if re.match(rb"\s*(<!doctype\s+html|<html)", text, re.IGNORECASE):
        raise UserError(
            f"{path} is an HTML page, not a dump",
            why="a server answered the download with a page, as for a missing file or too many requests",
            next_step="open the file in a text editor to read the answer, then download again",
        )
    begin = text.find(b"<mediawiki")
    page = text.find(b"<page>")
    prolog = text[: begin if begin >= 0 else page if page >= 0 else len(text)]
    if re.search(rb"<!(doctype|entity)", prolog, re.IGNORECASE):
        raise UserError(
            f"{path} declares a document type",
            why="entities declared there could stand for any amount of text, or for files of this machine; no"
            " MediaWiki dump has one, and none is read",
            next_step="use the dump as it was published",
        )
    if begin < 0 or 0 <= page < begin:
        raise UserError(
            f"{path} is not a MediaWiki dump",
            why="it does not begin with <mediawiki>",
            next_step="use a pages-articles dump (.xml or .xml.bz2, multistream or not)",
        )
    encoding = re.search(rb"""encoding=["']([^"']*)["']""", prolog)
    if encoding and encoding[1].lower() not in (b"utf-8", b"us-ascii"):
        raise UserError(
            f"{path} says that it is written in {encoding[1].decode(errors='replace')}",
            why="every MediaWiki dump is UTF-8",
            next_step="convert it (iconv), and correct its first line",
        )
    end = text.find(b"</siteinfo>", begin, page if page >= 0 else len(text))
    header = text[begin:end] + b"</siteinfo>" if end >= 0 else text[begin : text.find(b">", begin) + 1]
    if page >= 0 and b"<namespace " not in header and b"<ns>" not in text[page:]:
        raise UserError(
            f"{path} does not say which of its pages are articles",
            why="it has no <siteinfo> with the names of the namespaces, and its pages have no <ns>",
            next_step="use the dump as it was published; or put the <siteinfo> of a dump of the same wiki into it",
        )
    return header


def _beginning(path: Path) -> bytes:
    """Decompressed text from the file's beginning to the end of <siteinfo>, or into the first page."""
    try:
        with path.open("rb") as stream:
            text = stream.read(_READ)
    except FileNotFoundError:
        raise UserError(f"the dump {path} does not exist", next_step="correct corpus.dump in config.yaml") from None
    except IsADirectoryError:
        raise UserError(
            f"the dump {path} is a folder",
            next_step="name the file, or the list of its part files, in corpus.dump",
        ) from None
    if not text:
        raise UserError(f"the dump {path} is empty", next_step=_WHOLE_AGAIN)
    for magic, name in _ARCHIVES.items():
        if text.startswith(magic):
            raise UserError(
                f"{path} is a {name} archive",
                why="a dump is read as .xml or .xml.bz2",
                next_step="unpack it and name the .xml file in corpus.dump",
            )
    if not text.startswith(b"BZh"):
        with path.open("rb") as stream:
            return stream.read(_HEADER_AT_MOST)
    text = b""
    for _, more in _decompressed(path, 0):
        text += more
        if b"</siteinfo>" in text or b"<revision>" in text or len(text) > _HEADER_AT_MOST:
            break
    return text


def tag(header: bytes, name: str) -> str | None:
    """What stands in the header's element `name`, or None."""
    match = re.search(rf"<{name}>([^<]*)</{name}>".encode(), header)
    return match[1].decode() if match else None
