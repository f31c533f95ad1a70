"""Cutting dumps: every page is in exactly one part, whatever the compression; and files that are not a whole dump."""

from __future__ import annotations

import bz2
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_helpers import CLOSING, HEADER, page, streams
from throughline.corpus.source import dumps, part_pages
from throughline.corpus.source import streams as bz2_streams
from throughline.files import UserError
from throughline.progress import Progress

PAGES = [page(i, f"text {i} " * (1 + 37 * i % 90), namespace=i % 3 // 2) for i in range(1, 60)]
XML = HEADER + "".join(PAGES) + CLOSING


def expected(pages: list[str]) -> list[bytes]:
    return [text.strip().encode() for text in pages]


def all_pages(cut: dumps.Cut) -> list[bytes]:
    return [found for part in range(len(cut.parts)) for found in part_pages.pages(cut, part)]


def packings() -> dict[str, bytes]:
    groups = ["".join(PAGES[i : i + 7]) for i in range(0, len(PAGES), 7)]
    data = XML.encode()
    return {
        "plain.xml": data,
        "single.xml.bz2": bz2.compress(data),
        "multistream.xml.bz2": streams(HEADER, *groups, CLOSING),
        "closing_with_pages.xml.bz2": streams(HEADER + groups[0], *groups[1:-1], groups[-1] + CLOSING),
        "anywhere.xml.bz2": streams(*(data[i : i + 997] for i in range(0, len(data), 997))),
        "two_streams.xml.bz2": streams(data[: len(data) // 3], data[len(data) // 3 :]),
    }


@pytest.mark.slow
@pytest.mark.parametrize("parts", [1, 2, 3, 7, 200])
@pytest.mark.parametrize("name", packings())
def test_every_packing_gives_the_same_pages(tmp_path: Path, name: str, parts: int) -> None:
    path = tmp_path / name
    path.write_bytes(packings()[name])
    cut = dumps.cut([path], parts)
    assert len(cut.parts) == parts
    assert all_pages(cut) == expected(PAGES)
    assert cut.wiki == "enwiki"


def test_kinds(tmp_path: Path) -> None:
    kinds = {}
    for name, data in packings().items():
        (tmp_path / name).write_bytes(data)
        kinds[name] = dumps.cut([tmp_path / name], 4).files[0].kind
    assert kinds == {
        "plain.xml": "xml",
        "single.xml.bz2": "bz2",
        "multistream.xml.bz2": "bz2-streams",
        "closing_with_pages.xml.bz2": "bz2-streams",
        "anywhere.xml.bz2": "bz2-streams",
        "two_streams.xml.bz2": "bz2",
    }


@pytest.mark.parametrize("parts", [1, 2, 5])
def test_several_files_of_several_kinds(tmp_path: Path, parts: int) -> None:
    files = [tmp_path / "a.xml", tmp_path / "b.xml.bz2", tmp_path / "c.xml.bz2"]
    files[0].write_text(HEADER + "".join(PAGES[:20]) + CLOSING)
    files[1].write_bytes(bz2.compress((HEADER + "".join(PAGES[20:40]) + CLOSING).encode()))
    files[2].write_bytes(streams(HEADER, *PAGES[40:], CLOSING))
    assert all_pages(dumps.cut(files, parts)) == expected(PAGES)


def test_reading_in_small_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for size in (1, 5, 6, 7, 100):
        for name, data in packings().items():
            path = tmp_path / name
            path.write_bytes(data)
            cut = dumps.cut([path], 3)
            with monkeypatch.context() as patch:
                patch.setattr(bz2_streams, "READ", size)
                if size > 1 or name == "plain.xml":
                    assert all_pages(cut) == expected(PAGES), (size, name)


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
    path = tmp_path_factory.mktemp("dump") / ("dump.xml.bz2" if packed else "dump.xml")
    path.write_bytes(streams(*(data[i : i + step] for i in range(0, len(data), step))) if packed else data)
    assert all_pages(dumps.cut([path], parts)) == expected(pages)


def test_a_cut_survives_its_file(tmp_path: Path) -> None:
    path = tmp_path / "dump.xml"
    path.write_text(XML)
    cut = dumps.cut([path], 3)
    dumps.write(tmp_path / "parts.json", cut)
    assert dumps.read(tmp_path / "parts.json") == cut


def test_progress_ends_at_the_total(tmp_path: Path) -> None:
    for name, data in packings().items():
        path = tmp_path / name
        path.write_bytes(data)
        cut = dumps.cut([path], 3)
        for part in range(3):
            progress = Progress("test", part_pages.units(cut, part))
            for _ in part_pages.pages(cut, part, progress):
                assert 0 <= progress.done <= progress.total


MULTISTREAM = packings()["multistream.xml.bz2"]


def _without_last_stream() -> bytes:
    return MULTISTREAM[: MULTISTREAM.rindex(b"BZh91AY&SY")]


def _damaged_header() -> bytes:
    at = MULTISTREAM.index(b"BZh91AY&SY", len(MULTISTREAM) // 2)
    return MULTISTREAM[:at] + b"not" + MULTISTREAM[at + 3 :]


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("d.xml", b"", "is empty"),
        ("d.xml.bz2", b"", "is empty"),
        ("d.xml", b"<!DOCTYPE html>\n<html><body>404</body></html>", "is an HTML page"),
        ("d.xml.bz2", b"  <html><body>429</body></html>", "is an HTML page"),
        ("d.xml.bz2", bz2.compress(b"<html>"), "is an HTML page"),
        ("d.xml", b"\x1f\x8bxxxxxxxx", "is a gzip archive"),
        ("d.xml", b"some words", "is not a MediaWiki dump"),
        ("d.xml", b"<!DOCTYPE x [<!ENTITY a 'b'>]><mediawiki>" + CLOSING.encode(), "declares a document type"),
        ("d.xml", b"<page></page><mediawiki>" + CLOSING.encode(), "is not a MediaWiki dump"),
        ("d.xml", b"<mediawiki><page><id>1</id></page>" + CLOSING.encode(), "does not say which of its pages"),
        ("d.xml", XML[: len(XML) // 2].encode(), "is not a whole dump"),
        ("d.xml.bz2", bz2.compress(XML.encode())[:-40], "ends in the middle"),
        ("d.xml.bz2", bz2.compress(XML[: len(XML) // 2].encode()), "is not a whole dump"),
        ("d.xml.bz2", _without_last_stream(), "is not a whole dump"),
        ("d.xml.bz2", MULTISTREAM + b"garbage", "is damaged at byte"),
    ],
)
def test_what_is_no_whole_dump(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(UserError, match=message) as caught:
        dumps.cut([path], 3)
    assert caught.value.next_step


def test_a_damaged_stream_header_is_found_when_its_part_is_read(tmp_path: Path) -> None:
    path = tmp_path / "dump.xml.bz2"
    path.write_bytes(_damaged_header())
    cut = dumps.cut([path], 3)
    with pytest.raises(UserError, match="is damaged at byte"):
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
    ],
)
def test_a_damaged_tag_loses_no_page_in_silence(
    tmp_path: Path, parts: int, packed: bool, number: int, old: str, new: str
) -> None:
    damaged = [text.replace(old, new) if i == number else text for i, text in enumerate(PAGES)]
    data = (HEADER + "".join(damaged) + CLOSING).encode()
    path = tmp_path / "dump"
    path.write_bytes(streams(*(data[i : i + 997] for i in range(0, len(data), 997))) if packed else data)
    with pytest.raises(UserError, match=r"is damaged|ends inside a page"):
        all_pages(dumps.cut([path], parts))


def test_absent_files_folders_and_doubles(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        dumps.cut([tmp_path / "none.xml"], 2)
    with pytest.raises(UserError, match="is a folder"):
        dumps.cut([tmp_path], 2)
    path = tmp_path / "dump.xml"
    path.write_text(XML)
    with pytest.raises(UserError, match="twice"):
        dumps.cut([path, tmp_path / "." / "dump.xml"], 2)
    other = tmp_path / "other.xml"
    other.write_text(XML.replace("enwiki", "dewiki"))
    with pytest.raises(UserError, match="different wikis: dewiki, enwiki"):
        dumps.cut([path, other], 2)


def test_the_magic_inside_a_stream_is_no_border(tmp_path: Path) -> None:
    path = tmp_path / "dump.xml.bz2"
    path.write_bytes(b"BZh91AY&SY" + b"\0" * 100)
    assert not bz2_streams._is_stream(path, 0)


def test_progress_is_quiet_at_first_and_tells_the_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    Progress("short", 10).to(5)
    assert capsys.readouterr().err == ""
    Progress("long", 10_000_000, quiet_s=0).to(2_500_000)
    assert "long: 2.5 MB of 10.0 MB (25%), about 0 s left" in capsys.readouterr().err
    slow = Progress("slow", 4)
    slow.to(1)
    assert "about 1.5 h left" in slow.line(1800)


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
    path = tmp_path / "bomb.xml.bz2"
    path.write_bytes(streams(before) + bomb + streams(CLOSING))
    with pytest.raises(UserError, match=r"unpacks to more than 1,000 times its size"):
        all_pages(dumps.cut([path], parts))


def test_the_beginning_of_a_file_that_unpacks_without_end(tmp_path: Path, bomb: bytes) -> None:
    path = tmp_path / "bomb.xml.bz2"
    path.write_bytes(bomb)
    tracemalloc.start()
    with pytest.raises(UserError, match="is not a MediaWiki dump"):
        dumps.cut([path], 1)
    assert tracemalloc.get_traced_memory()[1] < 16 << 20
    tracemalloc.stop()


def test_a_page_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_pages, "_LONGEST", 1 << 20)
    path = tmp_path / "long.xml"
    path.write_text(HEADER + PAGES[0] + page(60, "x" * (3 << 20)) + CLOSING)
    with pytest.raises(UserError, match="has a page of more than 1 MiB"):
        all_pages(dumps.cut([path], 1))
