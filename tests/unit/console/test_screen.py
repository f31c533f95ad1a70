"""The console shows the cause of a failure in the words of its log, and a bar that fits beside texts of any length."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from throughline.console.failure_cause import AT_MOST, failure_cause
from throughline.console.screen import Screen, Status

LOGS = {
    "of a run": (
        "# again: snakemake\noutcome: failed; no record\nx.json: rank 1: killed\n  next: read x.log\nand more\n",
        "x.json: rank 1: killed\n  next: read x.log",
    ),
    "of a run that was stopped": (
        "device: cpu\noutcome: stopped from outside; no record\nnext: run snakemake again\n",
        "outcome: stopped from outside; no record",
    ),
    "of data": ("note: none\nerror: a.bz2 is damaged\n  why:  no end\n", "a.bz2 is damaged\n  why:  no end"),
    "of something unforeseen": ("\n".join(map(str, range(20))), "\n".join(map(str, range(20 - AT_MOST, 20)))),
    "of nothing": ("", "it wrote no log: it was ended before, or never started"),
}


@pytest.mark.parametrize("name", LOGS)
def test_the_cause_in_the_log(tmp_path: Path, name: str) -> None:
    log = tmp_path / "x.log"
    text, expected = LOGS[name]
    log.write_text(text)
    assert failure_cause([str(log), str(tmp_path / "absent.log")]) == expected


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_bar_stays_in_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"TERM": "xterm", "COLUMNS": "100"}.items():
        monkeypatch.setenv(name, value)
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    screen = Screen(lambda: Status("data: 1 of 63 steps", 0.5, "about 6 min left", "word " * 99), quiet=False)
    screen.open()
    screen.say("[a text] with [red]brackets")
    screen.close()
    lines = shown.getvalue().splitlines()
    assert any("data: 1 of 63 steps" in line and "about 6 min left" in line and "word word" in line for line in lines)
    assert "word " * 20 not in shown.getvalue()
    assert "[a text] with [red]brackets" in shown.getvalue()
