"""A whole run of a workload that trains nothing: two ranks, a record without a loss, and its summary."""

from __future__ import annotations

import json
import re
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import training_fixtures
from framework_lab import ran
from throughline import records
from throughline.frameworks.rank import load as load_rank
from throughline.launch import rounding as judged
from throughline.rank import rounding
from throughline.report.analysis import cells, summary
from throughline.report.render import cell_columns
from throughline.study import runs
from throughline.study.config import load
from throughline.workloads import in_torch_timed, micro
from throughline.workloads.layers import in_torch


def run(place: Path, **block: Any) -> records.RunRecord:
    """Return the record of a whole run with two ranks."""
    usual = {"topologies": ["1n2g"], "steps": {"warmup": 2, "timed": 5}, "batch": {"fp32": [1]}}
    usual |= {"device": "cpu", "repeats": 1, "min_seconds": 0.01}
    (spec,) = runs.expand(load([], {"benchmarks": {"b": {**usual, **block}}}))
    return ran(spec, place)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> records.RunRecord:
    return run(tmp_path_factory.mktemp("run"), model="matmul", sizes=[32, 64])


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> records.RunRecord:
    return run(tmp_path_factory.mktemp("together"), model="all-reduce", sizes=[4096])


def summarized(made: records.RunRecord, root: Path) -> records.Summary:
    place = root / made.spec.record.removeprefix("results/")
    place.parent.mkdir(parents=True)
    place.write_text(made.model_dump_json(by_alias=True))
    return summary.summarize([place], repeats=1)


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
    whole = summarized(made, tmp_path)
    written = json.loads(json.dumps(whole.model_dump(by_alias=True)))
    assert written["sizes"] == [32, 64] and records.Summary.model_validate(written) == whole
    assert whole.unit == "calls/s" and not re.search("learning_rate", json.dumps(written["settings"]))


def test_a_collective_operation_is_one_call_of_all_ranks(together: records.RunRecord) -> None:
    assert together.status == "ok" and together.window_s
    assert together.samples_per_s == pytest.approx(5 / together.window_s)
    step_s = sum(together.step_seconds) / 5
    assert together.samples_per_s == pytest.approx(1 / step_s, rel=0.5), "calls per second are one over the time of one"
    assert together.work and "it counts once" in together.work.convention["flops"]


def test_a_collective_operation_that_counts_each_rank_is_refused(together: records.RunRecord) -> None:
    value = json.loads(together.model_dump_json(by_alias=True)) | {"samples_per_s": 2 * together.samples_per_s}
    with pytest.raises(ValueError, match="does not follow from the window"):
        records.RunRecord.model_validate(value)


def test_the_page_gives_no_device_a_share_of_a_call(together: records.RunRecord, tmp_path: Path) -> None:
    (group,) = cells.groups([summarized(together, tmp_path)])
    (cell,) = group.measured
    assert (cell.record.global_batch, cell.record.world_size, cell.record.speedup) == (1, 2, None)
    assert cell_columns.PER_DEVICE.entry(cell).value is None
    assert cell_columns.median(cell).value == together.samples_per_s


@pytest.mark.skipif("amx_bf16" not in Path("/proc/cpuinfo").read_text(), reason="no units for bf16 in this processor")
def test_products_that_a_processor_rounds_to_bf16_are_no_fp32() -> None:
    """PyTorch rounds the operands of fp32 if it may. So a single setting makes another type of all products."""
    spec = training_fixtures.spec()
    rank = load_rank("torch")(spec, 0, 0, 1, "cpu")
    before = torch.get_float32_matmul_precision()
    shown = {}
    try:
        for precision in ("highest", "medium"):
            torch.set_float32_matmul_precision(precision)
            measured = replace(training_fixtures.measured(), rounding=rounding.probe(rank))
            shown[precision] = judged.summary(spec, [measured])
    finally:
        torch.set_float32_matmul_precision(before)
    assert shown["highest"]["shows"] == "fp32" and judged.fault(shown["highest"]) is None
    assert shown["medium"]["shows"] == "bf16" and "fp32 was asked for" in str(judged.fault(shown["medium"]))


def test_a_disk_is_measured_by_every_rank(tmp_path: Path) -> None:
    made = run(
        tmp_path / "results", model="disk", sizes=[1 << 16, 1 << 20], disk_folder=str(tmp_path), topologies=["1n1g"]
    )
    told = [(one.name, one.at) for one in made.figures]
    assert told == [(name, size) for size in (1 << 16, 1 << 20) for name in ("disk_write", "disk_read")]
    assert made.figures[0].value and made.settings and made.settings["file_system"]


def test_the_parts_of_a_node_are_measured_in_rounds_by_every_rank(tmp_path: Path) -> None:
    sizes = {"rows": 64, "elements": 4096, "exchanged": [1024, 4096], "written": 4096, "rounds": 2}
    made = run(tmp_path, model="node-parts", **sizes)
    files = [(name, 4096) for name in ("disk_write", "disk_read")]
    both = [(name, at) for at in (1024, 4096) for name in ("algorithm_bandwidth", "bus_bandwidth")]
    assert [(one.name, one.at) for one in made.figures] == [("matmul", 64), ("vector_memory", 4096), *files, *both] * 2
    values = [rank.figures for rank in made.ranks]
    assert values[0] == [one.value for one in made.figures] and values[1] and values[1][0] != values[0][0]
    assert values[1][4:8] == values[0][4:8], "an all-reduce has one figure"
    assert values[0][2] and values[1][2:4] == [None, None], "one rank measures the disk"


def test_a_layer_needs_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing package is no measured outcome: the run fails, so the next call makes it again."""
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ImportError, match="pip install -r envs/benchmarks"):
        in_torch.hugging_face("bert-layer", "sdpa", 0.0)


def test_a_call_longer_than_a_block_is_made_few_times() -> None:
    taken = []

    def call() -> None:
        start = time.monotonic()
        time.sleep(0.05)
        taken.append(time.monotonic() - start)

    measured = in_torch_timed.seconds(call, 0.1, torch.device("cpu"))
    assert min(taken) <= measured <= 1.5 * max(taken), "another process may stretch a sleep, and then the figure too"
    assert len(taken) < 10, "five blocks, each with calls to warm up, would be more than 15"
