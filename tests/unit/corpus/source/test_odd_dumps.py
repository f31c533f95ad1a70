"""Dumps in unusual forms, built from real pages of the sample, give all their articles."""

import bz2
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from throughline import files
from throughline.corpus.source import dumps
from throughline.corpus.text import extraction

CLOSING = b"</mediawiki>\n"
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
    """The sample's header, and 78 of its pages: 28 articles, and redirects."""
    text = bz2.decompress(dumps.find_sample().read_bytes())
    pages = list(dumps.pages(dumps.cut([dumps.find_sample()], 1), 0))[24:102]
    return text[: text.index(b"<page>")], pages


def xml(head: bytes, pages: Pages) -> bytes:
    return head + b"\n".join(pages) + b"\n" + CLOSING


def in_one_line(head: bytes, pages: Pages) -> bytes:
    """Return the dump without the white space between elements. MediaWiki writes it; XML does not require it."""
    squeezed = [re.sub(rb">\s+<(?!/text)", b"><", page) for page in pages]
    return re.sub(rb">\s+<", b"><", head) + b"".join(squeezed) + CLOSING.strip()


def untitled(head: bytes, pages: Pages) -> bytes:
    return xml(head, pages).replace(b"<title>Achilles</title>", b"<title />") + b"<!-- 78 pages -->\n"


def articles(content: bytes, folder: Path) -> dict[int, str]:
    """Extract a dump's articles in two parts; return page id -> text."""
    (folder / "dump").write_bytes(content)
    cut, found = dumps.cut([folder / "dump"], 2), dict[int, str]()
    for part in range(2):
        output, counts = folder / f"{part}.jsonl", folder / f"{part}.json"
        extraction.extract(cut, part, output, counts)
        mine = [json.loads(line) for line in output.open(encoding="utf-8")]
        assert len(mine) == files.read_json(counts)["articles"]
        found |= {int(article["id"]): article["text"] for article in mine}
    return found


@pytest.fixture(scope="module")
def published(wiki: Wiki, tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    return articles(xml(*wiki), tmp_path_factory.mktemp("published"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "build",
    [
        pytest.param(lambda head, pages: xml(b"<mediawiki>\n", pages), id="no <siteinfo>"),
        pytest.param(in_one_line, id="no line breaks between elements"),
        pytest.param(
            lambda *wiki: b"\xef\xbb\xbf" + xml(*wiki).replace(b"\n", b"\r\n"),
            id="Windows line ends, byte order mark",
        ),
        pytest.param(
            lambda *wiki: xml(*wiki).replace(b"<title>", b"<title>Template "),
            id="titles that begin with Template",
        ),
        pytest.param(untitled, id="an article without a title, a comment at the end"),
    ],
)
def test_an_odd_dump(
    build: Callable[[bytes, Pages], bytes], wiki: Wiki, published: dict[int, str], tmp_path: Path
) -> None:
    assert articles(build(*wiki), tmp_path) == published and len(published) == 28


@pytest.mark.slow
def test_one_line_of_two_megabytes(wiki: Wiki, tmp_path: Path) -> None:
    ((number, text),) = articles(xml(wiki[0], [LONG]), tmp_path).items()
    assert number == 7 and text.count('"words" of a line') == 30_000
