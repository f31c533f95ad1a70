"""A whole run of a workload that trains nothing: two ranks, a record without a loss, and its summary."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from throughline import records
from throughline.launch import launcher
from throughline.launch.request import RunRequest
from throughline.report.analysis import summary
from throughline.study import runs
from throughline.study.config import load
from throughline.workloads import micro


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> records.RunRecord:
    """The record of a whole run with two ranks."""
    pytest.importorskip("torch")
    block = {"model": "matmul", "sizes": [32, 64], "topologies": ["1n2g"], "steps": {"warmup": 2, "timed": 5}}
    usual = {"batch": {"fp32": [1]}, "device": "cpu", "repeats": 1, "at_least_s": 0.01}
    (spec,) = runs.expand(load([], {"benchmarks": {"b": {**usual, **block}}}))
    place = tmp_path_factory.mktemp("run") / spec.record.removeprefix("results/")
    place.parent.mkdir(parents=True)
    launcher.run(RunRequest(spec, place, place.with_suffix(".log")))
    return records.read_run(place)


def test_a_run_counts_calls_and_has_no_loss(made: records.RunRecord) -> None:
    assert (made.status, made.unit, made.data, made.loss) == ("ok", "calls/s", None, None)
    assert made.steps_timed == 5 and made.samples_per_s == pytest.approx(2 * 5 / made.window_s)  # type: ignore[operator]
    assert [(one.name, one.at, one.unit) for one in made.figures] == [
        ("matmul", 32, "TFLOPS"), ("matmul", 64, "TFLOPS")
    ]  # fmt: skip
    assert all(one.value and one.value > 0 for one in made.figures)
    assert made.settings is not None and made.settings.keys() == {*micro.WORKLOAD.settings, "threads"}
    assert made.work is not None and made.work.flops_per_sample == 2 * 64**3
    assert made.work.matmul_flops_per_s


def test_a_summary_of_it(made: records.RunRecord, tmp_path: Path) -> None:
    place = tmp_path / made.spec.record.removeprefix("results/")
    place.parent.mkdir(parents=True)
    place.write_text(made.model_dump_json(by_alias=True))
    whole = summary.summarize([place], repeats=1)
    written = json.loads(json.dumps(whole.model_dump(by_alias=True)))
    assert written["sizes"] == [32, 64] and records.Summary.model_validate(written) == whole
    assert whole.unit == "calls/s" and not re.search("learning_rate", json.dumps(written["settings"]))
