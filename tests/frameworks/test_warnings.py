"""What real runs say of themselves: another environment, implausible speed, use of the machine. Unit tests
(report/test_summary.py) have all other warnings."""

from __future__ import annotations

import pytest

from framework_lab import Lab
from throughline.records import CellRecord
from throughline.report.analysis import summary

pytestmark = pytest.mark.alone
RUNS = (
    ("1n1g", 1, "25", {}),
    ("1n1g", 2, "25", {}),
    ("1n1g", 3, "25", {"MALLOC_ARENA_MAX": "2"}),
    ("1n2g", 1, "1", {}),
)
"""Topology, repeat, the milliseconds of a step, and variables of the environment."""


@pytest.fixture(scope="module")
def cells(lab: Lab) -> dict[str, CellRecord]:
    paths = []
    for topology, repeat, sleeps, variables in RUNS:
        done, record = lab.launch(
            "fake", topology=topology, repeat=repeat, benchmark="implausible", steps={"warmup": 2, "timed": 60},
            variables={"FAKE_STEPS_MS": sleeps, **variables},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        paths.append(record)
    return summary.summarize(paths, repeats=3).frameworks["fake"]


def test_a_repeat_in_another_environment_is_left_out(cells: dict[str, CellRecord]) -> None:
    one = cells["1n1g"]
    assert ([part.repeats for part in one.left_out], one.n_ok, one.statuses) == ([[3]], 2, {"ok": 3})
    assert any("repeat 3 ran in another environment" in text and "MALLOC_ARENA_MAX" in text for text in one.warnings)


def test_more_than_the_devices_can_give(cells: dict[str, CellRecord]) -> None:
    assert any("is more than the 2 devices can give" in text for text in cells["1n2g"].warnings)


def test_use_memory_and_work_of_real_runs(cells: dict[str, CellRecord]) -> None:
    """What a CPU has is recorded. What it does not have has a reason."""
    one, two = cells["1n1g"], cells["1n2g"]
    assert one.use and one.use.machine["cpu_share"] and one.memory and one.memory.device_total_bytes
    assert one.work and one.work.flops_per_s and one.work.real_tokens_per_s
    assert (one.work.mfu, one.energy_j_per_sample) == (None, None)
    assert one.work.reasons["mfu"] and one.use.reasons["devices"]
    assert two.use and "shorter than the sampling interval" in two.use.reasons["telemetry"]
