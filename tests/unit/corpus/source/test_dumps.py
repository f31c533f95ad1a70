"""Cutting dumps: every page is in exactly one part, whatever the compression; and files that are not a whole dump."""

import bz2
import re
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_helpers import CLOSING, HEADER, page, streams
from throughline.corpus.source import dumps
from throughline.corpus.source import streams as bz2_streams
from throughline.files import UserError
from throughline.progress import Progress

PAGES = [page(i, f"text {i} " * (1 + 37 * i % 90), namespace=i % 3 // 2) for i in range(1, 60)]
XML = (HEADER + "".join(PAGES) + CLOSING).encode()
GROUPS = ["".join(PAGES[i : i + 7]) for i in range(0, len(PAGES), 7)]
MULTISTREAM = streams(HEADER, *GROUPS, CLOSING)
PACKINGS = {  # name: (kind, if four parts share the file; data)
    "plain.xml": ("xml", XML),
    "single.xml.bz2": ("bz2", bz2.compress(XML)),
    "multistream.xml.bz2": ("bz2-streams", MULTISTREAM),
    "closing_with_pages.xml.bz2": ("bz2-streams", streams(HEADER + GROUPS[0], *GROUPS[1:-1], GROUPS[-1] + CLOSING)),
    "anywhere.xml.bz2": ("bz2-streams", streams(*(XML[i : i + 997] for i in range(0, len(XML), 997)))),
    "two_streams.xml.bz2": ("bz2", streams(XML[: len(XML) // 3], XML[len(XML) // 3 :])),
}


def expected(pages: list[str]) -> list[bytes]:
    return [text.strip().encode() for text in pages]


def all_pages(cut: dumps.Cut) -> list[bytes]:
    return [found for part in range(len(cut.parts)) for found in dumps.pages(cut, part)]


def written(folder: Path, data: bytes | str, name: str = "dump.xml") -> Path:
    path = folder / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("parts", [1, 2, 4, 200])
@pytest.mark.parametrize("name", PACKINGS)
def test_every_packing_gives_the_same_pages(
    tmp_path: Path, name: str, parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, data = PACKINGS[name]
    cut = dumps.cut([written(tmp_path, data, name)], parts)
    assert (len(cut.parts), cut.wiki) == (parts, "enwiki") and (parts != 4 or cut.files[0].kind == kind)
    assert all_pages(cut) == expected(PAGES)
    dumps.write(tmp_path / "parts.json", cut)
    assert dumps.read(tmp_path / "parts.json") == cut
    for size in (5, 6, 7, 100) if parts == 4 else ():
        monkeypatch.setattr(bz2_streams, "READ", size)
        assert all_pages(cut) == expected(PAGES), size


def test_several_files_and_their_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shares: list[float] = []
    monkeypatch.setattr(Progress, "to", lambda self, done: shares.append(done / self.total) if self.total else None)
    for name, (_, data) in PACKINGS.items():
        cut = dumps.cut([written(tmp_path, data, name), written(tmp_path, XML, "other.xml")], 3)
        shares.clear()
        with monkeypatch.context() as patch:
            patch.setattr(bz2_streams, "READ", 1000)
            assert all_pages(cut) == expected(PAGES) * 2
        assert min(shares) >= 0 and 0.9 < max(shares) <= 1, name


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 300), min_size=0, max_size=12),
    parts=st.integers(1, 9),
    step=st.integers(1, 500),
    packed=st.booleans(),
)
def test_parts_tile_any_dump(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], parts: int, step: int, packed: bool
) -> None:
    pages = [page(i, "x" * size) for i, size in enumerate(sizes, start=1)]
    data = (HEADER + "".join(pages) + CLOSING).encode()
    content = streams(*(data[i : i + step] for i in range(0, len(data), step))) if packed else data
    assert all_pages(dumps.cut([written(tmp_path_factory.mktemp("dump"), content)], parts)) == expected(pages)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "does not begin with <mediawiki>"),
        (b"\x1f\x8bxxxxxxxx", "does not begin with <mediawiki>"),
        (bz2.compress(b"<html>"), "is an HTML page: is the address right"),
        (b'<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0">\n<html><head><title>404', "is an HTML page"),
        (b"<page></page><mediawiki>" + CLOSING.encode(), "does not begin with <mediawiki>"),
        (b"<!DOCTYPE x [<!ENTITY a 'b'>]><mediawiki>" + CLOSING.encode(), "declares a document type"),
        (b'<?xml encoding="latin1"?><mediawiki>' + CLOSING.encode(), "is written in latin1"),
        (XML[: len(XML) // 2], "does not end with </mediawiki>"),
        (XML + b"<page>", "something follows </mediawiki>: b'<page>'"),
        (bz2.compress(XML)[:-40], "ends in the middle"),
        (bz2.compress(XML[: len(XML) // 2]), "does not end with </mediawiki>"),
        (MULTISTREAM[: MULTISTREAM.rindex(b"BZh91AY&SY")], "does not end with </mediawiki>"),
        (MULTISTREAM + b"garbage", "does not decompress"),
        (MULTISTREAM.replace(b"BZh91AY&SY", b"not91AY&SY")[10:], "does not begin with <mediawiki>"),
    ],
)
def test_what_is_no_whole_dump(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        dumps.cut([written(tmp_path, data)], 3)
    assert "not from a pages-articles dump" in caught.value.what or "is damaged, or not whole" in caught.value.what


@pytest.mark.parametrize(("after", "flip"), [(0, 1), (200, 128)])
def test_a_flipped_bit_in_the_compressed_data(tmp_path: Path, after: int, flip: int) -> None:
    start = MULTISTREAM.index(b"BZh91AY&SY", len(MULTISTREAM) // 2)
    at = start + after
    cut = dumps.cut([written(tmp_path, MULTISTREAM[:at] + bytes([MULTISTREAM[at] ^ flip]) + MULTISTREAM[at + 1 :])], 3)
    with pytest.raises(UserError, match=f"the bz2 stream at byte {start} does not decompress"):
        all_pages(cut)


@pytest.mark.parametrize("parts", [1, 2, 3, 9, 60])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("number", "old", "new"),
    [
        (30, "<page>", "<pbge>"),
        (0, "<page>", "<pbge>"),
        (58, "<page>", "<pbge>"),
        (30, "</page>", "</pbge>"),
        (58, "</page>", "</pbge>"),
        (30, "</page>", "</page>x"),
        (58, "</page>", "</page>x"),
    ],
)
def test_a_damaged_tag_loses_no_page_in_silence(
    tmp_path: Path, parts: int, packed: bool, number: int, old: str, new: str
) -> None:
    damaged = [text.replace(old, new) if i == number else text for i, text in enumerate(PAGES)]
    data = (HEADER + "".join(damaged) + CLOSING).encode()
    content = streams(*(data[i : i + 997] for i in range(0, len(data), 997))) if packed else data
    with pytest.raises(UserError, match="is damaged, or not whole"):
        all_pages(dumps.cut([written(tmp_path, content)], parts))


def test_absent_files_folders_and_two_wikis(tmp_path: Path) -> None:
    path = written(tmp_path, XML)
    other = written(tmp_path, XML.replace(b"enwiki", b"dewiki"), "other.xml")
    for paths, message in (
        ([tmp_path / "none.xml"], "No such file"),
        ([tmp_path], "Is a directory"),
        ([path, other], "different wikis: dewiki, enwiki"),
    ):
        with pytest.raises(UserError, match=message):
            dumps.cut(paths, 2)


def test_the_magic_inside_a_stream_is_no_border(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bz2_streams, "_STREAM", re.compile(rb"BZh[1-9]1AY&SY|\0"))
    assert all_pages(dumps.cut([written(tmp_path, MULTISTREAM)], 5)) == expected(PAGES)


def test_progress_is_quiet_at_first_and_tells_the_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    Progress("short", 10).to(5)
    assert capsys.readouterr().err == ""
    Progress("long", 10_000_000, quiet_s=0).to(2_500_000)
    assert "long: 2.5 MB of 10.0 MB (25%), about 0 s left" in capsys.readouterr().err
    slow = Progress("slow", 4)
    slow.to(1)
    assert "about 90 min left" in slow.line(1800)
    resumed = Progress("downloading x", 1000, done=900)
    resumed.done = 950
    assert resumed.line(10) == "downloading x: 950 bytes of 1.0 kB (95%), about 10 s left"


@pytest.fixture(scope="module")
def bomb() -> bytes:
    """A bz2 stream of a few kilobytes that unpacks to 160 MiB of blanks."""
    packer, block = bz2.BZ2Compressor(), b" " * (1 << 20)
    return b"".join([packer.compress(block) for _ in range(160)] + [packer.flush()])


@pytest.mark.slow
@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("before", [HEADER + PAGES[0], HEADER + PAGES[0][:-20]])
def test_a_file_that_unpacks_without_end(tmp_path: Path, bomb: bytes, before: str, parts: int) -> None:
    """The stream stands between pages or inside a page."""
    path = written(tmp_path, streams(before) + bomb + streams(CLOSING))
    with pytest.raises(UserError, match=r"unpacks to more than 1,000 times its size"):
        all_pages(dumps.cut([path], parts))


def test_the_beginning_of_a_file_that_unpacks_without_end(tmp_path: Path, bomb: bytes) -> None:
    path = written(tmp_path, bomb)
    tracemalloc.start()
    with pytest.raises(UserError, match="does not begin with <mediawiki>"):
        dumps.cut([path], 1)
    assert tracemalloc.get_traced_memory()[1] < 16 << 20
    tracemalloc.stop()


def test_a_page_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dumps, "_LONGEST", 1 << 20)
    path = written(tmp_path, HEADER + PAGES[0] + page(60, "x" * (3 << 20)) + CLOSING)
    with pytest.raises(UserError, match="has a page of more than 1 MiB"):
        all_pages(dumps.cut([path], 1))
    path = written(tmp_path, HEADER + PAGES[0].replace("</page>", "") + CLOSING)
    with pytest.raises(UserError, match="it ends inside a page"):
        all_pages(dumps.cut([path], 1))


@pytest.mark.parametrize(("namespace", "redirect"), [(1, False), (0, True)])
def test_a_dump_without_an_article(tmp_path: Path, namespace: int, redirect: bool) -> None:
    without = page(1, "x", namespace=namespace, redirect=redirect)
    with pytest.raises(UserError, match=r"no page of .* is an article"):
        dumps.check_articles(dumps.cut([written(tmp_path, HEADER + without + CLOSING)], 2))
    dumps.check_articles(dumps.cut([written(tmp_path, HEADER + without + page(2, "x") + CLOSING)], 2))
