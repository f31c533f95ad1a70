"""Which benchmarks have a proof of equal mathematics, and on what it is made."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import training_fixtures
from throughline import records, workloads
from throughline.checks import equivalence
from throughline.study import runs
from throughline.study.config import load
from throughline.study.runs import RunSpec

ALONE = {"frameworks": ["torch"]}
BLOCK = {
    "sequence": 32, "topologies": ["1n1g", "1n4g"], "batch": {"bf16": [8], "fp32": [64, 16]}, "repeats": 2,
    "frameworks": ["torch", "torch-horovod"],
}  # fmt: skip


def requested(**changes: Any) -> dict[str, list[RunSpec]]:
    config = load([], {"benchmarks": {"b": BLOCK | changes, "alone": {"sequence": 32}}})
    return equivalence.requests(runs.expand(config))


def test_a_comparison_of_frameworks_has_a_proof_and_one_framework_alone_has_none() -> None:
    (name, specs), *others = requested(extras=["aa", "synthetic"]).items()
    assert (name, others) == ("b", [])
    assert [(spec.framework, spec.topology) for spec in specs] == [
        (framework, topology) for framework in BLOCK["frameworks"] for topology in ("1n1g", "1n2g")
    ]
    assert {(spec.precision, spec.batch_per_device, spec.repeat, spec.hosts) for spec in specs} == {
        ("fp32", 16, 1, None)
    }


def test_one_device_is_proven_on_one_device() -> None:
    assert {spec.topology for spec in requested(topologies=["1n1g"])["b"]} == {"1n1g"}


def test_one_framework_has_a_proof_where_its_options_change_how_a_model_lies_on_its_ranks() -> None:
    assert requested(**ALONE) == {}
    pairs = requested(**ALONE, topologies=["1n2g", "1n4g"], options={"tensor": 2})["b"]
    assert [(spec.topology, spec.size.replicas, spec.layout.tensor) for spec in pairs] == [
        ("1n2g", 1, 2), ("1n4g", 2, 2),
    ]  # fmt: skip
    sharded = requested(**ALONE, topologies=["1n2g", "1n4g"], options={"sharding": "optimizer"})["b"]
    assert [spec.topology for spec in sharded] == ["1n2g"]  # a replica alone shards nothing
    assert equivalence.settings(sharded[0]).layout == sharded[0].layout


@dataclass(frozen=True)
class Split:
    tables: int = workloads.key("ranks that the tables lie on", default=4, whole=1)


def test_a_workload_that_splits_its_model_has_a_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = training_fixtures.spec()
    monkeypatch.setattr(workloads.of(spec.model), "Parameters", Split)
    for tables, proven in ((4, True), (1, False)):
        split = spec.model_copy(update={"parameters": {"tables": tables}})
        assert bool(equivalence.requests([split])) == proven
    assert workloads.whole(spec.model) == {"tables": 1}


def test_a_strong_scaling_is_proven_with_the_smallest_batch_of_a_replica() -> None:
    specs = requested(scaling="strong", batch={"fp32": [64]})["b"]
    assert {(spec.batch_per_device, spec.scaling) for spec in specs} == {(16, "weak")}


def test_what_a_proof_covers_names_what_is_measured_otherwise() -> None:
    measured = training_fixtures.spec(precision="bf16", options={"compile": True})
    assert equivalence.covers([measured, measured.model_copy(update={"topology": "1n2g"})]) == [
        "fp32, whatever precision is measured",
        "50 steps on 1n1g, 1n2g with 4 samples a replica",
        "optimizer.name: adam instead of adamw",
        "optimizer.weight_decay: 0.0 instead of 0.01",
        "optimizer.epsilon: 1e-08 instead of 1e-06",
        "options.compile: false instead of true",
        "options.dropout: 0.0 instead of 0.1",
    ]


def test_a_workload_without_a_reference_is_said_to_have_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = training_fixtures.spec()
    monkeypatch.setattr(workloads.of(spec.model), "NO_PROOF", "its images are cut at random")
    result = equivalence.prove([spec], None, {}, tmp_path / "equivalence")
    records.write(records.Equivalence, result, tmp_path / "equivalence.json")
    one = records.read_equivalence(tmp_path / "equivalence.json").frameworks["torch"]["1n1g"]
    assert (one.verdict, one.reason) == ("unsupported", "its images are cut at random")
