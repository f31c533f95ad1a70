"""MediaWiki dumps: check the files of pages-articles XML, cut them into parts, and read the pages of a part.

A page belongs to the part in which its `<page>` begins, so every page is in exactly one part, wherever the borders are.
(Text is escaped in a dump, so `<page>` never occurs inside an article.)
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

from throughline import files
from throughline.corpus.source import streams
from throughline.corpus.source.pages import parse, tag, unusable
from throughline.corpus.source.streams import CLOSING, DumpFile, damaged
from throughline.datasets.shards import installed_file
from throughline.files import UserError
from throughline.progress import Progress

SCHEMA = 1
SAMPLE_PACKAGE = "gensim"
SAMPLE_FILE = "enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"
_HEAD = 1 << 20
_LONGEST = 256 << 20
"""MediaWiki allows pages of 2 MiB."""


@dataclass(frozen=True)
class Piece:
    """The pages that begin in [begin, end) of a file."""

    file: int
    begin: int
    end: int


@dataclass(frozen=True)
class Cut:
    """A dump cut into parts. `header` is the XML from `<mediawiki>` to `</siteinfo>`, if the dump has a <siteinfo>."""

    wiki: str
    files: tuple[DumpFile, ...]
    parts: tuple[tuple[Piece, ...], ...]
    header: str


def find_sample() -> Path:
    """Return the path of the sample: a piece of a real English Wikipedia dump that gensim installs as test data."""
    return installed_file("the sample corpus", SAMPLE_PACKAGE, SAMPLE_FILE)


def cut(paths: Sequence[Path], parts: int) -> Cut:
    """Cut the dump files into `parts` parts of about the same size on disk. Some parts may hold no page.

    UserError if a file is absent, not a dump or not whole, or if the files come from different wikis.
    """
    headers = [_header(path) for path in paths]
    wikis = [tag(header, "dbname") or tag(header, "base") or tag(header, "sitename") or "" for header in headers]
    if len(set(wikis)) > 1:
        raise UserError(
            f"the dump's files come from different wikis: {', '.join(sorted(set(wikis)))}",
            why="articles are told apart by their page ids, which are unique within one wiki",
            next_step="name each wiki's files in a list of their own: corpus.dump: [[a.xml], [b.xml]]",
        )
    sizes = [path.stat().st_size for path in paths]
    targets = [part * sum(sizes) // parts for part in range(parts + 1)]
    dump_files: list[DumpFile] = []
    pieces: list[list[Piece]] = [[] for _ in range(parts)]
    base = 0
    for index, (path, size) in enumerate(zip(paths, sizes, strict=True)):
        inner = [min(max(target - base, 0), size) for target in targets]
        file, position = streams.positions(path, size, len({i for i in inner if 0 < i < size}) + 1)
        for part, (low, high) in enumerate(pairwise(inner)):
            begin, end = position(low), position(high)
            if begin < end:
                pieces[part].append(Piece(index, begin, end))
        dump_files.append(file)
        base += size
    return Cut(wikis[0], tuple(dump_files), tuple(map(tuple, pieces)), headers[0].decode())


def check_articles(dump: Cut) -> None:
    """Read a dump up to its first article; UserError if it has none."""
    for part in range(len(dump.parts)):
        for number, page in enumerate(pages(dump, part), 1):
            if parse(page, f"page {number} of part {part}").kind == "article":
                return
    raise UserError(
        f"no page of {', '.join(file.path for file in dump.files)} is an article",
        why="the dump holds no page, or redirects and pages of other namespaces alone",
        next_step="name another dump in corpus.dump",
    )


def write(path: Path, dump: Cut) -> None:
    """Write the cut as JSON."""
    files.write_json(path, {"schema": SCHEMA, **asdict(dump)})


def read(path: Path) -> Cut:
    """Read the cut from a JSON file that `write` made."""
    value = files.read_json(path)
    parts = tuple(tuple(Piece(**piece) for piece in part) for part in value["parts"])
    return Cut(value["wiki"], tuple(DumpFile(**file) for file in value["files"]), parts, value["header"])


def pages(dump: Cut, part: int) -> Iterator[bytes]:
    """Yield the XML of each page of a part in the dump's order; UserError if it is damaged or ends inside a page."""
    pieces = [(piece, dump.files[piece.file]) for piece in dump.parts[part]]
    begins = [0 if file.kind == "bz2" else piece.begin for piece, file in pieces]  # what is read before is work, too
    done, progress = 0, Progress(f"reading part {part}", sum(piece.end for piece, _ in pieces) - sum(begins))
    for (piece, file), begin in zip(pieces, begins, strict=True):
        for position, page in _pages(file, piece):
            progress.to(done + min(position, piece.end) - begin)
            yield page
        done += piece.end - begin


def _header(path: Path) -> bytes:
    """Return the XML from `<mediawiki` to `</siteinfo>`, or only the opening tag if there is no <siteinfo>."""
    try:
        with path.open("rb") as stream:
            text = stream.read(_HEAD)
    except OSError as error:
        raise UserError(
            f"the dump {path} cannot be read",
            why=error.strerror,
            next_step="name the file, or the list of its part files, in corpus.dump",
        ) from None
    if text.startswith(b"BZh"):
        text = b""
        for _, more in streams.decompressed(path, 0):
            text += more
            if b"</siteinfo>" in text or b"<revision>" in text or len(text) > _HEAD:
                break
    begin, page = text.find(b"<mediawiki"), text.find(b"<page>")
    if begin < 0 or 0 <= page < begin:
        if re.search(rb"<html\b|<!doctype html\b", text, re.IGNORECASE):
            raise unusable(path, "it is an HTML page: is the address right?")
        raise unusable(path, "it does not begin with <mediawiki>: it may be another archive")
    prolog = text[:begin]
    if re.search(rb"<!(doctype|entity)", prolog, re.IGNORECASE):
        raise unusable(path, "it declares a document type, whose entities could stand for any amount of text")
    encoding = re.search(rb"""encoding=["']([^"']*)["']""", prolog)
    if encoding and encoding[1].lower() not in (b"utf-8", b"us-ascii"):
        raise unusable(path, f"it is written in {encoding[1].decode(errors='replace')}, not in UTF-8")
    end = text.find(b"</siteinfo>", begin, page if page >= 0 else len(text))
    return text[begin:end] + b"</siteinfo>" if end >= 0 else text[begin : text.find(b">", begin) + 1]


def _pages(file: DumpFile, piece: Piece) -> Iterator[tuple[int, bytes]]:
    """Yield the pages that begin in a piece, each after the position up to which the file was read.

    Only blanks may stand between two pages; otherwise a damaged `<page>` would silently lose a page. The part that
    holds the page before a gap checks the gap. The first part checks the head of the file.
    """
    buffer = bytearray()  # from the end of a page on, or from the beginning of the piece
    inside = 0  # how many bytes of the buffer are before the piece's end
    searched = 0  # how many bytes of the buffer have no `</page>`
    after_page = False
    for position, more in streams.text(file, piece.begin):
        divisible = file.kind != "bz2-streams"
        inside += min(max(piece.end - position, 0), len(more)) if divisible else len(more) * (position < piece.end)
        buffer += more
        while (end := buffer.find(b"</page>", searched)) >= 0:
            end += len(b"</page>")
            begin = buffer.find(b"<page>", 0, end)
            gap = buffer[: begin if begin >= 0 else end].strip()
            # Before the first page of a part may stand the header, or the end of another part's page.
            lost = bool(gap) if after_page else begin < 0 and piece.begin == 0
            if lost or (begin >= 0 and buffer.find(b"<page>", begin + 6, end) >= 0):
                raise damaged(file.path, f"a <page> or </page> is missing near {bytes(gap[:60] or buffer[:60])!r}")
            if begin >= inside:
                return
            if begin >= 0:
                yield position, bytes(buffer[begin:end])
                after_page = True
            del buffer[:end]
            inside, searched = max(inside - end, 0), 0
        searched = max(0, len(buffer) - len(b"</page"))
        if len(buffer) > _LONGEST:
            raise damaged(file.path, f"it has a page of more than {_LONGEST >> 20} MiB")
    before, closing, after = bytes(buffer).partition(CLOSING)
    is_closed = closing and not before.strip() and streams.is_end(after)
    if b"<page>" in buffer or (after_page and not is_closed):
        raise damaged(file.path, "it ends inside a page")
