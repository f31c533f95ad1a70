"""Dumps in unusual forms, built from real pages of the sample, each with its number of articles."""

from __future__ import annotations

import bz2
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from corpus_helpers import streams
from throughline import files
from throughline.corpus.source import dumps
from throughline.corpus.text import extraction

FIRST, PAGES, ARTICLES = 24, 80, 28
CLOSING = b"</mediawiki>\n"
TITLE = b"<title>Achilles</title>"


@dataclass(frozen=True)
class Odd:
    """A dump: what is odd about it, the contents of its files, and its number of articles."""

    what: str
    build: Callable[[], bytes | list[bytes]]
    articles: int


@cache
def sample() -> tuple[bytes, list[bytes]]:
    """Return the sample's header and some of its pages: ARTICLES articles, redirects, and two pages of other
    namespaces."""
    text = bz2.decompress(dumps.find_sample().read_bytes())
    pages = list(dumps.pages(dumps.cut([dumps.find_sample()], 1), 0))[FIRST : FIRST + PAGES - 2]
    talk = b"<page>\n<title>Talk:Anarchism</title>\n<ns>1</ns>\n<id>90000001</id>\n<revision>\n<id>1</id>\n"
    talk += b'<text xml:space="preserve">Is this so?</text>\n</revision>\n</page>'
    template = talk.replace(b"Talk:", b"Template:").replace(b"<ns>1", b"<ns>10").replace(b"90000001", b"90000002")
    return text[: text.index(b"<page>")], [*pages, talk, template]


def header() -> bytes:
    return sample()[0]


def pages() -> list[bytes]:
    return sample()[1]


def xml(head: bytes, *blocks: bytes) -> bytes:
    return head + b"\n".join(blocks) + b"\n" + CLOSING


def changed(change: Callable[[bytes], bytes]) -> Callable[[], bytes]:
    """Return the builder of a dump in which every page is changed."""
    return lambda: xml(header(), *map(change, pages()))


@cache
def multistream(*, without: int | None = None) -> bytes:
    blocks = [b"\n".join(pages()[i : i + 20]) + b"\n" for i in range(0, PAGES, 20)]
    return streams(header(), *(block for i, block in enumerate(blocks) if i != without), CLOSING)


def part_files() -> list[bytes]:
    packed = bz2.compress(xml(header(), *pages()[10:50]))
    return [streams(header(), *pages()[:10], CLOSING), packed, xml(header(), *pages()[50:])]


def is_article(page: bytes) -> bool:
    return b"<ns>0<" in page and b"<redirect" not in page


def one_long_line() -> bytes:
    text = b"The ''[[word|words]]'' of a line {{in|its}} &lt;b&gt;length&lt;/b&gt;. " * 30_000
    head = b"<page>\n<title>Long</title>\n<ns>0</ns>\n<id>7</id>\n<revision>\n<id>8</id>\n<text>"
    return head + text + b"</text>\n</revision>\n</page>"


def in_one_line() -> bytes:
    """Return the dump without the white space between elements. MediaWiki writes it; XML does not require it."""
    squeezed = [re.sub(rb">\s+<(?!/text)", b"><", page) for page in pages()]
    return re.sub(rb">\s+<", b"><", header()) + b"".join(squeezed) + CLOSING.strip()


ODD = [
    Odd("multistream, as published", multistream, ARTICLES),
    Odd("uncompressed", lambda: xml(header(), *pages()), ARTICLES),
    Odd("three part files, packed differently", part_files, ARTICLES),
    Odd("no `<siteinfo>`, pages have `<ns>`", lambda: xml(b"<mediawiki>\n", *pages()), ARTICLES),
    Odd(
        "redirects and other namespaces only",
        lambda: xml(header(), *(page for page in pages() if not is_article(page))),
        0,
    ),
    Odd("one line of two megabytes", lambda: xml(header(), one_long_line()), 1),
    Odd("no line breaks between elements", in_one_line, ARTICLES),
    Odd(
        "Windows line ends, byte order mark",
        lambda: b"\xef\xbb\xbf" + xml(header(), *pages()).replace(b"\n", b"\r\n"),
        ARTICLES,
    ),
    Odd(
        "a title that begins with `Template`",
        lambda: xml(header(), *(page.replace(b"<title>", b"<title>Template ") for page in pages()[:-2])),
        ARTICLES,
    ),
    Odd(
        "an article without a title, a comment at the end",
        lambda: changed(lambda page: page.replace(TITLE, b"<title />"))() + b"<!-- 80 pages -->\n",
        ARTICLES,
    ),
    Odd("a whole stream missing in the middle", lambda: multistream(without=1), 27),
    Odd(
        "uncompressed, a flipped bit in a text",
        changed(
            lambda page: page.replace(b"'''Achilles'''", b"'''Achilmes'''") if b"<title>Achilles<" in page else page
        ),
        ARTICLES,
    ),
]


def articles(odd: Odd, folder: Path, parts: int = 2) -> dict[int, str]:
    """Extract the dump's articles; return page id -> text."""
    contents = odd.build()
    paths = []
    for number, data in enumerate([contents] if isinstance(contents, bytes) else contents):
        paths.append(folder / f"dump{number}")
        paths[-1].write_bytes(data)
    cut = dumps.cut(paths, parts)
    found: dict[int, str] = {}
    for part in range(parts):
        output, counts = folder / f"{part}.jsonl", folder / f"{part}.json"
        extraction.extract(cut, part, output, counts)
        mine = [json.loads(line) for line in output.open(encoding="utf-8")]
        assert len(mine) == files.read_json(counts)["articles"]
        found |= {int(article["id"]): article["text"] for article in mine}
    return found
