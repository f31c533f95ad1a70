"""Dumps in old forms and damaged dumps, built from real pages of the sample, each with its expected result.

python tests/corpus_odd_dumps.py        print the table of docs/method-sources.md
"""

from __future__ import annotations

import bz2
import gzip
import json
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from corpus_helpers import streams
from throughline import files
from throughline.corpus.source import dumps, part_pages
from throughline.corpus.text import extraction
from throughline.files import UserError

FIRST, PAGES, ARTICLES = 24, 80, 28
CLOSING = b"</mediawiki>\n"
Build = Callable[[Path], list[Path]]


@dataclass(frozen=True)
class Odd:
    """A dump: what is odd about it, how its files are made, and its number of articles or a part of its error."""

    what: str
    build: Build
    articles: int | None = None
    error: str | None = None


@cache
def sample() -> tuple[bytes, list[bytes]]:
    """Return the sample's header and some of its pages: ARTICLES articles, redirects, and two pages of other
    namespaces."""
    text = bz2.decompress(dumps.find_sample().read_bytes())
    pages = list(part_pages.pages(dumps.cut([dumps.find_sample()], 1), 0))[FIRST : FIRST + PAGES - 2]
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


def one(make: Callable[[], bytes], name: str = "dump.xml") -> Build:
    """Return the builder of a dump that is one file."""

    def build(folder: Path) -> list[Path]:
        path = folder / name
        path.write_bytes(make())
        return [path]

    return build


@cache
def multistream(*, without: int | None = None) -> bytes:
    blocks = [b"\n".join(pages()[i : i + 20]) + b"\n" for i in range(0, PAGES, 20)]
    return streams(header(), *(block for i, block in enumerate(blocks) if i != without), CLOSING)


def part_files(folder: Path) -> list[Path]:
    paths = [folder / name for name in ("a.xml.bz2", "b.xml.bz2", "c.xml")]
    paths[0].write_bytes(streams(header(), *pages()[:10], CLOSING))
    paths[1].write_bytes(bz2.compress(xml(header(), *pages()[10:50])))
    paths[2].write_bytes(xml(header(), *pages()[50:]))
    return paths


def without(page: bytes, *elements: bytes) -> bytes:
    for element in elements:
        page = re.sub(rb"\s*<" + element + rb"\b[^>]*?(/>|>[^<]*</" + element + rb">)", b"", page)
    return page


SITE_2006 = b"""<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.3/" version="0.3" xml:lang="en">
  <siteinfo>
    <sitename>Wikipedia</sitename>
    <base>http://en.wikipedia.org/wiki/Main_Page</base>
    <generator>MediaWiki 1.9alpha</generator>
    <case>first-letter</case>
      <namespaces>
      <namespace key="0" />
      <namespace key="1">Talk</namespace>
      <namespace key="10">Template</namespace>
    </namespaces>
  </siteinfo>
"""
GERMAN = SITE_2006.replace(b"en", b"de").replace(b"Talk", b"Diskussion").replace(b"Template", b"Vorlage")


def of_2006(page: bytes) -> bytes:
    return without(page, b"ns", b"redirect", b"model", b"format", b"sha1", b"parentid")


def in_german(page: bytes) -> bytes:
    page = page.replace(b"<title>Talk:", b"<title>Diskussion:").replace(b"<title>Template:", b"<title>Vorlage:")
    return re.sub(rb"(?i)#redirect\b", b"#WEITERLEITUNG", page)


def is_article(page: bytes) -> bool:
    return b"<ns>0<" in page and b"<redirect" not in page


def one_long_page() -> bytes:
    texts = re.findall(rb"<text[^>]*>([^<]*)</text>", b"".join(filter(is_article, pages())))
    page = next(filter(is_article, pages()))
    return re.sub(rb"(<text[^>]*>)[^<]*", lambda match: match[1] + b"\n\n".join(texts), page)


def one_long_line() -> bytes:
    return b"<page>\n<title>Long</title>\n<ns>0</ns>\n<id>7</id>\n<revision>\n<id>8</id>\n<text>" + (
        b"The ''[[word|words]]'' of a line {{in|its}} &lt;b&gt;length&lt;/b&gt;. " * 30_000
        + b"</text>\n</revision>\n</page>"
    )


def flipped(data: bytes, at: int, to: int = 1) -> bytes:
    return data[:at] + bytes([data[at] ^ to]) + data[at + 1 :]


def misspelled(page: bytes) -> bytes:
    """Misspell the title in the first sentence of one article."""
    return page.replace(b"'''Achilles'''", b"'''Achilmes'''") if b"<title>Achilles<" in page else page


def in_one_line() -> bytes:
    """Return the dump without the white space between elements. MediaWiki writes it; XML does not require it."""
    squeezed = [re.sub(rb">\s+<(?!/text)", b"><", page) for page in pages()]
    return re.sub(rb">\s+<", b"><", header()) + b"".join(squeezed) + CLOSING.strip()


BOMB = b"""<?xml version="1.0"?>
<!DOCTYPE mediawiki [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;&b;&b;&b;">]>
"""

ODD = [
    Odd("multistream, as published", one(multistream, "dump.xml.bz2"), ARTICLES),
    Odd("single-stream bz2", one(lambda: bz2.compress(xml(header(), *pages())), "dump.xml.bz2"), ARTICLES),
    Odd("uncompressed", one(lambda: xml(header(), *pages())), ARTICLES),
    Odd("three part files, packed differently", part_files, ARTICLES),
    Odd(
        "2006: no `<ns>`, no `<redirect>`",
        one(lambda: xml(SITE_2006, *map(of_2006, pages()))),
        ARTICLES,
    ),
    Odd(
        "2006 and German: `Vorlage:`, `#WEITERLEITUNG`",
        one(lambda: xml(GERMAN, *map(of_2006, map(in_german, pages())))),
        ARTICLES,
    ),
    Odd(
        "2010 (export 0.4): `<redirect />`, no `<ns>`",
        one(lambda: xml(SITE_2006.replace(b"0.3", b"0.4"), *(without(page, b"ns") for page in pages()))),
        ARTICLES,
    ),
    Odd("no `<siteinfo>`, pages have `<ns>`", one(lambda: xml(b"<mediawiki>\n", *pages())), ARTICLES),
    Odd(
        "no `<siteinfo>`, no `<ns>`",
        one(lambda: xml(b"<mediawiki>\n", *map(of_2006, pages()))),
        error="does not say which of its pages are articles",
    ),
    Odd("a single page", one(lambda: xml(header(), next(filter(is_article, pages())))), 1),
    Odd("no page at all", one(lambda: xml(header())), 0),
    Odd(
        "redirects and other namespaces only", one(lambda: xml(header(), *(p for p in pages() if not is_article(p)))), 0
    ),
    Odd("one page of a megabyte", one(lambda: xml(header(), one_long_page(), *pages()[-2:])), 1),
    Odd("one line of two megabytes", one(lambda: xml(header(), one_long_line())), 1),
    Odd("no line breaks between elements", one(in_one_line), ARTICLES),
    Odd(
        "Windows line ends, byte order mark",
        one(lambda: b"\xef\xbb\xbf" + xml(header(), *pages()).replace(b"\n", b"\r\n")),
        ARTICLES,
    ),
    Odd(
        "every page twice in a row", one(lambda: xml(header(), *(page for page in pages() for _ in range(2)))), ARTICLES
    ),
    Odd(
        "a title that begins with `Template`",
        one(lambda: xml(header(), *(p.replace(b"<title>", b"<title>Template ") for p in pages()[:-2]))),
        ARTICLES,
    ),
    Odd(
        "pages' history: several revisions",
        one(lambda: xml(header(), *(re.sub(rb"(<revision>.*</revision>)", rb"\1\1", p, flags=re.S) for p in pages()))),
        error="has several revisions",
    ),
    Odd(
        "a stub dump: no text",
        one(
            lambda: xml(
                header(), *(re.sub(rb"<text[^>]*>[^<]*</text>", b'<text bytes="95" id="1" />', p) for p in pages())
            )
        ),
        error="has a text that is left out",
    ),
    Odd(
        "truncated",
        one(lambda: multistream()[:-5000], "dump.xml.bz2"),
        error="ends in the middle of its compressed data",
    ),
    Odd(
        "cut at a stream border",
        one(lambda: multistream()[: multistream().rindex(b"BZh91AY&SY")], "dump.xml.bz2"),
        error="is not a whole dump",
    ),
    Odd("uncompressed, truncated", one(lambda: xml(header(), *pages())[:-50_000]), error="is not a whole dump"),
    Odd(
        "a flipped bit in the compressed data",
        one(lambda: flipped(multistream(), len(multistream()) // 2), "dump.xml.bz2"),
        error="is damaged at byte",
    ),
    Odd(
        "a flipped bit in a stream's first bytes",
        one(lambda: flipped(multistream(), multistream().index(b"BZh91AY&SY", 5000)), "dump.xml.bz2"),
        error="is damaged at byte",
    ),
    Odd(
        "uncompressed, a flipped bit in a `<page>`",
        one(lambda: xml(header(), *pages()[:9], pages()[9].replace(b"<page>", b"<pagd>"), *pages()[10:])),
        error="is damaged",
    ),
    Odd(
        "uncompressed, a flipped bit in a `</page>`",
        one(lambda: xml(header(), *pages()[:9], pages()[9].replace(b"</page>", b"</pagd>"), *pages()[10:])),
        error="is damaged",
    ),
    Odd(
        "bytes that are no UTF-8",
        one(lambda: xml(header(), *(p.replace(b"</text>", b"\xff</text>") for p in pages()))),
        error="is not UTF-8 text",
    ),
    Odd(
        "written in Latin-1",
        one(lambda: b'<?xml version="1.0" encoding="ISO-8859-1"?>\n' + xml(header(), *pages())),
        error="says that it is written in ISO-8859-1",
    ),
    Odd(
        "an HTML page in its place",
        one(lambda: b"<!DOCTYPE html>\n<html><body>404</body></html>", "dump.xml.bz2"),
        error="is an HTML page, not a dump",
    ),
    Odd(
        "an entity bomb",
        one(lambda: BOMB + xml(header(), *(p.replace(b"</text>", b"&c;</text>") for p in pages()))),
        error="declares a document type",
    ),
    Odd(
        "packed with gzip",
        one(lambda: gzip.compress(xml(header(), *pages())), "dump.xml.gz"),
        error="is a gzip archive",
    ),
    Odd(
        "two wikis in one list",
        lambda folder: [
            *one(lambda: xml(header(), *pages()))(folder),
            *one(lambda: xml(header().replace(b"enwiki", b"dewiki"), *pages()), "b.xml")(folder),
        ],
        error="the dump's files come from different wikis",
    ),
    Odd("a whole stream missing in the middle", one(lambda: multistream(without=1), "dump.xml.bz2"), 27),
    Odd(
        "uncompressed, a flipped bit in a text",
        one(lambda: xml(header(), *map(misspelled, pages()))),
        ARTICLES,
    ),
]


def articles(odd: Odd, folder: Path, parts: int = 2, extractor: str = "wikiextractor") -> dict[int, str]:
    """Extract the dump's articles; return page id -> text. UserError if the dump is refused."""
    cut = dumps.cut(odd.build(folder), parts)
    found: dict[int, str] = {}
    for part in range(parts):
        output, counts = folder / f"{part}.jsonl", folder / f"{part}.json"
        extraction.extract(cut, part, output, counts, extractor=extractor)
        mine = [json.loads(line) for line in output.open(encoding="utf-8")]
        assert len(mine) == files.read_json(counts)["articles"]
        found |= {int(article["id"]): article["text"] for article in mine}
    return found


def table() -> str:
    """Return the table, made from the real results."""
    rows = ["| dump | articles, or the error |", "|---|---|"]
    for odd in ODD:
        with tempfile.TemporaryDirectory() as folder:
            try:
                result = str(len(articles(odd, Path(folder))))
            except UserError as error:
                assert odd.error is not None and odd.error in error.what, error
                result = f"error: … {odd.error}"
        rows.append(f"| {odd.what} | {result} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    print(table(), end="")
