"""The largest batch under a real memory limit, with processes that really run out of memory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import training_fixtures
from throughline import records
from throughline.checks import max_batch


def test_out_of_memory_bounds_the_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THROUGHLINE_LOCKS", str(tmp_path))
    monkeypatch.setattr(max_batch, "FINENESS", 2)
    manifest = training_fixtures.corpus(tmp_path / "data")
    options = {"memory_limit_mb": 900, "dropout": 0.0}
    spec = training_fixtures.spec(batch=512, options=options, steps={"warmup": 1, "timed": 2})
    output = tmp_path / "results/bert/max_batch_fp32.json"
    records.write(records.MaxBatch, max_batch.find([spec], manifest, {}, output.with_suffix("")), output)

    largest = records.read_max_batch(output).frameworks["torch"]
    assert largest.status == "ok" and largest.largest_batch_per_device and largest.smallest_out_of_memory
    tried = {attempt.batch: attempt.status for attempt in largest.tries}
    assert tried[largest.largest_batch_per_device] == "fits" and tried[largest.smallest_out_of_memory] == "oom"
    assert all(attempt.reason for attempt in largest.tries if attempt.status == "oom")
    for batch, status in tried.items():  # every try left its record and its log
        record = output.with_suffix("") / f"torch/batch_{batch}.json"
        assert json.loads(record.read_text())["status"] == ("oom" if status == "oom" else "ok")
        log = record.with_suffix(".log").read_text()
        assert "outcome:" in log and log.startswith(f"# again: snakemake --force {output}\n")
