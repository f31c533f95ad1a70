"""Which benchmarks have a proof of equal mathematics, and on what it is made."""

from __future__ import annotations

from typing import Any

from throughline.checks import equivalence
from throughline.study import runs
from throughline.study.config import load
from throughline.study.runs import RunSpec

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
