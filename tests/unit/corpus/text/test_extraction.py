"""Text extraction: the same articles whatever a dump's compression, and no silent loss."""

from __future__ import annotations

import bz2
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from corpus_helpers import CLOSING, HEADER, page, streams
from throughline.corpus.source import dumps
from throughline.corpus.text import extraction
from throughline.files import UserError

SAMPLE = dumps.find_sample()


def extracted(files: list[Path], parts: int, folder: Path) -> bytes:
    cut = dumps.cut(files, parts)
    for part in range(parts):
        extraction.extract(cut, part, folder / f"{part}.jsonl", folder / f"{part}.json")
    return b"".join((folder / f"{part}.jsonl").read_bytes() for part in range(parts))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The sample's articles, extracted in one part."""
    return extracted([SAMPLE], 1, tmp_path_factory.mktemp("whole"))


@pytest.mark.slow
def test_the_sample(whole: bytes) -> None:
    articles = [json.loads(line) for line in whole.splitlines()]
    assert len(articles) == 106
    assert articles[0]["title"] == "Anarchism" and articles[0]["id"] == "12"
    assert "&lt;" not in whole.decode()


@pytest.mark.slow
def test_the_sample_in_parts(whole: bytes, tmp_path: Path) -> None:
    assert extracted([SAMPLE], 3, tmp_path) == whole


@pytest.mark.slow
def test_every_packing_of_some_pages_gives_the_same_articles(tmp_path: Path) -> None:
    text = bz2.decompress(SAMPLE.read_bytes())
    pages = list(dumps.pages(dumps.cut([SAMPLE], 1), 0))[20:80]
    header = text[: text.index(b"<page>")]
    end = CLOSING.encode()

    def block(first: int, last: int) -> bytes:
        return b"\n".join(pages[first:last]) + b"\n"

    plain, multi, one, two = (tmp_path / name for name in ("a.xml", "b.xml.bz2", "c.xml.bz2", "d.xml"))
    plain.write_bytes(header + block(0, 60) + end)
    multi.write_bytes(streams(header, *(block(i, i + 6) for i in range(0, 60, 6)), end))
    one.write_bytes(streams(header, block(0, 15), block(15, 30), end))
    two.write_bytes(header + block(30, 60) + end)
    whole = extracted([plain], 1, tmp_path)
    assert whole.count(b"\n") > 10
    assert extracted([plain], 2, tmp_path) == whole
    assert extracted([multi], 3, tmp_path) == whole
    assert extracted([one, two], 2, tmp_path) == whole


def small(tmp_path: Path, *pages: str) -> dumps.Cut:
    path = tmp_path / "dump.xml"
    path.write_text(HEADER + "".join(pages) + CLOSING)
    return dumps.cut([path], 1)


def test_counts(tmp_path: Path) -> None:
    cut = small(
        tmp_path,
        page(1, "An article about something."),
        page(2, "#REDIRECT [[Page 1]]", redirect=True),
        page(3, "Talk about it.", namespace=1),
        page(4, "", title="Nothing"),
        page(5, "A method.", title="Template metaprogramming"),
        page(6, "Literal &lt;page&gt; and &lt;ns&gt;1&lt;/ns&gt; and [SEP] in a text."),
    )
    extraction.extract(cut, 0, tmp_path / "a.jsonl", tmp_path / "a.json")
    counts = json.loads((tmp_path / "a.json").read_text())
    assert counts["pages"] == 6
    assert counts["articles"] == 4
    assert counts["redirects"] == 1
    assert counts["other_namespaces"] == 1


def test_a_part_without_pages_is_legal(tmp_path: Path) -> None:
    path = tmp_path / "dump.xml"
    path.write_text(HEADER + page(1, "The only article.") + CLOSING)
    cut = dumps.cut([path], 5)
    for part in range(5):
        extraction.extract(cut, part, tmp_path / f"{part}.jsonl", tmp_path / f"{part}.json")
    lines = [(tmp_path / f"{part}.jsonl").read_bytes().count(b"\n") for part in range(5)]
    assert sorted(lines) == [0, 0, 0, 0, 1]


def _program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    script = tmp_path / "program.py"
    script.write_text(body)
    monkeypatch.setattr(extraction, "PROGRAM", (str(script),))


def test_missing_articles_are_an_error_and_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = 'import sys, json\nsys.stdin.read()\nprint(json.dumps({"id": "1", "text": "One."}))\n'
    _program(tmp_path, monkeypatch, body)
    cut = small(tmp_path, page(1, "One."), page(7, "Two."))
    with pytest.raises(UserError, match="gave 1 of 2 articles") as caught:
        extraction.extract(cut, 0, tmp_path / "out" / "a.jsonl", tmp_path / "out" / "a.json")
    assert "missing page ids: 7" in str(caught.value)
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("import sys\nsys.stdin.read()\nsys.exit('no memory')\n", "failed with exit status 1"),
        ("import sys\nsys.exit(3)\n", "failed with exit status 3"),
        ("import sys\nsys.stdin.read()\nprint('INFO: hello')\n", "a line that is no article"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n", "failed with exit status 137"),
    ],
)
def test_a_failing_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, message: str) -> None:
    _program(tmp_path, monkeypatch, body)
    with pytest.raises(UserError, match=message):
        extraction.extract(small(tmp_path, page(1, "One.")), 0, tmp_path / "a.jsonl", tmp_path / "a.json")
    assert not (tmp_path / "a.jsonl").exists()


@pytest.mark.slow
def test_a_program_that_hangs_is_stopped_with_all_it_forked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    note = tmp_path / "pids"
    body = f"import os, time\nos.fork()\nopen({str(note)!r}, 'a').write(f'{{os.getpid()}} ')\ntime.sleep(600)\n"
    _program(tmp_path, monkeypatch, body)
    with pytest.raises(UserError, match="did not move for 1 seconds"):
        extraction.extract(small(tmp_path, page(1, "x")), 0, tmp_path / "a.jsonl", tmp_path / "a.json", stall_s=1)
    assert len(note.read_text().split()) == 2
    _gone([int(pid) for pid in note.read_text().split()])


def test_damage_inside_the_dump_is_told_as_such(tmp_path: Path) -> None:
    data = bytearray(streams(HEADER, *(page(i, f"Text {i}.") for i in range(1, 9)), CLOSING))
    at = data.index(b"BZh91AY&SY", len(data) // 2)
    data[at : at + 3] = b"not"
    path = tmp_path / "dump.xml.bz2"
    path.write_bytes(data)
    with pytest.raises(UserError, match="is damaged, or not whole"):
        extraction.extract(dumps.cut([path], 1), 0, tmp_path / "a.jsonl", tmp_path / "a.json")
    assert not (tmp_path / "a.jsonl").exists()


def test_the_program_dies_with_us(tmp_path: Path) -> None:
    note = tmp_path / "pids"
    program = f"import os, time\nos.fork()\nopen({str(note)!r}, 'a').write(f'{{os.getpid()}} ')\ntime.sleep(600)\n"
    asker = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys\nfrom throughline.corpus.text import extraction\n"
            "list(extraction._run([sys.executable, '-c', sys.argv[1]], iter([]), 600))",
            program,
        ],
    )
    _wait(lambda: note.exists() and len(note.read_text().split()) == 2)
    asker.send_signal(signal.SIGKILL)
    asker.wait()
    _gone([int(pid) for pid in note.read_text().split()])


def _alive(pid: int) -> bool:
    """True if the process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _gone(pids: list[int]) -> None:
    _wait(lambda: not any(map(_alive, pids)))


def _wait(condition: object) -> None:
    assert callable(condition)
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end, "waited for two minutes"
        time.sleep(0.02)
