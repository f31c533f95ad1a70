"""The cause of a failure, in the words of its log."""

from __future__ import annotations

from pathlib import Path

import pytest

from throughline.console.cause import AT_MOST, cause

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
    assert cause([str(log), str(tmp_path / "absent.log")]) == expected
