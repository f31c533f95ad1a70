"""Text extraction by wikiextractor: no article is lost in silence, and no process is left behind."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from corpus_helpers import CLOSING, HEADER, page, streams
from throughline import processes
from throughline.corpus.source import dumps
from throughline.corpus.text import extraction
from throughline.files import UserError

FORKS = "import os, time\nos.fork()\nopen({note!r}, 'a').write(f'{{os.getpid()}} ')\ntime.sleep(600)\n"


def small(folder: Path, *pages: str) -> dumps.Cut:
    path = folder / "dump.xml"
    path.write_text(HEADER + "".join(pages) + CLOSING)
    return dumps.cut([path], 1)


PRINTED = 'import sys, json\nsys.stdin.read()\nprint(json.dumps({"id": "1", "text": "One."}))\n'


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (PRINTED, "(?s)gave 1 of 2 articles.*missing page ids: .7"),
        ("import sys\nsys.stdin.read()\nsys.exit('no memory')\n", "exit status is 1: no memory"),
        ("import sys\nsys.exit(3)\n", "exit status is 3: it printed no reason"),
        ("import sys\nsys.stdin.read()\nprint('INFO: hello')\n", "a line that is no article .*INFO: hello"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n", "exit status is 137"),
        ("import os, time\nif os.fork(): os._exit(5)\ntime.sleep(600)\n", "exit status is 5"),
    ],
)
def test_a_failing_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, message: str) -> None:
    (tmp_path / "program.py").write_text(body)
    monkeypatch.setattr(extraction, "PROGRAM", (str(tmp_path / "program.py"),))
    cut, out = small(tmp_path, page(1, "One."), page(7, "Two.")), tmp_path / "out"
    with pytest.raises(UserError, match=message):
        extraction.extract(cut, 0, out / "a.jsonl", out / "a.json")
    assert list(out.iterdir()) == []


@pytest.mark.slow
def test_a_program_that_hangs_is_stopped_with_all_it_forked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    note = tmp_path / "pids"
    (tmp_path / "program.py").write_text(FORKS.format(note=str(note)))
    monkeypatch.setattr(extraction, "PROGRAM", (str(tmp_path / "program.py"),))
    with pytest.raises(UserError, match="nothing moved for 1 seconds"):
        extraction.extract(small(tmp_path, page(1, "x")), 0, tmp_path / "a.jsonl", tmp_path / "a.json", stall_s=1)
    assert len(note.read_text().split()) == 2
    are_gone(note)


def test_the_program_dies_with_us(tmp_path: Path) -> None:
    note = tmp_path / "pids"
    code = "import sys\nfrom throughline.corpus.text import extraction\n"
    code += "list(extraction._run([sys.executable, '-c', sys.argv[1]], iter([]), 600))"
    caller = subprocess.Popen([sys.executable, "-c", code, FORKS.format(note=str(note))])
    assert processes.wait_until(lambda: note.exists() and len(note.read_text().split()) == 2, 120)
    caller.send_signal(signal.SIGKILL)
    caller.wait()
    are_gone(note)


def are_gone(note: Path) -> None:
    """Wait until these processes have ended: they do not exist, or are zombies."""
    pids = [int(pid) for pid in note.read_text().split()]
    assert processes.wait_until(lambda: all((processes.stat(pid) or "Z")[0] == "Z" for pid in pids), 120)


def test_damage_inside_the_dump_is_told_as_such(tmp_path: Path) -> None:
    data = bytearray(streams(HEADER, *(page(i, f"Text {i}.") for i in range(1, 9)), CLOSING))
    at = data.index(b"BZh91AY&SY", len(data) // 2)
    data[at : at + 3] = b"not"
    path = tmp_path / "dump.xml.bz2"
    path.write_bytes(data)
    with pytest.raises(UserError, match="is damaged, or not whole"):
        extraction.extract(dumps.cut([path], 1), 0, tmp_path / "a.jsonl", tmp_path / "a.json")
    assert not (tmp_path / "a.jsonl").exists()
