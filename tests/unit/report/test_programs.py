"""Programs of somebody else: what the page says of them, and warnings about runs that train otherwise."""

from types import SimpleNamespace
from typing import Any

import pytest

from throughline.report.analysis import program_losses
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


def runs(levels: list[float], batch: int = 8, slope: float = 0.01) -> list[Any]:
    """Return runs of a program whose losses fall towards these levels."""
    steps = list(range(10, 210, 10))
    return [
        SimpleNamespace(
            status="ok",
            spec=SimpleNamespace(repeat=repeat, size=SimpleNamespace(global_batch=batch)),
            program=SimpleNamespace(
                points=SimpleNamespace(step=steps, loss=[None, *(level + slope * (200 - step) for step in steps[1:])])
            ),
        )
        for repeat, level in enumerate(levels, 1)
    ]


SEEDS = [2.00, 2.02, 1.99, 2.01, 2.03]


@pytest.mark.parametrize(
    ("series", "told"),
    [
        ({"1n1g": runs(SEEDS), "1n2g": runs([2.01, 2.00, 2.02, 1.99, 2.02])}, {}),
        ({"1n1g": runs([2.0, 2.0, 2.0, 2.0, 2.001])}, {}),
        (
            {"1n1g": runs([2.00, 2.02, 2.4, 2.01, 2.03])},
            {"1n1g": "repeat 3 trains otherwise: its loss over steps 110 to"},
        ),
        (
            {"1n1g": runs(SEEDS), "1n2g": runs([2.1, 2.12, 2.11])},
            {"1n2g": "it trains otherwise than on 1n1g with the same"},
        ),
        ({"1n1g": runs(SEEDS), "1n2g": runs([2.1, 2.12, 2.11], batch=16)}, {}),
        ({"1n1g": runs(SEEDS), "1n2g": runs([2.9])}, {}),
    ],
)
def test_only_what_is_beyond_the_repeats_is_a_warning(series: dict[str, list[Any]], told: dict[str, str]) -> None:
    found = {topology: texts for topology, texts in program_losses.warnings(series).items() if texts}
    assert found.keys() == told.keys()
    assert all(len(found[topology]) == 1 and found[topology][0].startswith(text) for topology, text in told.items())
