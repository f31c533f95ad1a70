"""A proof of equal mathematics: every framework trains from the same weights, on the same batches in the same order,
and its losses are held against a reference in double precision."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from throughline import files, records, workloads
from throughline.checks import reference
from throughline.checks.equivalence import STEPS, covers, settings
from throughline.files import UserError
from throughline.launch import launch
from throughline.launch.job import Job
from throughline.rank.data import Manifest
from throughline.records import Comparison
from throughline.study.runs import RunSpec

TOLERANCE = 1e-5
"""Largest relative difference of any step's loss from the reference's. Within 50 steps of bert-tiny, rounding comes to
1e-7 (PyTorch) or 1e-6 (MXNet), an epsilon of 1e-6 instead of 1e-8 to 1e-4, a beta2 of 0.998 to 7e-5."""
LIMITS = (
    "What is left is rounding: fp32 carries 24 bits (6e-8), sums of thousands of products differ in their order, and "
    "every step builds on the one before. Adam turns even the smallest gradients into steps of full size: of a weight "
    "whose second moment's root is near epsilon, one bit decides the direction."
)


def prove(
    specs: Sequence[RunSpec], manifest: Path | None, pythons: Mapping[str, str], folder: Path, steps: int = STEPS
) -> dict[str, Any]:
    """The content of equivalence.json: one entry per framework and topology of `specs`.

    `pythons` are the interpreters of the frameworks with an environment of their own; every run's record and log go
    to `folder`.
    """
    first = settings(specs[0], steps)
    data = Manifest(manifest, str(workloads.of(first.model).DATA)) if manifest else None
    outcomes: dict[str, dict[str, dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory(prefix="throughline-") as work:
        runs = _Runs(data, pythons, folder, Path(work, "weights.npz"))
        for spec in specs:
            outcomes.setdefault(spec.framework, {})[spec.topology] = runs.compared(settings(spec, steps)).model_dump()
    return {
        "schema": records.SCHEMA,
        "benchmark": first.benchmark,
        "model": first.model,
        **first.parameters,
        "batch_per_device": first.batch_per_device,
        "covers": covers(specs, steps),
        "steps": steps,
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
        lacking = reference.lacking(spec.model)
        if lacking:
            return Comparison(verdict="unsupported", reason=lacking)
        if not self.weights.exists():
            reference.initial(spec, self.data, self.weights)
        try:
            record = launch.run(self._job(spec))
        except UserError as error:
            return Comparison(verdict="failed", reason=error.what)
        if record["status"] != "ok":
            return Comparison(verdict="unsupported", reason=record["reason"])
        replicas = spec.size.replicas
        if replicas not in self.expected:
            self.expected[replicas] = reference.losses(spec, self.data, self.weights)
        every = [rank["loss"] for rank in record["ranks"]]
        return judged([sum(step) / len(step) for step in zip(*every, strict=True)], self.expected[replicas])

    def _job(self, spec: RunSpec) -> Job:
        record = self.folder / f"{spec.framework}_{spec.topology}.json"
        return Job(
            spec=spec,
            record=record,
            log=record.with_suffix(".log"),
            manifest=self.data.path if self.data else None,
            weights=self.weights,
            python=self.pythons.get(spec.framework, sys.executable),
            part_of=f"{self.folder}.json",
        )


def judged(losses: list[float], expected: list[float]) -> Comparison:
    """The losses of a run's steps against the reference's."""
    difference = [abs(loss - true) / abs(true) for loss, true in zip(losses, expected, strict=True)]
    largest = max(difference)
    equal = largest <= TOLERANCE
    reason = None if equal else f"its loss is off by {largest:.1e}, and {TOLERANCE:.0e} is tolerated"
    return Comparison(
        verdict="equal" if equal else "different",
        reason=reason,
        loss=losses,
        difference=difference,
        largest_difference=largest,
        at_step=difference.index(largest) + 1,
    )


def write(content: dict[str, Any], path: Path) -> None:
    """Write equivalence.json, after checking its form."""
    records.Equivalence.model_validate(content)
    files.write_json(path, content)
