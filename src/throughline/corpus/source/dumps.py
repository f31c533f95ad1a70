"""MediaWiki dumps: check the beginnings of one or several files of pages-articles XML, and cut them into parts."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from throughline import files
from throughline.corpus.source import streams
from throughline.corpus.source.pages import tag
from throughline.corpus.source.streams import WHOLE_AGAIN, DumpFile
from throughline.datasets.shards import installed_file
from throughline.files import UserError

SCHEMA = 1
SAMPLE_PACKAGE = "gensim"
SAMPLE_FILE = "enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"
_AT_MOST = 1 << 20
_ARCHIVES = {b"\x1f\x8b": "gzip", b"7z": "7z", b"PK": "zip", b"\xfd7": "xz", b"\x28\xb5": "zstd"}


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


def copy_sample(path: Path) -> None:
    """Copy the sample dump to `path`."""
    source = find_sample()
    with files.atomic(path) as temporary:
        temporary.write_bytes(source.read_bytes())


def cut(paths: Sequence[Path], parts: int) -> Cut:
    """Cut the dump files into `parts` parts of about the same size on disk. Some parts may hold no page.

    UserError if a file is absent, empty, not a dump or not whole, or if the files come from different wikis.
    """
    if len({path.resolve() for path in paths}) < len(paths):
        raise UserError("the dump lists a file twice", next_step="name each file once in corpus.dump")
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


def _header(path: Path) -> bytes:
    """Return the XML from `<mediawiki` to `</siteinfo>`, or only the opening tag if there is no <siteinfo>."""
    text = _beginning(path)
    if re.match(rb"\s*(<!doctype\s+html|<html)", text, re.IGNORECASE):
        raise UserError(
            f"{path} is an HTML page, not a dump",
            why="a server answered the download with a page, as for a missing file or too many requests",
            next_step="open the file in a text editor to read the answer, then download again",
        )
    begin, page = text.find(b"<mediawiki"), text.find(b"<page>")
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
    """Return decompressed text from the beginning of the file to at least the end of <siteinfo> or the first page."""
    try:
        with path.open("rb") as stream:
            text = stream.read(_AT_MOST)
    except FileNotFoundError:
        raise UserError(f"the dump {path} does not exist", next_step="correct corpus.dump in config.yaml") from None
    except IsADirectoryError:
        raise UserError(
            f"the dump {path} is a folder", next_step="name the file, or the list of its part files, in corpus.dump"
        ) from None
    if not text:
        raise UserError(f"the dump {path} is empty", next_step=WHOLE_AGAIN)
    for magic, name in _ARCHIVES.items():
        if text.startswith(magic):
            raise UserError(
                f"{path} is a {name} archive",
                why="a dump is read as .xml or .xml.bz2",
                next_step="unpack it and name the .xml file in corpus.dump",
            )
    if not text.startswith(b"BZh"):
        return text
    text = b""
    for _, more in streams.decompressed(path, 0):
        text += more
        if b"</siteinfo>" in text or b"<revision>" in text or len(text) > _AT_MOST:
            break
    return text


def write(path: Path, dump: Cut) -> None:
    """Write the cut as JSON."""
    files.write_json(path, {"schema": SCHEMA, **asdict(dump)})


def read(path: Path) -> Cut:
    """Read the cut from a JSON file that `write` made."""
    value: dict[str, Any] = files.read_json(path)
    if value.get("schema") != SCHEMA:
        raise UserError(
            f"{path} has the schema {value.get('schema')}, not {SCHEMA}",
            why="another version of Throughline wrote it",
            next_step="remove it and run snakemake again",
        )
    parts = tuple(tuple(Piece(**piece) for piece in part) for part in value["parts"])
    return Cut(value["wiki"], tuple(DumpFile(**file) for file in value["files"]), parts, value["header"])
