"""How long a run takes to its first step: from the rank's report to the record, and from records to the table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import training_fixtures
from report_fixture import frame, record, scoped, spec, summarized, write_record
from throughline.launch import costs
from throughline.messages import ProgramRun, StartUp
from throughline.rank.run import STAGES
from throughline.report.analysis import summary
from throughline.report.topics.start_up import table

SECONDS = {"imports": 2.0, **dict.fromkeys(STAGES, 0.5), "first_step": 3.0}


def told(seconds: dict[str, float] = SECONDS, from_cache: bool | None = None, **report: Any) -> dict[str, Any]:
    measured = training_fixtures.report(start_up=StartUp(101.5, seconds, from_cache))
    found = costs.start_up({0: replace(measured, **report)}, began=100.0)
    assert found
    return found


def test_the_parts_are_the_whole_and_an_unknown_part_has_its_reason() -> None:
    whole = told(from_cache=False)
    assert (whole["total_s"], whole["launch_s"], whole["imports_s"], whole["reasons"]) == (9.0, 1.5, 2.0, {})
    call = told({part: 1.0 for part in SECONDS if part not in ("data", "optimizer")})
    assert (call["total_s"], call["data_s"], call["reasons"]["optimizer_s"]) == (6.5, None, "it trains nothing")
    program = told({"first_step": 4.0}, program=ProgramRun({}, 0.0, []))
    assert (program["total_s"], program["imports_s"]) == (5.5, None)
    assert "somebody else" in program["reasons"]["model_s"] and "cache" in program["reasons"]["from_cache"]
    assert costs.start_up({0: training_fixtures.report()}, 100.0) is None and costs.start_up({}, 100.0) is None


def test_a_first_step_that_compiles_is_told_from_one_with_the_cache(tmp_path: Path) -> None:
    starts = [told({**SECONDS, "first_step": 60.0}, False), told({**SECONDS, "first_step": 4.0}, True), told()]
    runs = [record(spec(repeat=repeat), 64.0) | {"start_up": start} for repeat, start in enumerate(starts, 1)]
    scope = scoped(summary.summarize([write_record(tmp_path, run) for run in runs], repeats=4))
    assert scope.measured[0].start_seconds == {1: 66.0, 2: 10.0, 3: 9.0}
    row = frame(table(scope)).iloc[0]
    figures = [row[key] for key in ("start_s", "start_min_s", "start_max_s", "first_step_s", "model_s", "step_s")]
    assert figures == pytest.approx([10.0, 9.0, 66.0, 4.0, 0.5, runs[0]["step_seconds"][0]])
    assert (row["first_step_without_cache_s"], row["first_step_with_cache_s"]) == (60.0, 4.0)


def test_records_without_it_have_no_table(tmp_path: Path) -> None:
    assert table(scoped(summarized(tmp_path, {"1n1g": 100.0}))) is None
