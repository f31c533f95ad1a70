"""The plan counts what is pending and estimates only from what is known."""

from __future__ import annotations

import json
from pathlib import Path

from report_fixture import record, write_record, write_series
from report_fixture import spec as asked
from throughline.console import plan
from throughline.report.analysis.summary import write
from throughline.spec import RunSpec
from throughline.study import runs
from throughline.study.config import load


def specs(steps: dict[str, object] | None = None) -> list[RunSpec]:
    block = {"sequence_length": 32, "topologies": ["1n1g", "1n2g"], "repeats": 3, "steps": steps or {}}
    return runs.expand(load([], {"benchmarks": {"b": block}}))


def planned(every: list[RunSpec], pending: list[RunSpec], root: Path) -> plan.Plan:
    return plan.Plan(every, [[spec.record] for spec in pending], root=root)


def finish(root: Path, spec: RunSpec, seconds: int) -> None:
    path = root / spec.record
    path.parent.mkdir(parents=True, exist_ok=True)
    times = {"started": "2026-11-20T12:00:00Z", "ended": f"2026-11-20T12:00:{seconds:02d}Z"}
    path.write_text(json.dumps({"spec": spec.values(), "status": "ok", **times}))


def test_nothing_to_make(tmp_path: Path) -> None:
    assert str(planned(specs(), [], tmp_path)) == "The plan:\n  no training run is to be made"


def test_unknown_times_are_not_invented(tmp_path: Path) -> None:
    every = specs()
    text = str(planned(every, every, tmp_path))
    assert "6 runs to make, 0 there already\n" in text
    assert "training, one at a time: time not known before the first repeat" in text


def test_the_micro_batches_of_a_global_batch_are_told() -> None:
    block = {"sequence_length": 32, "topologies": ["1n1g", "2n4g"], "batch": {"fp32": [8]}, "global_batch": 1024}
    every = runs.expand(load([], {"benchmarks": {"b": block}}))
    expected = "    1,024 samples a step = replicas x batch x micro-batches: 1n1g 1 x 8 x 128, 2n4g 8 x 8 x 16"
    assert expected in str(planned(every, every, Path())).splitlines()
    assert plan.told_beforehand(every) == [f"results/b/bz8_fp32.json: {expected.strip()}"]
    assert "micro-batches" not in str(planned(specs(), specs(), Path()))


def test_finished_repeats_tell_the_time(tmp_path: Path) -> None:
    every = specs()
    for spec in every[:2]:  # the first repeat of both topologies
        finish(tmp_path, spec, 10)
    text = str(planned(every, every[2:], tmp_path))
    assert "4 runs to make, 2 there already\n" in text and text.endswith("one at a time: about 40 s")


def test_the_plan_says_what_its_repeats_can_tell_apart(tmp_path: Path) -> None:
    """The largest family counts: two cells of three frameworks with two topologies have six steps to more devices."""
    every = specs()
    assert "\n  b: 3 repeats detect differences of 12 % at 2 % noise (1 question); 5 % takes 6" in str(
        planned(every, every, tmp_path)
    )
    block = {"sequence_length": 32, "topologies": ["1n1g", "1n2g"], "repeats": 12, "batch": {"fp32": [4, 8]},
             "frameworks": ["torch", "jax", "tensorflow"], "extras": ["aa"]}  # fmt: skip
    many = runs.expand(load([], {"benchmarks": {"b": block}}))
    (line,) = [line for line in str(planned(many, many, tmp_path)).splitlines() if "detect" in line]
    assert line == "  b: 12 repeats detect differences of 4 % at 2 % noise (6 questions)"
    one = runs.expand(load([], {"benchmarks": {"b": {**block, "repeats": 2, "extras": []}}}))
    assert "b: too few repeats for a verdict: a test needs 3; 5 % takes 9 repeats" in str(planned(one, one, tmp_path))
    wide = plan.Plan(every, [[spec.record] for spec in every], root=tmp_path, margins={"b": 0.1})
    assert "; 10 % takes 4 repeats" in str(wide), "the block's own margin"
    alone = runs.expand(load([], {"benchmarks": {"b": {"sequence_length": 32}}}))
    assert "apart" not in str(planned(alone, alone, tmp_path)), "nothing is compared"


def test_a_cap_bounds_the_time(tmp_path: Path) -> None:
    every = specs({"max_total_seconds": 10})
    planning = planned(every, every, tmp_path)
    assert planning.estimates_s(every) == [plan.START_S + 10] * 6
    assert str(planning).endswith("one at a time: about 108 s, better known after the first repeat")
    planning.measured_s[every[0].record] = 30.0
    assert planning.estimates_s(every) == [30.0, plan.START_S + 10] * 3


def test_a_broken_record_is_no_reason_to_stop(tmp_path: Path) -> None:
    every = specs()
    finish(tmp_path, every[0], 10)
    (tmp_path / every[0].record).write_text("{")
    assert "time not known" in str(planned(every, [every[2]], tmp_path))


def test_a_clock_that_was_set_back_tells_no_time(tmp_path: Path) -> None:
    every = specs()
    finish(tmp_path, every[0], 10)
    record = tmp_path / every[0].record
    record.write_text(record.read_text().replace("12:00:10", "11:00:10"))
    assert "time not known" in str(planned(every, [every[2]], tmp_path))


def test_failures_name_the_logs_and_the_next_step(tmp_path: Path) -> None:
    failed, waiting, finished = specs()[:3]
    for path in (failed.log, finished.log, finished.record):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    text = plan.failures({spec.record: spec.log for spec in (failed, waiting, finished)}, tmp_path)
    assert f"failed: {failed.record}; why: {failed.log}" in text
    assert waiting.record not in text and finished.record not in text
    assert text.splitlines()[-1].startswith("  next: fix what the log says, and run the same command again")


def test_many_failures_are_counted(tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / f"{number}.log").touch()
    text = plan.failures({f"{number}.json": f"{number}.log" for number in range(30)}, tmp_path)
    assert text.count("failed:") == plan.NAMED_AT_MOST and "and 10 more" in text


def test_the_closing_words_follow_from_what_was_made(tmp_path: Path) -> None:
    every = specs()
    summary, manifest = every[0].summary, "data/sample/seq32/manifest.json"

    def said(*outputs: str) -> list[str]:
        return plan.Plan(every, [[name] for name in outputs], ["asked.txt"], root=tmp_path).outcome().splitlines()

    assert said(manifest, "data/sample/seq32/test_0000.hdf5") == ["Finished.", f"  result: {manifest}"]
    assert said("asked.txt", "other.txt") == ["Finished.", "  result: asked.txt"]
    records = write_series(tmp_path / "results", {"1n1g": [512.46] * 5, "1n2g": [914.23] * 5}, benchmark="b")
    refused = record(asked(benchmark="b", topology="1n8g", repeat=1), None, status="oom", reason="too large")
    write([*records, write_record(tmp_path / "results", refused)], tmp_path / summary, 5)
    medians = [
        "  b bz32 fp32 torch 1n1g: 512.5 samples/s (median of 5)",
        "  b bz32 fp32 torch 1n2g: 914.2 samples/s, speedup 1.78 (median of 5)",
        "  b bz32 fp32 torch 1n8g: 1 oom (median of 0)",
    ]
    assert said(manifest, summary) == ["Finished.", *medians, f"  result: {summary}"]
    assert said(summary, plan.REPORT)[:-1] == ["Finished.", *medians]
    assert said(summary, plan.REPORT)[-1].startswith(f"  result: {plan.REPORT} ")
