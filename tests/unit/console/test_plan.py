"""The plan counts what is pending and estimates only from what is known. The last messages name what to do next."""

import json
import time
from pathlib import Path

import pytest

from report_fixture import record, write_record, write_series
from report_fixture import spec as asked
from throughline.console import node_jobs, plan
from throughline.files import write_json
from throughline.records import SCHEMA
from throughline.report.analysis.summary import write
from throughline.spec import RunSpec
from throughline.study import acceptance, runs
from throughline.study.acceptance import Fleet
from throughline.study.config import Config, load

SIXTEEN, THREE = Fleet(tuple(range(16)), 8, "cuda"), Fleet((0, 1, 2), 1, "cpu")


def specs(**values: object) -> list[RunSpec]:
    block = {"sequence_length": 32, "topologies": ["1n1g", "1n2g"], "repeats": 3}
    return runs.expand(load([], {"benchmarks": {"b": block | values}}))


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def planned(every: list[RunSpec], pending: list[RunSpec], **values: object) -> plan.Plan:
    return plan.Plan(every, [[spec.record] for spec in pending], **values)  # type: ignore[arg-type]


def finish(spec: RunSpec, place: str = "", ended: str = "12:00:10") -> None:
    path = Path(place or spec.record)
    path.parent.mkdir(parents=True, exist_ok=True)
    times = {"started": "2026-11-20T12:00:00Z", "ended": f"2026-11-20T{ended}Z"}
    path.write_text(json.dumps(record(asked(**spec.values()), 100.0) | times))


def test_only_finished_repeats_and_caps_tell_the_time() -> None:
    every = specs()
    assert str(planned(every, [])) == "The plan:\n  no training run is to be made"
    text = str(planned(every, every))
    assert "6 runs to make, 0 there already\n" in text
    assert "training, one at a time: time not known before the first repeat" in text
    finish(every[0], ended="11:00:10")  # the clock was set back
    assert "time not known" in str(planned(every, [every[2]]))
    Path(every[0].record).write_text("{")
    assert "time not known" in str(planned(every, [every[2]]))
    finish(every[0])
    text = str(planned(every, every[1:]))
    assert text.endswith("about 20 s and 3 runs whose time is not known yet, better known after the first repeat")
    finish(every[1])
    text = str(planned(every, every[2:]))
    assert "4 runs to make, 2 there already\n" in text and text.endswith("one at a time: about 40 s")
    capped = planned(every := specs(steps={"max_total_seconds": 10}), every, cluster=True)
    assert str(capped).endswith("the time of all jobs added up: about 108 s, better known after the first repeat")
    capped.took_s[every[0].record] = 30.0
    assert capped.estimates_s(every) == [30.0, node_jobs.START_S + 10] * 3


def test_the_micro_batches_of_a_global_batch_are_in_the_plan() -> None:
    every = specs(topologies=["1n1g", "2n4g"], batch={"fp32": [8]}, global_batch=1024)
    expected = "    1,024 samples a step = replicas x batch x micro-batches: 1n1g 1 x 8 x 128, 2n4g 8 x 8 x 16"
    assert expected in str(planned(every, every)).splitlines()
    assert "micro-batches" not in str(planned(specs(), specs()))


def test_the_plan_says_what_its_repeats_can_detect() -> None:
    """The largest family counts: two cells of three frameworks with two topologies have six steps to more devices."""
    many = {"batch": {"fp32": [4, 8]}, "frameworks": ["torch", "jax", "tensorflow"]}
    for every, margins, expected in (
        (specs(), {}, "b: 3 repeats detect differences of 12 % at 2 % noise (1 question); 5 % takes 6"),
        (specs(), {"b": 0.1}, "; 10 % takes 4 repeats"),
        (specs(**many, repeats=12, extras=["aa"]), {}, "b: 12 repeats detect differences of 4 % at 2 % noise (6 q"),
        (specs(**many, repeats=2), {}, "b: too few repeats for a verdict: a test needs 3; 5 % takes 9 repeats"),
    ):
        text = str(planned(every, every, margins=margins))
        assert expected in text and text.count("\n  b: ") == 1
    alone = specs(topologies=["1n1g"])
    assert "\n  b: " not in str(planned(alone, alone)), "nothing is compared"


def test_failures_name_the_logs_and_the_next_step() -> None:
    failed, waiting, finished = specs()[:3]
    for path in (failed.log, finished.log, finished.record):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text("error: ...")
    text = plan.failures({spec.record: spec.log for spec in (failed, waiting, finished)})
    assert f"failed: {failed.record}; why: {failed.log}" in text
    assert waiting.record not in text and finished.record not in text
    assert text.splitlines()[-1].startswith("  next: fix what the log says, and run the same command again")
    text = plan.failures({f"{number}.json": failed.log for number in range(30)})
    assert text.count("failed:") == plan.NAMED_AT_MOST and "and 10 more" in text
    assert "failed:" not in plan.failures({failed.record: failed.log}, since=time.time() + 60)
    Path(failed.log).write_text("")
    assert "its job was ended before it wrote" in plan.failures({failed.record: failed.log})


def test_the_closing_words_follow_from_what_was_made() -> None:
    every = specs()
    summary, manifest = every[0].summary, "data/sample/seq32/manifest.json"

    def said(*outputs: str) -> list[str]:
        return plan.Plan(every, [[name] for name in outputs], ["asked.txt"]).outcome().splitlines()

    assert said(manifest, "data/sample/seq32/test_0000.hdf5") == ["Finished.", f"  result: {manifest}"]
    assert said("results/b/tables", "results/b/plots") == ["Finished.", "  result: results/b/tables"]
    none = {"topology": "2n8g", "why": "one node"}
    what = {"batch": 32, "precision": "fp32", "framework": "torch", "unit": "samples/s", "not_predicted": [none]}
    series = what | {"measured": [], "predicted": []}
    made = {"schema": SCHEMA, "benchmark": "b", "asked": ["2n8g"], "made_from": {}, "series": [series]}
    write_json(Path("results/b/predictions.json"), made)
    words = ["  b bz32 fp32 torch: no prediction for 2n8g: one node", "  result: results/b/tables/predictions.md"]
    assert said("results/b/predictions.json", "results/b/tables") == ["Finished.", *words]
    assert said("asked.txt", "other.txt") == ["Finished.", "  result: asked.txt"]
    records = write_series(Path("results"), {"1n1g": [512.46] * 5, "1n2g": [914.23] * 5}, benchmark="b")
    refused = record(asked(benchmark="b", topology="1n8g", repeat=1), None, status="oom", reason="too large")
    write([*records, write_record(Path("results"), refused)], Path(summary), 5)
    medians = [
        "  b bz32 fp32 torch 1n1g: 512.5 samples/s (median of 5)",
        "  b bz32 fp32 torch 1n2g: 914.2 samples/s, speedup 1.78 (median of 5)",
        "  b bz32 fp32 torch 1n8g: 1 oom (median of 0)",
    ]
    assert said(manifest, summary) == ["Finished.", *medians, f"  result: {summary}"]
    assert said(summary, plan.REPORT)[:-1] == ["Finished.", *medians]
    assert said(summary, plan.REPORT)[-1].startswith(f"  result: {plan.REPORT} ")


def test_node_jobs_side_by_side_take_minutes_and_one_after_another_hours() -> None:
    every = acceptance.asked(Config(), SIXTEEN).visits
    fast = node_jobs.planned(every, set(every), SIXTEEN, {}, True).lines[-1]
    assert 20 < int(fast.split()[2]) < 60 and "side by side; accept.repeats" in fast
    slow = node_jobs.planned(every, set(every), SIXTEEN, {}, False)
    seconds = sum(slow.expected_s.values())
    assert slow.lines[-1].startswith(f"  measuring: about {round(seconds / 60)} min; ") and seconds > 300 * 60
    done = next(iter(every.values()))[0]
    finish(done.spec, done.record)
    measured = node_jobs.planned(every, set(every), SIXTEEN, {}, False).expected_s
    assert sum(measured.values()) < seconds, "a measurement that is finished tells the time of its kind"


def test_the_plan_counts_the_node_jobs_that_are_missing_and_names_who_is_away() -> None:
    every = acceptance.asked(Config(), THREE).visits
    pending = [file for file in every if "node2" not in file]
    made = node_jobs.planned(every, pending, THREE, {2: "Slurm says that it is down"}, True)
    text = str(plan.Plan([], [pending], node_jobs=made))
    assert "  acceptance of 3 nodes: 39 of 51 measurements to make, in 18 node jobs\n" in text
    assert "node 2 is left out, because Slurm says that it is down" in text
    assert "no training run" not in text
    assert {made.names[pending[0]], made.names[pending[-1]]} == {"node 0, repeat 1", "all nodes, repeat 3"}
