"""The exchange in a step, compared with the same messages alone: bandwidths, and what they explain."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

import report_fixture
from throughline.records import Summary
from throughline.report.analysis import cells, summary
from throughline.report.topic import Scope
from throughline.report.topics import step_breakdown, write_tables

ALONE = {"messages": 18, "bytes_per_step": 1_023_000_000, "seconds": 0.033, "reason": None}


def measured(root: Path, name: str, ms: float, told: dict[str, Any] | None, **options: Any) -> Summary:
    """Make a summary of BERT at batch 32 on four devices, with one repeat of `ms` milliseconds a step."""
    run = report_fixture.spec(benchmark=name, topology="1n4g", options=options)
    record = report_fixture.record(run, 4 * 32 * 1000 / ms) | ({"network": told} if told else {})
    path = root / name / "bz32_fp32/torch/1n4g/run1.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(record))
    return summary.summarize([path], repeats=1)


@pytest.fixture
def without(tmp_path: Path) -> list[cells.Group]:
    return cells.groups([measured(tmp_path, "bert__no_gradient_sync", 114, None, gradient_sync=False)])


def test_what_the_network_explains(tmp_path: Path, without: list[cells.Group]) -> None:
    groups = cells.groups([measured(tmp_path, "bert", 154, ALONE)])
    (one,) = step_breakdown.exchanges(groups, without)
    bandwidths = one.alone["algorithm_gb_per_s"], one.alone["bus_gb_per_s"]
    assert bandwidths == pytest.approx((31.0, 46.5)), "1.5 times, of four replicas"
    assert (one.communication_s, one.alone["explained_s"]) == pytest.approx((0.04, 0.033))
    (alone,) = step_breakdown.exchanges(groups, [])
    assert alone.alone["explained_s"] is None
    write_tables(Scope(groups, without), tmp_path / "tables")
    with (tmp_path / "tables/network.csv").open(encoding="utf-8", newline="") as stream:
        (row,) = csv.DictReader(stream)
    assert (row["messages"], row["bytes_per_step"], row["alone_s"]) == ("18", "1023000000", "0.033")
    assert float(row["communication_s"]) == pytest.approx(0.04) and float(row["bus_gb_per_s"]) == pytest.approx(46.5)
    slow = cells.groups([measured(tmp_path / "slow", "bert", 154, {**ALONE, "seconds": 0.06})])
    (hidden,) = step_breakdown.exchanges(slow, without)
    assert hidden.alone["explained_s"] == pytest.approx(0.04), "the step hides the rest"


def test_a_reason_stands_for_the_figures_and_nothing_for_runs_that_were_not_asked(tmp_path: Path) -> None:
    unknown = {**dict.fromkeys(ALONE), "reason": "not here"}
    groups = cells.groups([measured(tmp_path, "bert", 154, unknown)])
    table = step_breakdown.network(Scope(groups, groups))
    assert table and table.lines[0].entries[4].reason == "not here"
    before = cells.groups([measured(tmp_path, "early", 154, None)])
    assert step_breakdown.network(Scope(before, before)) is None
