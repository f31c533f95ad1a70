"""The beginning of a dump: is it one, of which wiki, and does it say which of its pages are articles."""

from __future__ import annotations

import re
from pathlib import Path

from throughline.corpus.source import streams
from throughline.corpus.source.streams import WHOLE_AGAIN, decompressed
from throughline.files import UserError

_AT_MOST = 1 << 20
_ARCHIVES = {b"\x1f\x8b": "gzip", b"7z": "7z", b"PK": "zip", b"\xfd7": "xz", b"\x28\xb5": "zstd"}


def read(path: Path) -> bytes:
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
            text = stream.read(streams.READ)
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
        with path.open("rb") as stream:
            return stream.read(_AT_MOST)
    text = b""
    for _, more in decompressed(path, 0):
        text += more
        if b"</siteinfo>" in text or b"<revision>" in text or len(text) > _AT_MOST:
            break
    return text


def tag(header: bytes, name: str) -> str | None:
    """What stands in the header's element `name`, or None."""
    match = re.search(rf"<{name}>([^<]*)</{name}>".encode(), header)
    return match[1].decode() if match else None
