"""Dumps in unusual forms, built from real pages of the sample, give all their articles."""

from __future__ import annotations

import bz2
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from corpus_helpers import streams
from throughline import files
from throughline.corpus.source import dumps
from throughline.corpus.text import extraction

FIRST, PAGES, ARTICLES = 24, 80, 28
CLOSING = b"</mediawiki>\n"
TALK = (
    b"<page>\n<title>Talk:Anarchism</title>\n<ns>1</ns>\n<id>90000001</id>\n<revision>\n<id>1</id>\n"
    b'<text xml:space="preserve">Is this so?</text>\n</revision>\n</page>'
)
TEMPLATE = TALK.replace(b"Talk:", b"Template:").replace(b"<ns>1", b"<ns>10").replace(b"90000001", b"90000002")
LONG = (
    b"<page>\n<title>Long</title>\n<ns>0</ns>\n<id>7</id>\n<revision>\n<id>8</id>\n<text>"
    + b"The ''[[word|words]]'' of a line {{in|its}} &lt;b&gt;length&lt;/b&gt;. " * 30_000
    + b"</text>\n</revision>\n</page>"
)
Pages = Sequence[bytes]
Wiki = tuple[bytes, Pages]
"""The header of a dump, and its pages."""


@pytest.fixture(scope="module")
def wiki() -> Wiki:
    """The sample's header and some of its pages: ARTICLES articles, redirects, and two pages of other namespaces."""
    text = bz2.decompress(dumps.find_sample().read_bytes())
    pages = list(dumps.pages(dumps.cut([dumps.find_sample()], 1), 0))[FIRST : FIRST + PAGES - 2]
    return text[: text.index(b"<page>")], [*pages, TALK, TEMPLATE]


def xml(head: bytes, pages: Pages) -> bytes:
    return head + b"\n".join(pages) + b"\n" + CLOSING


def changed(old: bytes, new: bytes) -> Callable[[bytes, Pages], bytes]:
    return lambda head, pages: xml(head, [page.replace(old, new) for page in pages])


def multistream(head: bytes, pages: Pages, without: int | None = None) -> bytes:
    blocks = [b"\n".join(pages[i : i + 20]) + b"\n" for i in range(0, PAGES, 20) if i != without]
    return streams(head, *blocks, CLOSING)


def part_files(head: bytes, pages: Pages) -> list[bytes]:
    packed = bz2.compress(xml(head, pages[10:50]))
    return [streams(head, *pages[:10], CLOSING), packed, xml(head, pages[50:])]


def no_articles(head: bytes, pages: Pages) -> bytes:
    return xml(head, [page for page in pages if b"<ns>0<" not in page or b"<redirect" in page])


def in_one_line(head: bytes, pages: Pages) -> bytes:
    """Return the dump without the white space between elements. MediaWiki writes it; XML does not require it."""
    squeezed = [re.sub(rb">\s+<(?!/text)", b"><", page) for page in pages]
    return re.sub(rb">\s+<", b"><", head) + b"".join(squeezed) + CLOSING.strip()


def untitled(head: bytes, pages: Pages) -> bytes:
    return changed(b"<title>Achilles</title>", b"<title />")(head, pages) + b"<!-- 80 pages -->\n"


def articles(contents: bytes | list[bytes], folder: Path, parts: int = 2) -> dict[int, str]:
    """Extract a dump's articles; return page id -> text."""
    paths = [folder / f"dump{number}" for number in range(1 if isinstance(contents, bytes) else len(contents))]
    for path, data in zip(paths, [contents] if isinstance(contents, bytes) else contents, strict=True):
        path.write_bytes(data)
    cut, found = dumps.cut(paths, parts), dict[int, str]()
    for part in range(parts):
        output, counts = folder / f"{part}.jsonl", folder / f"{part}.json"
        extraction.extract(cut, part, output, counts)
        mine = [json.loads(line) for line in output.open(encoding="utf-8")]
        assert len(mine) == files.read_json(counts)["articles"]
        found |= {int(article["id"]): article["text"] for article in mine}
    return found


@pytest.fixture(scope="module")
def published(wiki: Wiki, tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    return articles(multistream(*wiki), tmp_path_factory.mktemp("published"), 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("build", "count", "differ"),
    [
        pytest.param(multistream, ARTICLES, 0, id="multistream, as published"),
        pytest.param(xml, ARTICLES, 0, id="uncompressed"),
        pytest.param(part_files, ARTICLES, 0, id="three part files, packed differently"),
        pytest.param(lambda head, pages: xml(b"<mediawiki>\n", pages), ARTICLES, 0, id="no <siteinfo>"),
        pytest.param(no_articles, 0, 0, id="redirects and other namespaces only"),
        pytest.param(lambda head, pages: xml(head, [LONG]), 1, 0, id="one line of two megabytes"),
        pytest.param(in_one_line, ARTICLES, 0, id="no line breaks between elements"),
        pytest.param(
            lambda head, pages: b"\xef\xbb\xbf" + xml(head, pages).replace(b"\n", b"\r\n"), ARTICLES, 0,
            id="Windows line ends, byte order mark",
        ),
        pytest.param(
            lambda head, pages: changed(b"<title>", b"<title>Template ")(head, pages[:-2]), ARTICLES, 0,
            id="a title that begins with Template",
        ),
        pytest.param(untitled, ARTICLES, 0, id="an article without a title, a comment at the end"),
        pytest.param(lambda *wiki: multistream(*wiki, without=20), 27, 0, id="a whole stream missing in the middle"),
        pytest.param(changed(b"'''Achilles'''", b"'''Achilmes'''"), ARTICLES, 1, id="a flipped bit in a text"),
    ],
)  # fmt: skip
def test_an_odd_dump(
    build: Callable[[bytes, Pages], bytes | list[bytes]],
    count: int,
    differ: int,
    wiki: Wiki,
    published: dict[int, str],
    tmp_path: Path,
) -> None:
    found = articles(build(*wiki), tmp_path)
    assert len(found) == count
    if count == ARTICLES:
        assert found.keys() == published.keys()
        assert sum(found[number] != published[number] for number in found) == differ
