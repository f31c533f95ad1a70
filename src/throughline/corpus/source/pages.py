"""Tell articles, redirects and pages of other namespaces apart.

`<ns>` gives a page's namespace, as in all dumps since 2012 (export schema 0.6), and `<redirect>` marks a redirect. Text
stays escaped as in the dump, and no template is expanded.
"""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from pathlib import Path

from throughline.files import UserError

_ID = re.compile(rb"<id>(\d+)</id>")
_REVISION = re.compile(rb"<revision>\s*<id>(\d+)</id>")
_TITLE = re.compile(rb"<title(?: ?/>|>([^<]*)</title>)")
_NAMESPACE = re.compile(rb"<ns>\s*(-?\d+)\s*</ns>")
_TEXT = re.compile(rb"<text\b([^>]*)>")
_TIME = re.compile(rb"<timestamp>(\d{4})-(\d\d)-(\d\d)T((\d\d):\d\d:\d\d)Z</timestamp>")
_BYTES = re.compile(rb'\bbytes="0*[1-9]')
_NAMES = re.compile(rb'<namespace\s[^>]*?key="(-?\d+)"[^>]*>([^<]*)</namespace>')
_NOW = re.compile(rb"\{\{\s*current(year|month|day|hour|time)\s*(?:\|[^{}]*)?\}\}", re.IGNORECASE)
_PARTS_OF_TIME = (b"", b"year", b"month", b"day", b"time", b"hour")  # in the order of the groups of _TIME
_SILENT = (b"-2", b"6", b"14")  # media, files, categories


@dataclass(frozen=True)
class Site:
    """What a dump's header says: the wiki's address, and the namespaces whose links show no text, in small letters."""

    base: str | None
    silent_namespaces: frozenset[str]

    @classmethod
    def from_header(cls, header: str) -> Site:
        """Return the site that this XML, from `<mediawiki` to `</siteinfo>`, describes."""
        data = header.encode()
        names = (html.unescape(name.decode()) for key, name in _NAMES.findall(data) if key in _SILENT)
        return cls(tag(data, "base"), frozenset(map(str.lower, names)))


@dataclass(frozen=True)
class Page:
    """A page of a dump. `kind` is "article", "redirect" or "other". Title and text are escaped as in the dump."""

    kind: str
    id: int
    revision: int
    title: bytes
    text: bytes


def parse(page: bytes, where: str) -> Page:
    """Parse the XML of a page. Only an article's text is read. `where` names the page in errors.

    A title may be empty. UserError if the page has no id, title or namespace, or if it cannot come from a
    pages-articles dump: it has several revisions, its text is left out, or there is markup inside its text.
    """
    begin = page.find(b"<text")
    head = page if begin < 0 else page[:begin]
    number, title, namespace = _ID.search(head), _TITLE.search(head), _NAMESPACE.search(head)
    where = f"{where} (id {int(number[1])})" if number else where
    if number is None or title is None or namespace is None:
        lacks = "id" if number is None else "title" if title is None else "<ns>, which dumps have since 2012"
        raise unusable(where, f"it has no {lacks}")
    kind = "other" if int(namespace[1]) else "redirect" if b"<redirect" in head else "article"
    text = _text(page, begin, where) if kind == "article" else b""
    if b"{{" in text:  # use the revision's date; wikiextractor would use today's
        time = _TIME.search(head)
        text = _NOW.sub(lambda match: time[_PARTS_OF_TIME.index(match[1].lower())] if time else b"", text)
    revision = _REVISION.search(head)
    return Page(kind, int(number[1]), int(revision[1]) if revision else 0, title[1] or b"", text)


def unusable(where: str | Path, why: str) -> UserError:
    """Return the error for a file or a page (`where`) that no pages-articles dump of MediaWiki has."""
    return UserError(
        f"{where} is not from a pages-articles dump as MediaWiki writes it",
        why=why,
        next_step="name a pages-articles dump as it was published (.xml or .xml.bz2, multistream or not), and compare"
        " its checksum",
    )


def tag(header: bytes, name: str) -> str | None:
    """Return the content of the header's element `name`, or None."""
    match = re.search(rf"<{name}>([^<]*)</{name}>".encode(), header)
    return match[1].decode() if match else None


def unescaped(text: bytes) -> str:
    """Return a page's text as its authors wrote it. (In a dump, MediaWiki escapes four characters.)"""
    for entity, character in ((b"&lt;", b"<"), (b"&gt;", b">"), (b"&quot;", b'"'), (b"&amp;", b"&")):
        text = text.replace(entity, character)
    return text.decode()


def _text(page: bytes, begin: int, where: str) -> bytes:
    if page.count(b"<revision>") > 1:
        raise unusable(where, "it has several revisions: this is a dump of the pages' history")
    tag = _TEXT.match(page, begin) if begin >= 0 else None
    if tag is None:
        return b""
    if tag[1].endswith(b"/"):
        if _BYTES.search(tag[1]) and b"deleted=" not in tag[1]:
            raise unusable(where, "its text is left out: this is a stub dump")
        return b""
    end = page.find(b"</text>", tag.end())
    text = page[tag.end() : end if end >= 0 else None]
    if end < 0 or b"<" in text:
        raise unusable(where, "there is markup inside its text, and MediaWiki escapes every text")
    try:
        text.decode()
    except UnicodeDecodeError as error:
        raise unusable(where, f"its text is not UTF-8 ({error})") from None
    return text
