"""MediaWiki dumps: one or several files of pages-articles XML, cut into parts.

Cutting only notes positions: nothing is copied. streams.py reads the files, parts.py gives the pages of a part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from throughline import files
from throughline.corpus.source import header, streams
from throughline.corpus.source.streams import DumpFile
from throughline.files import UserError

SCHEMA = 1
SAMPLE_PACKAGE = "gensim"
SAMPLE_FILE = "enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"


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
    headers = [header.read(Path(path)) for path in paths]
    wikis = [_wiki(head) for head in headers]
    if len(set(wikis)) > 1:
        raise UserError(
            f"the dump's files come from different wikis: {', '.join(sorted(set(wikis)))}",
            why="articles are told apart by their page ids, which are unique within one wiki",
            next_step="make a corpus of its own for each wiki",
        )
    sizes = [Path(path).stat().st_size for path in paths]
    targets = [part * sum(sizes) // parts for part in range(parts + 1)]
    dump_files: list[DumpFile] = []
    pieces: list[list[Piece]] = [[] for _ in range(parts)]
    base = 0
    for index, (path, size) in enumerate(zip(paths, sizes, strict=True)):
        inner = [min(max(target - base, 0), size) for target in targets]
        file, position = streams.positions(Path(path), size, len({i for i in inner if 0 < i < size}) + 1)
        for part, (low, high) in enumerate(pairwise(inner)):
            begin, end = position(low), position(high)
            if begin < end:
                pieces[part].append(Piece(index, begin, end))
        dump_files.append(file)
        base += size
    return Cut(headers[0].decode(), wikis[0], tuple(dump_files), tuple(tuple(part) for part in pieces))


def _wiki(head: bytes) -> str:
    """What names the wiki: the first of these that a header has."""
    return header.tag(head, "dbname") or header.tag(head, "base") or header.tag(head, "sitename") or ""


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
