"""Every implausible figure of a real run gives a warning that says what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from framework_lab import Lab
from throughline.files import UserError
from throughline.records import CellRecord
from throughline.report.analysis import cells as report_cells
from throughline.report.analysis import judged_pairs, summary
from throughline.report.topic import Scope
from throughline.report.topics.comparisons import TOPIC

pytestmark = pytest.mark.alone
WARMUP, TIMED = 2, 60
RAMP = ",".join(str(40 + step) for step in range(WARMUP + TIMED))
"""Milliseconds of steps that get slower and slower."""


def launched(lab: Lab, sleeps: str, timed: int = TIMED, variables: dict[str, str] | None = None, **spec: Any) -> Path:
    """Make a run whose steps sleep so many milliseconds; return its record's path."""
    steps = {"warmup": WARMUP, "timed": timed}
    done, record = lab.launch("fake", steps=steps, variables={"FAKE_STEPS_MS": sleeps, **(variables or {})}, **spec)
    assert done.returncode == 0, done.stderr
    return record


@pytest.fixture(scope="module")
def paths(lab: Lab) -> list[Path]:
    """Questionable records. On one device: a slow repeat that gets slower, a repeat with two modes, a normal repeat,
    and one in another environment. On two devices: two repeats that are faster than two devices can be, one by far
    more."""

    def run(topology: str, repeat: int, sleeps: str, **variables: str) -> Path:
        return launched(lab, sleeps, variables=variables, topology=topology, repeat=repeat, benchmark="implausible")

    return [
        run("1n1g", 1, RAMP),
        run("1n1g", 2, "20,30"),
        run("1n1g", 3, "25"),
        run("1n1g", 4, "25", MALLOC_ARENA_MAX="2"),
        run("1n2g", 1, "1"),
        run("1n2g", 2, "10"),
    ]


@pytest.fixture(scope="module")
def cells(paths: list[Path]) -> dict[str, CellRecord]:
    return summary.summarize(paths, repeats=4).frameworks["fake"]


def test_a_repeat_in_another_environment_is_left_out(cells: dict[str, CellRecord]) -> None:
    one = cells["1n1g"]
    assert ([part.repeats for part in one.left_out], one.n_ok) == ([[4]], 3)
    assert any("repeat 4 ran in another environment" in text and "MALLOC_ARENA_MAX" in text for text in one.warnings)


@pytest.mark.parametrize(
    "words",
    [
        ("steps get slower within the window", "(repeat 1)", "temperature"),
        ("two modes", "repeat 2", "a clock that switches"),
    ],
)
def test_what_happens_within_a_window(cells: dict[str, CellRecord], words: tuple[str, ...]) -> None:
    assert any(all(word in text for word in words) for text in cells["1n1g"].warnings), cells["1n1g"].warnings


def test_a_slow_first_repeat(cells: dict[str, CellRecord]) -> None:
    texts = cells["1n1g"].warnings
    assert any("the first repeat is" in text or "of the median apart" in text for text in texts), texts


def test_more_than_the_devices_can_give(cells: dict[str, CellRecord]) -> None:
    assert any("is more than the 2 devices can give" in text for text in cells["1n2g"].warnings)


def test_repeats_that_lie_apart(cells: dict[str, CellRecord]) -> None:
    assert any("of the median apart: something else used the machine" in text for text in cells["1n2g"].warnings)


def test_strict_makes_no_summary_of_them(paths: list[Path], tmp_path: Path) -> None:
    place = tmp_path / "results/implausible/bz4_fp32.json"
    with pytest.raises(UserError, match="strict") as error:
        summary.write(paths, place, repeats=4, strict=True)
    assert "repeat 4 ran in another environment" in str(error.value) and not place.exists()


def test_what_a_single_repeat_cannot_tell(lab: Lab) -> None:
    """Two devices, a lower precision and a compiled model are each slower than without; and there is an A/A run."""

    def run(sleeps: str, **spec: Any) -> list[Path]:
        return [launched(lab, sleeps, 10, {"FAKE_TAKES": "everything"}, **spec)]

    plain = run("40", benchmark="plain") + run("200", benchmark="plain", topology="1n2g")
    half, again = run("50", benchmark="plain", precision="bf16"), run("40", benchmark="plain__aa")
    compiled = run("50", benchmark="compiled", options={"compile": True})
    everything = report_cells.groups([summary.summarize(one, repeats=1) for one in (plain, half, compiled, again)])
    pairs = judged_pairs.judge([group for group in everything if group.benchmark == "compiled"], everything)
    assert [pair.floor.compared for pair in pairs if pair.floor] == [1]

    def said(benchmark: str) -> str:
        here = [group for group in everything if group.benchmark == benchmark]
        return "\n".join(one.text for one in TOPIC.findings(Scope(here, everything)))

    assert "1n2g and 1n1g cannot be distinguished" in said("plain")
    assert "1 valid repeat cannot decide any of" in said("plain")
    assert "bf16 and fp32 cannot be distinguished on one device" in said("plain")
    assert "Whether compile gains is not known" in said("compiled")


def test_every_repeat_is_kept(cells: dict[str, CellRecord]) -> None:
    one = cells["1n1g"]
    kept = [value for value in one.values if value] + [value for part in one.left_out for value in part.values]
    assert len(kept) == 4
    assert one.statuses == {"ok": 4}


def test_use_memory_and_work_of_real_runs(cells: dict[str, CellRecord]) -> None:
    """What a CPU has is recorded. What it does not have has a reason."""
    one, two = cells["1n1g"], cells["1n2g"]
    assert one.use and one.use.machine["cpu_share"] and one.memory and one.memory.device_total_bytes
    assert one.work and one.work.flops_per_s and one.work.real_tokens_per_s
    assert (one.work.mfu, one.energy_j_per_sample) == (None, None)
    assert one.work.reasons["mfu"] and one.use.reasons["devices"]
    assert two.use and "shorter than the sampling interval" in two.use.reasons["telemetry"]
