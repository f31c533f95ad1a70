"""Runs on cards, from the launcher to the summary: ranks of `fake`, and a library that answers like NVML."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import nvml_double
from framework_lab import ROOT, Lab
from throughline import records
from throughline.report.analysis import summary

pytestmark = pytest.mark.alone
SEEN = '{"count": 2, "name": "Double", "fp16": true}'
"""The answer of `fake` when it is asked for its GPUs."""


class Cards:
    """A copy of the sources in which every machine may have GPUs and `fake` sees two."""

    def __init__(self, folder: Path) -> None:
        self.lab, self.nvml = Lab(folder), nvml_double.build(folder / "nvml")
        shutil.copytree(ROOT / "resources", folder / "resources")
        source = folder / "src/throughline"
        for path, there, instead in (
            (source / "launch/machine.py", '"/dev/nvidiactl"', '"/dev/null"'),
            (source / "frameworks/fake/__init__.py", """'{"count": 0, "name": null, "fp16": null}'""", repr(SEEN)),
        ):
            text = path.read_text()
            assert there in text
            path.write_text(text.replace(there, instead, 1))

    def run(self, repeat: int, *options: str, status: int = 0, **answers: float) -> tuple[str, Path]:
        """Start a run; return the launcher's output and the path of the record."""
        changes: dict[str, Any] = {"device": "cuda", "repeat": repeat, "steps": {"timed": 60}}
        variables = nvml_double.variables(self.nvml, **answers) | {"FAKE_STEPS_MS": "40"}
        done, record = self.lab.launch("fake", *options, variables=variables, **changes)
        assert done.returncode == status, done.stderr
        assert "Traceback" not in done.stderr
        return done.stderr, record


@pytest.fixture(scope="module")
def cards(tmp_path_factory: pytest.TempPathFactory) -> Cards:
    return Cards(tmp_path_factory.mktemp("cards"))


@pytest.fixture(scope="module")
def first(cards: Cards) -> Path:
    return cards.run(1)[1]


def test_a_run_on_cards_has_all_that_they_tell(first: Path) -> None:
    record = records.read_run(first)
    assert record.status == "ok" and record.device and (record.device.kind, record.device.count) == ("cuda", 2)
    assert [card["power_limit_w"] for card in record.environment["gpus"]] == [700.0]
    assert "Not Supported" in record.environment["reasons"]["gpus.0.mig"]
    assert record.environment["variables"]["XLA_FLAGS"].endswith("--fake"), "what ranks on GPUs get in addition"
    assert record.telemetry and len(record.telemetry[0].devices) == 1
    card = record.telemetry[0].devices[0]
    known = {name for name, value in card.model_dump().items() if value is not None}
    assert {"utilization", "sm_clock_mhz", "memory_clock_mhz", "power_w", "energy_j", "sm_active"} <= known
    assert card.energy_j == pytest.approx(350 * (record.window_s or 0), rel=0.1)
    assert "Not Supported" in record.telemetry[0].reasons["devices.0.nvlink_bytes_per_s"]
    assert record.memory and record.memory.device_total_bytes == 80 << 30
    (node,) = record.hardware or ()
    assert (node.devices[0]["pcie_generation"], node.devices[0]["nvlinks"]) == (5, [True] * 4)
    assert set(record.environment["gpus"][0]) < set(node.devices[0]), "so its digest is as it was"
    assert record.work and record.work.mfu is None and "gpus.csv" in record.work.reasons["mfu"]


@pytest.mark.parametrize(
    ("options", "answers", "said"),
    [
        ((), {"pid": 4194304, "gpu": 63}, "GPU 0 is used by another process (4194304, 3.0 GiB)"),
        ((), {"uncorrected": 2}, "GPU 0 has 2 uncorrected ECC errors"),
        (("--strict",), {"limit": 300}, "GPU 0: power_limit_w was 700.0 for an earlier repeat and is 300.0"),
    ],
    ids=["busy", "ECC", "limit"],
)
def test_cards_that_are_not_fit_refuse_a_run(
    cards: Cards, first: Path, options: tuple[str, ...], answers: dict[str, float], said: str
) -> None:
    errors, record = cards.run(2, *options, status=1, **answers)
    assert f"the GPUs of node 0 are not fit to be measured: {said}" in errors
    assert not record.exists() and first.exists()


def test_limits_and_locked_clocks_that_differ_are_told(cards: Cards, first: Path) -> None:
    _, limited = cards.run(2, limit=300)
    _, locked = cards.run(3, sm=1200)
    warnings = records.read_run(limited).warnings
    assert "node 0: GPU 0: power_limit_w was 700.0 for an earlier repeat and is 300.0" in warnings
    cell = summary.summarize([first, limited, locked], repeats=3).frameworks["fake"]["1n1g"]
    assert [part.repeats for part in cell.left_out] == [[2]]
    assert any("the SM clock of GPU 0 of node 0 ran at 1980 MHz in repeat 1 and at 1200 MHz in repeat 3" in text
               for text in cell.warnings), cell.warnings  # fmt: skip
