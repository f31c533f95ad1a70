"""Whole runs of models that are split over their ranks: figures of wide & deep, losses of faces read from shards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from framework_lab import ran
from images_helpers import folder, made, picture
from throughline import records
from throughline.checks import max_batch
from throughline.rank.data import synthetic_seeds
from throughline.report.render import table_files
from throughline.report.topic import Scope
from throughline.report.topics import checks
from throughline.spec import RunSpec
from throughline.study.config import load
from throughline.study.runs import expand
from throughline.workloads import faces as faces_workload
from throughline.workloads import wide_deep
from throughline.workloads.faces import SIDE


def asked(steps: int, block: dict[str, Any], **sections: Any) -> RunSpec:
    runs = {"device": "cpu", "repeats": 1, "steps": {"warmup": 1, "timed": steps}}
    return expand(load([], {"runs": runs, "benchmarks": {"b": block}, **sections}))[0]


def test_latency_and_unique_ids_of_two_ranks(tmp_path: Path) -> None:
    block = {
        "model": "wide-deep", "vocabulary": 5000, "embedding": 4, "hidden": 1, "width": 16, "table": "rows",
        "topologies": ["1n2g"], "batch": {"fp32": [32]}, "optimizer": {"name": "adam"},
        "options": {"data": "synthetic"},
    }  # fmt: skip
    spec = asked(6, block)
    record = ran(spec, tmp_path)
    found = {(one.name, one.at): one.value for one in record.figures}
    assert found.keys() == {("latency", "median"), ("latency", "95 %"), ("latency", "99 %"), ("unique_ids", None)}
    unique = [
        [len(np.unique(wide_deep.WORKLOAD.synthetic(32, spec, seed)["ids"])) for seed in seeds]
        for seeds in (synthetic_seeds(spec.seed, replica) for replica in range(2))
    ]
    timed = [own[step % len(own)] for own in unique for step in range(1, 7)]
    assert found["unique_ids", None] == pytest.approx(np.mean(timed))


@pytest.mark.parametrize(("rate", "status"), [(0.02, "ok"), (1e-12, "invalid")])
def test_the_loss_of_faces_that_are_read_is_judged(tmp_path: Path, rate: float, status: str) -> None:
    """A run that learns nothing in a long window is no result."""
    names = {f"train/person{number % 4}/{number}.jpg": number % 4 for number in range(16)}
    faces = {name: picture(person, (SIDE, SIDE)) for name, person in names.items()}
    manifest = made(folder(tmp_path / "source", faces), tmp_path / "data", training=1, test=0)
    block = {
        "model": "iresnet-tiny", "classes": 4, "batch": {"fp32": [4]}, "options": {"dropout": 0.0},
        "optimizer": {"name": "sgd", "learning_rate": rate, "momentum": 0.9},
    }  # fmt: skip
    spec = asked(faces_workload.WORKLOAD.learns_from, block, faces={"source": str(tmp_path / "source")})
    assert spec.options.data == "real"
    record = ran(spec, tmp_path, manifest)
    assert record.status == status and ("does not fall" in str(record.reason)) == (status == "invalid")
    assert record.data is not None and record.data.rows == 16


def test_the_most_classes_that_fit_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes really run out of memory, and every try leaves its record and its log."""
    monkeypatch.setattr(max_batch, "FINENESS", 1)
    block = {
        "model": "iresnet-tiny", "classes": 300_000, "classifier": "partial", "batch": {"fp32": [2]},
        "options": {"dropout": 0.0, "memory_limit_mb": 1000, "data": "synthetic"}, "optimizer": {"name": "sgd"},
    }  # fmt: skip
    output = tmp_path / "results/b/max_classes_fp32.json"
    found = max_batch.find([asked(2, block)], None, {}, output.with_suffix(""), quantity="classes")
    records.write(records.MaxBatch, found, output)
    read = records.read_max_batch(output)
    entry = read.frameworks["torch"]
    assert entry.status == "ok" and entry.smallest_out_of_memory == 2 * (entry.largest_size or 0)
    tried = {one.size: one.status for one in entry.tries}
    assert tried[entry.largest_size] == "fits" and tried[entry.smallest_out_of_memory] == "oom"
    for one in entry.tries:
        record = output.with_suffix("") / f"torch/classes_{one.size}.json"
        assert json.loads(record.read_text())["status"] == {"fits": "ok"}.get(one.status, one.status)
        log = record.with_suffix(".log").read_text()
        assert "outcome:" in log and log.startswith(f"# again: snakemake --force {output}\n")
        assert one.reason or one.status == "fits"
    _, rows = table_files.printed(checks.largest(Scope([], largest=[read])))
    assert f"{entry.largest_size:,} classes, batch 2" in rows[0]
