"""Plain text in place of a dump: read files of documents and cut them into parts.

In a file of JSON lines, every line is a document with its text under `text`. Any other file has one sentence per line
and an empty line between documents, as NVIDIA's scripts write them. The content tells which it is, and a file may be
packed by gzip: positions are those of the unpacked text. A byte order mark is no part of a text. Documents are numbered
from 1 over all files in their order, and the number is the document's page id. It does not depend on how many parts
there are.
"""

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from throughline import files
from throughline.corpus.source import within
from throughline.files import UserError
from throughline.progress import Progress
from throughline.text_files import MARK, UNREADABLE, is_json_lines, opened

SCHEMA = 1
KIND = "text"


def write_cut(paths: Sequence[Path], parts: int, output: Path) -> None:
    """Cut the documents into parts of about the same size, and write where each part begins and ends.

    A document belongs to the part in which it begins. A part is a list of pieces, at most one of each file: `count`
    documents in the bytes [begin, end) of `file`, from the document with the number `first` on.
    """
    sizes = [_size(path) for path in paths]
    pieces: list[dict[Path, dict[str, Any]]] = [{} for _ in range(parts)]
    number = base = 0
    for path, size in zip(paths, sizes, strict=True):
        with opened(path) as stream:
            for begin, document in _documents(stream, size, is_json_lines(path)):
                number += 1
                new = {"file": str(path), "begin": begin, "end": 0, "first": number, "count": 0}
                piece = pieces[(base + begin) * parts // sum(sizes)].setdefault(path, new)
                piece["end"] = begin + len(document)
                piece["count"] += 1
        base += size
    if number == 0:
        raise UserError("corpus.dump.text holds no document", why="every line is blank", next_step="name other files")
    files.write_json(output, {"schema": SCHEMA, "kind": KIND, "parts": [list(part.values()) for part in pieces]})


def articles(cut: Path, part: int) -> Iterator[dict[str, Any]]:
    """Yield the documents of a part in the form of extracted articles. `part` is counted over all sources.

    UserError if the number of documents in a file has changed since it was cut.
    """
    parts = files.read_json(cut)["parts"]
    raised, number = within(part, len(parts))
    pieces = parts[number]
    progress, done = Progress(f"reading part {part}", sum(piece["end"] - piece["begin"] for piece in pieces)), 0
    for piece in pieces:
        path, count = Path(piece["file"]), 0
        in_json = is_json_lines(path)
        with opened(path) as stream:
            stream.seek(piece["begin"])
            for begin, document in _documents(stream, piece["end"], in_json):
                page = piece["first"] + count
                text = _text(document, f"document {page} ({path}, byte {begin})", in_json)
                yield {"id": str(raised + page), "revid": "0", "url": "", "title": "", "text": text}
                count += 1
                progress.to(done + begin - piece["begin"])
        if count != piece["count"]:
            raise UserError(
                f"{path} has {count} documents where it had {piece['count']}",
                why="the file was changed after it was cut",
                next_step=f"cut it anew: {files.snakemake('--force', str(cut))}",
            )
        done += piece["end"] - piece["begin"]


def _size(path: Path) -> int:
    """Return the size of a text in bytes, unpacked; UserError if its file cannot be read, or holds no text."""
    try:
        with opened(path) as stream:
            start = stream.read(1 << 16)
            size = stream.seek(0, os.SEEK_END)
    except UNREADABLE as error:
        raise UserError(f"{path} cannot be read", why=str(error), next_step="correct corpus.dump.text") from None
    if b"\0" in start or start.startswith((b"BZh", b"\x28\xb5\x2f\xfd")):
        raise UserError(
            f"{path} is no text file",
            why="it is compressed, or holds bytes that no text has",
            next_step="unpack it, and name the UTF-8 text in corpus.dump.text",
        )
    if start.lstrip().startswith((b"[{", b"[\n")):
        raise UserError(
            f"{path} is one JSON list",
            why="a text in JSON has a document in each line",
            next_step=f"write it so: jq -c '.[]' {path.name} > documents.jsonl",
        )
    return size


def _documents(stream: IO[bytes], end: int, in_json: bool) -> Iterator[tuple[int, bytes]]:
    """Yield where each document begins, and its bytes, from the stream's current position to `end`."""
    at = begin = stream.tell()
    lines: list[bytes] = []
    while at < end and (line := stream.readline(end - at)):
        if not lines:
            begin = at
        blank = not line.replace(MARK, b"").strip()
        if not blank:
            lines.append(line)
        at += len(line)
        if lines and (in_json or blank):
            yield begin, b"".join(lines)
            lines = []
    if lines:
        yield begin, b"".join(lines)


def _text(document: bytes, where: str, in_json: bool) -> str:
    """Return the text of a document. Where the file has one sentence per line, so has the text."""
    try:
        plain = document.replace(MARK, b"").decode()
        if not in_json:
            return "\n".join(" ".join(line.split()) for line in plain.split("\n") if line.strip())
        text = json.loads(plain)["text"]
        if not isinstance(text, str):
            raise TypeError("its `text` is no text")
        return text
    except (ValueError, KeyError, TypeError) as error:
        form = 'a line is a map with the document under text, such as {"text": "..."}' if in_json else "text is UTF-8"
        raise UserError(
            f"{where} is not what it should be",
            why=f"{type(error).__name__}: {error}",
            next_step=f"correct the file: {form}",
        ) from None
