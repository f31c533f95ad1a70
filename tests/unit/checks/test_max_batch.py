"""The search for the largest batch: its arithmetic, what the configuration asks for, and its rows in the report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import training_fixtures
from report_fixture import jitter, write_series, write_summaries
from throughline import records
from throughline.checks import max_batch
from throughline.files import write_json
from throughline.report.render import page
from throughline.report.topic import Scope
from throughline.report.topics import checks
from throughline.study import runs
from throughline.study.config import load

CPU = {"kind": "cpu", "name": "a CPU", "count": 2, "fp16_native": False}


@pytest.mark.parametrize("start", [1, 3, 16, 200])
@pytest.mark.parametrize("limit", [1, 2, 15, 16, 17, 63, 64, 65])
def test_small_limits_are_found_exactly(start: int, limit: int) -> None:
    tried: list[int] = []
    limits = max_batch.search(start, lambda batch: not tried.append(batch) and batch <= limit)  # type: ignore[func-returns-value]
    assert limits == (limit, limit + 1)
    assert len(tried) == len(set(tried)) <= 16


def test_large_limits_are_found_closely_and_with_few_tries() -> None:
    tried: list[int] = []
    low, high = max_batch.search(32, lambda batch: not tried.append(batch) and batch <= 10_000)  # type: ignore[func-returns-value]
    assert low <= 10_000 < high and high - low <= low // max_batch.FINENESS
    assert len(tried) <= 16


def test_no_limit_and_no_room() -> None:
    assert max_batch.search(8, lambda _: True, at_most=100) == (100, None)
    assert max_batch.search(8, lambda _: False) == (None, 1)


def test_what_is_asked_for() -> None:
    block = {
        "sequence_length": 32, "topologies": ["1n1g", "1n4g", "2n4g"], "batch": {"fp32": [64, 8], "fp16": [16]},
        "frameworks": ["torch", "mxnet-horovod"], "extras": ["max_batch"],
    }  # fmt: skip
    config = load([], {"benchmarks": {"b": block, "c": {"sequence_length": 32}}})
    specs = runs.expand(config)
    assert {spec.benchmark for spec in specs} == {"b", "c"}
    requests = max_batch.requests(config, specs)
    assert set(requests) == {"results/b/max_batch_fp32.json", "results/b/max_batch_fp16.json"}
    torch, mxnet = requests["results/b/max_batch_fp32.json"]
    assert (torch.framework, mxnet.framework) == ("torch", "mxnet-horovod")
    assert (torch.batch, str(torch.topology), torch.steps.timed) == (8, "1n4g", 2)


def test_a_try_accumulates_two_micro_batches_at_most_if_the_block_states_a_global_batch() -> None:
    """A batch that is tried need not divide it, and two micro-batches need as much memory as hundreds."""
    block = {"sequence_length": 32, "batch": {"fp32": [8]}, "global_batch": 800, "extras": ["max_batch"]}
    config = load([], {"benchmarks": {"b": block}})
    (spec,) = max_batch.requests(config, runs.expand(config))["results/b/max_batch_fp32.json"]
    assert (spec.options.gradient_accumulation, spec.global_batch) == (2, None)


def test_what_else_is_searched_is_a_key_of_the_model() -> None:
    block = {"model": "iresnet-tiny", "classes": 40, "batch": {"fp32": [4]}, "extras": ["max_batch", "max_classes"]}
    config = load([], {"benchmarks": {"f": block}})
    requests = max_batch.requests(config, runs.expand(config))
    assert set(requests) == {"results/f/max_batch_fp32.json", "results/f/max_classes_fp32.json"}


def test_a_cpu_without_a_limit_is_unsupported(tmp_path: Path) -> None:
    result = max_batch.find([training_fixtures.spec()], None, {}, tmp_path)
    entry = result["frameworks"]["torch"]
    assert (entry["status"], entry["tries"]) == ("unsupported", [])
    assert "options.memory_limit_mb" in entry["reason"]
    records.write(records.MaxBatch, result, tmp_path / "max_batch_fp32.json")


def result(**changes: Any) -> dict[str, Any]:
    entry = {
        "status": "ok", "reason": None, "largest_batch_per_device": 1500, "smallest_out_of_memory": 1520,
        "peak_memory_bytes": 900 << 20, "device": CPU,
        "tries": [
            {"batch": 1500, "status": "fits", "reason": None, "peak_memory_bytes": 900 << 20},
            {"batch": 1520, "status": "oom", "reason": "no", "peak_memory_bytes": None},
        ],
    }  # fmt: skip
    return {
        "schema": records.SCHEMA, "benchmark": "bert", "model": "bert-tiny", "sequence_length": 32, "precision": "fp32",
        "topology": "1n2g",
        "steps": 3, "memory_limit_mb": 1000, "tried_at_most": 2**20, "frameworks": {"torch": {**entry, **changes}},
        "started": "2026-11-20T12:00:00Z", "ended": "2026-11-20T12:01:00Z",
    }  # fmt: skip


def test_rows_and_page(tmp_path: Path) -> None:
    results = tmp_path / "results"
    places = write_summaries(results, {"bz32_fp32": write_series(results, {"1n1g": jitter(100.0)})})
    none: dict[str, Any] = {"largest_batch_per_device": None, "smallest_out_of_memory": None, "peak_memory_bytes": None}
    for precision, value in {
        "fp32": result(),
        "bf16": result(status="unsupported", reason="no bf16", **none),
        "fp16": result(smallest_out_of_memory=None),
    }.items():
        records.write(records.MaxBatch, {**value, "precision": precision}, results / f"bert/max_batch_{precision}.json")
    write_json(results / "bert/max_batch_tf32.json", {"schema": 1})
    page.write(results, places, [], None, results / "report.html")
    text = (results / "report.html").read_text()
    for words in ("Largest batch", "1,500", "1,520 OOM", "1,000 MiB per worker", "n/a: no bf16", "1,500 or more"):
        assert words in text
    assert "bert/max_batch_tf32.json" in text and "nreadable" in text
    assert checks.largest(Scope([])) is None
