"""The plan counts what is pending and estimates only from what is known."""

from __future__ import annotations

import json
from pathlib import Path

from throughline import plan, runs
from throughline.config import load
from throughline.runs import RunSpec


def specs(steps: dict[str, object] | None = None) -> list[RunSpec]:
    block = {"sequence": 32, "topologies": ["1n1g", "1n2g"], "repeats": 3, "steps": steps or {}}
    return runs.expand(load([], {"benchmarks": {"b": block}}))


def finish(root: Path, spec: RunSpec, seconds: int) -> None:
    path = root / spec.record
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"started": "2026-11-20T12:00:00Z", "ended": f"2026-11-20T12:00:{seconds:02d}Z"}))


def test_nothing_to_make(tmp_path: Path) -> None:
    assert plan.describe(specs(), [], tmp_path) == "The plan: no training run is to be made."


def test_unknown_times_are_not_invented(tmp_path: Path) -> None:
    every = specs()
    text = plan.describe(every, [spec.record for spec in every], tmp_path)
    assert "6 runs to make, 0 there already, time not known before the first repeat" in text


def test_finished_repeats_tell_the_time(tmp_path: Path) -> None:
    every = specs()
    for spec in every[:2]:  # the first repeat of both topologies
        finish(tmp_path, spec, 10)
    text = plan.describe(every, [spec.record for spec in every[2:]], tmp_path)
    assert "4 runs to make, 2 there already, about 40 s" in text


def test_a_cap_bounds_the_time(tmp_path: Path) -> None:
    every = specs({"at_most_s": 10})
    assert plan.estimates_s(every, every, {spec.record for spec in every}, tmp_path) == [plan.START_S + 10] * 6


def test_a_broken_record_is_no_reason_to_stop(tmp_path: Path) -> None:
    every = specs()
    finish(tmp_path, every[0], 10)
    (tmp_path / every[0].record).write_text("{")
    assert "time not known" in plan.describe(every, [every[2].record], tmp_path)


def test_failures_name_the_logs(tmp_path: Path) -> None:
    spec = specs()[0]
    (tmp_path / spec.log).parent.mkdir(parents=True)
    (tmp_path / spec.log).touch()
    assert f"failed: {spec.record}; why: {spec.log}" in plan.failures([spec], tmp_path)
