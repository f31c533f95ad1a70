"""The page about programs: what starts each, and where the times of its steps come from."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from throughline.report.render import run_environment
from throughline.report.render.table_files import printed
from throughline.spec import Program, Timing

PATTERN = r"step (?P<step>\d+) "


def run(timing: Timing, code: str = "commit 1") -> Any:
    program = Program(command=("python", "train.py", "--seed={seed}"), timing=timing, unit="tokens", per_step=8)
    return SimpleNamespace(
        spec=SimpleNamespace(framework="train", program=program), environment={"framework": {"train": code}}
    )


@pytest.mark.parametrize(
    ("timing", "words"),
    [
        (Timing("marks"), "its marks"),
        (Timing("nanogpt", PATTERN + r"(?P<ms>\d+)"), "the time of each step in its log (nanogpt)"),
        (Timing("torchtitan", PATTERN + r"(?P<per_s>\d+)", "device"), "the throughput of the device in its log"),
        (Timing("ngc-pytorch", PATTERN + r"(?P<clock>\S+)"), "the times of day in its log (ngc-pytorch)"),
        (Timing("pattern", PATTERN + r"(?P<s>\S+)"), r"the time of each step in its log (lines that match step"),
    ],
)
def test_the_page_says_where_the_times_come_from(timing: Timing, words: str) -> None:
    table = run_environment.programs([run(timing), run(timing)])
    assert table
    header, rows = printed(table)
    (row,) = rows
    shown = dict(zip(header, row, strict=True))
    assert shown["times of its steps"].startswith(words)
    assert (shown["command"], shown["starts once for every"]) == ("python train.py --seed={seed}", "node")


def test_two_states_of_the_code_are_two_rows_and_other_runs_none() -> None:
    table = run_environment.programs([run(Timing("marks")), run(Timing("marks"), "commit 2")])
    assert table and len(printed(table)[1]) == 2
    assert run_environment.programs([SimpleNamespace(spec=SimpleNamespace(program=None))]) is None
