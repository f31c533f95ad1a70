"""The report says if clocks differ between repeats, whoever set them."""

from __future__ import annotations

from pathlib import Path

import pytest

from report_fixture import observed, record, spec, write_record
from throughline.report.analysis import summary


@pytest.mark.parametrize("name", ["sm_clock_mhz", "memory_clock_mhz"])
def test_a_clock_that_differs_between_repeats_is_a_warning(tmp_path: Path, name: str) -> None:
    values = [observed(record(spec(repeat=repeat), 100.0 + repeat)) for repeat in (1, 2, 3)]
    paths = [write_record(tmp_path, value) for value in values]
    assert not any("MHz" in text for text in summary.summarize(paths, repeats=3).frameworks["torch"]["1n1g"].warnings)
    usual = values[2]["telemetry"][0]["devices"][0][name]["mean"]
    values[2]["telemetry"][0]["devices"][0][name] = dict.fromkeys(("mean", "min", "max"), 0.9 * usual)
    write_record(tmp_path, values[2])
    (warning,) = (
        text for text in summary.summarize(paths, repeats=3).frameworks["torch"]["1n1g"].warnings if "MHz" in text
    )
    assert f"GPU 0 of node 0 ran at {usual:.0f} MHz in repeat " in warning
    assert f"and at {0.9 * usual:.0f} MHz in repeat 3: a lock" in warning
