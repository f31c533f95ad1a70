"""Equal mathematics: which benchmarks have a proof, on what it is made, and what it covers.

A benchmark has one where it compares frameworks, and where its options change how a model lies on its ranks
(tensor, sharding, a workload's own split). reference.py computes what proof.py compares with.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from throughline import workloads
from throughline.study.benchmark import Optimizer, Options, Steps
from throughline.study.runs import RunSpec
from throughline.topology import Layout

STEPS = 50


def requests(specs: Iterable[RunSpec]) -> dict[str, list[RunSpec]]:
    """Benchmark -> the runs that its proof is made of, for those that have one; derived runs are no part of it."""
    blocks: dict[str, list[RunSpec]] = {}
    for spec in specs:
        if "__" not in spec.benchmark:
            blocks.setdefault(spec.benchmark, []).append(spec)
    return {name: _request(block) for name, block in blocks.items() if _needs_proof(block)}


def _needs_proof(block: Sequence[RunSpec]) -> bool:
    first, several = block[0], len({spec.framework for spec in block}) > 1
    split = any(first.parameters[name] != value for name, value in workloads.whole(first.model).items())
    return several or split or first.layout != Layout()


def _request(block: Sequence[RunSpec]) -> list[RunSpec]:
    """Every framework of a benchmark on one replica of the model and, where the benchmark uses several, on two.

    Its smallest batch of a replica; in fp32 where the benchmark has it. One replica alone shards nothing.
    """
    base = min(block, key=lambda spec: (spec.precision != "fp32", spec.size.batch_per_replica))
    several = any(spec.size.replicas > 1 for spec in block)
    alone = not several or base.layout.sharding == "none"
    change = {"batch_per_device": base.size.batch_per_replica, "scaling": "weak", "repeat": 1, "hosts": None}
    return [
        base.model_copy(update={**change, "framework": framework, "topology": f"1n{replicas * base.layout.tensor}g"})
        for framework in dict.fromkeys(spec.framework for spec in block)
        for replicas in [1] * alone + [2] * several
    ]


def settings(spec: RunSpec, steps: int = STEPS) -> RunSpec:
    """The same framework, model, batch, topology and layout, without all that is random or a matter of taste."""
    options = spec.options
    kept = {name: getattr(options, name) for name in ("data", "controller", "sharding", "tensor")}
    return spec.model_copy(
        update={
            "precision": "fp32",
            "repeat": 1,
            "steps": Steps(warmup=0, timed=steps),
            "optimizer": Optimizer(name="adam", learning_rate=1e-4, weight_decay=0.0, epsilon=1e-8),
            "options": Options(**kept, dropout=0.0),
        }
    )


def covers(specs: Sequence[RunSpec], steps: int = STEPS) -> list[str]:
    """What a proof on these runs holds for, and in what they differ from the runs that are measured."""
    measured = specs[0]
    proven = settings(measured, steps)
    where = ", ".join(dict.fromkeys(spec.topology for spec in specs))
    return [
        f"{proven.precision}, whatever precision is measured",
        f"{steps} steps on {where} with {measured.batch_per_device} {measured.workload.UNIT} a replica",
        *_differences("optimizer", proven.optimizer, measured.optimizer),
        *_differences("options", proven.options, measured.options),
    ]


def _differences(place: str, proven: Any, measured: Any) -> list[str]:
    pairs = ((name, getattr(proven, name), getattr(measured, name)) for name in type(proven).model_fields)
    return [f"{place}.{name}: {_shown(a)} instead of {_shown(b)}" for name, a, b in pairs if a != b]


def _shown(value: Any) -> str:
    return json.dumps(value).strip('"')
