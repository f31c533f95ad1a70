"""Losses of programs: a repeat or a topology that trains otherwise has a warning, and seeds alone make none."""

from types import SimpleNamespace
from typing import Any

import pytest

from throughline.report.analysis import program_losses


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
