"""Equal mathematics: which benchmarks have a proof, what it covers, and making it.

A benchmark has one where it compares frameworks, and where its options change how a model lies on its ranks
(tensor, sharding, a workload's own split). Every framework trains from the same weights, on the same batches in the
same order, and its losses are held against a reference in double precision (reference.py).
"""

import json
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from throughline import records, workloads
from throughline.files import UserError
from throughline.launch import launch
from throughline.launch.job import Job
from throughline.rank.data import Manifest
from throughline.records.checks import Comparison
from throughline.study.benchmark import Optimizer, Options, Steps
from throughline.study.runs import RunSpec
from throughline.study.section import Section
from throughline.topology import Layout

STEPS = 50
TOLERANCE = 1e-5
"""Largest relative difference of any step's loss from the reference's. Within 50 steps of bert-tiny, rounding comes to
1e-7 (PyTorch) or 1e-6 (MXNet), an epsilon of 1e-6 instead of 1e-8 to 1e-4, a beta2 of 0.998 to 7e-5."""
LIMITS = (
    "What is left is rounding: fp32 carries 24 bits (6e-8), sums of thousands of products differ in their order, and "
    "every step builds on the one before. Adam turns even the smallest gradients into steps of full size: of a weight "
    "whose second moment's root is near epsilon, one bit decides the direction."
)


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
    kept = spec.options.model_dump(include={"data", "controller", "sharding", "tensor"})
    return spec.model_copy(
        update={
            "precision": "fp32",
            "repeat": 1,
            "steps": Steps(warmup=0, timed=steps),
            "optimizer": Optimizer(name="adam", learning_rate=1e-4, weight_decay=0.0, epsilon=1e-8),
            "options": Options(**kept, dropout=0.0),
        }
    )


def covers(specs: Sequence[RunSpec]) -> list[str]:
    """What a proof on these runs holds for, and in what they differ from the runs that are measured."""
    measured = specs[0]
    proven = settings(measured)
    where = ", ".join(dict.fromkeys(spec.topology for spec in specs))
    return [
        f"{proven.precision}, whatever precision is measured",
        f"{STEPS} steps on {where} with {measured.batch_per_device} {measured.workload.UNIT} a replica",
        *_differences("optimizer", proven.optimizer, measured.optimizer),
        *_differences("options", proven.options, measured.options),
    ]


def _differences(place: str, *sections: Section) -> list[str]:
    proven, measured = (
        {name: json.dumps(value).strip('"') for name, value in section.model_dump().items()} for section in sections
    )
    changed = (name for name in proven if proven[name] != measured[name])
    return [f"{place}.{name}: {proven[name]} instead of {measured[name]}" for name in changed]


def prove(specs: Sequence[RunSpec], manifest: Path | None, pythons: Mapping[str, str], folder: Path) -> dict[str, Any]:
    """The content of equivalence.json: one entry per framework and topology of `specs`.

    `pythons` are the interpreters of the frameworks with an environment of their own; every run's record and log go
    to `folder`.
    """
    first = settings(specs[0])
    data = Manifest(manifest, str(first.workload.DATA)) if manifest else None
    outcomes: dict[str, dict[str, dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory(prefix="throughline-") as work:
        runs = _Runs(data, pythons, folder, Path(work, "weights.npz"))
        for spec in specs:
            outcomes.setdefault(spec.framework, {})[spec.topology] = runs.compared(settings(spec)).model_dump()
    return {
        "schema": records.SCHEMA,
        "benchmark": first.benchmark,
        "model": first.model,
        **first.parameters,
        "batch_per_device": first.batch_per_device,
        "covers": covers(specs),
        "steps": STEPS,
        "tolerance": TOLERANCE,
        "reference": "one process, float64, the mean of the replicas' means",
        "limits": LIMITS,
        "optimizer": first.optimizer.model_dump(),
        "reference_loss": {str(replicas): losses for replicas, losses in runs.expected.items()},
        "frameworks": outcomes,
    }


@dataclass(frozen=True)
class _Runs:
    """The runs of one proof, from the same weights; the reference is computed where a run has to be held against it."""

    data: Manifest | None
    pythons: Mapping[str, str]
    folder: Path
    weights: Path
    expected: dict[int, list[float]] = field(default_factory=dict)
    """Replicas -> the reference's losses."""

    def compared(self, spec: RunSpec) -> Comparison:
        """Run one framework on one topology, and hold it against the reference."""
        no_form = f"the reference is computed in PyTorch, and {spec.model} has no form there"
        lacking = spec.workload.NO_PROOF if "torch" in spec.workload.LIBRARIES else no_form
        if lacking:
            return Comparison(verdict="unsupported", reason=lacking)
        from throughline.checks import reference

        if not self.weights.exists():
            reference.initial(spec, self.data, self.weights)
        place = self.folder / f"{spec.framework}_{spec.topology}.json"
        log, manifest = place.with_suffix(".log"), self.data.path if self.data else None
        python = self.pythons.get(spec.framework, sys.executable)
        job = Job(spec, place, log, manifest, python, weights=self.weights, part_of=f"{self.folder}.json")
        try:
            record = launch.run(job)
        except UserError as error:
            return Comparison(verdict="failed", reason=error.what)
        if record["status"] != "ok":
            return Comparison(verdict="unsupported", reason=record["reason"])
        replicas = spec.size.replicas
        if replicas not in self.expected:
            self.expected[replicas] = reference.losses(spec, self.data, self.weights)
        every = [rank["loss"] for rank in record["ranks"]]
        return judged([sum(step) / len(step) for step in zip(*every, strict=True)], self.expected[replicas])


def judged(losses: list[float], expected: list[float]) -> Comparison:
    """The losses of a run's steps against the reference's."""
    difference = [abs(loss - true) / abs(true) for loss, true in zip(losses, expected, strict=True)]
    largest = max(difference)
    equal = largest <= TOLERANCE
    return Comparison(
        verdict="equal" if equal else "different",
        reason=None if equal else f"its loss is off by {largest:.1e}, and {TOLERANCE:.0e} is tolerated",
        loss=losses,
        difference=difference,
        largest_difference=largest,
        at_step=difference.index(largest) + 1,
    )
