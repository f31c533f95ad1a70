"""Do the frameworks compute the same? Every framework trains from the same weights, on the same batches in the same
order, and its losses are held against a reference in double precision.

Dropout 0, fp32, Adam with epsilon 1e-8 and without decay, no clipping. The reference is one process; its gradient is
the mean of the ranks' means, as an exchange of gradients computes it (one mean over everything differs wherever ranks
have different numbers of masked tokens). Its Adam is written out below: it shares no optimizer with anybody.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from throughline import files, records, workloads
from throughline.files import UserError
from throughline.launch import launch
from throughline.rank.data import Manifest, batches, synthetic_seeds
from throughline.study.benchmark import Optimizer, Options, Steps
from throughline.study.runs import RunSpec
from throughline.topology import Topology

STEPS = 50
TOLERANCE = 1e-5
"""Largest relative difference of any step's loss from the reference's. Within 50 steps of bert-tiny, rounding comes to
1e-7 (PyTorch) or 1e-6 (MXNet), an epsilon of 1e-6 instead of 1e-8 to 1e-4, a beta2 of 0.998 to 7e-5."""
LIMITS = (
    "What is left is rounding: fp32 carries 24 bits (6e-8), sums of thousands of products differ in their order, and "
    "every step builds on the one before. Adam turns even the smallest gradients into steps of full size: of a weight "
    "whose second moment's root is near epsilon, one bit decides the direction."
)


def settings(spec: RunSpec, steps: int = STEPS) -> RunSpec:
    """The same framework, model, batch and topology, without all that is random or a matter of taste."""
    options = Options(data=spec.options.data, controller=spec.options.controller, dropout=0.0)
    return spec.model_copy(
        update={
            "precision": "fp32",
            "repeat": 1,
            "steps": Steps(warmup=0, timed=steps),
            "optimizer": Optimizer(name="adam", learning_rate=1e-4, weight_decay=0.0, epsilon=1e-8),
            "options": options,
        }
    )


def requests(specs: Iterable[RunSpec]) -> dict[str, list[RunSpec]]:
    """Benchmark -> what its proof is made on, for those that compare frameworks; derived runs are no part of it."""
    blocks: dict[str, list[RunSpec]] = {}
    for spec in specs:
        if "__" not in spec.benchmark:
            blocks.setdefault(spec.benchmark, []).append(spec)
    several = {name: block for name, block in blocks.items() if len({spec.framework for spec in block}) > 1}
    return {name: _request(block) for name, block in several.items()}


def _request(block: list[RunSpec]) -> list[RunSpec]:
    """Every framework of a benchmark on one device and, where the benchmark uses several, on two.

    Its smallest batch; in fp32 where the benchmark has it.
    """
    several = any(Topology.parse(spec.topology).world > 1 for spec in block)
    base = min(block, key=lambda spec: (spec.precision != "fp32", spec.batch_per_device))
    return [
        base.model_copy(update={"framework": framework, "topology": topology, "repeat": 1, "hosts": None})
        for framework in dict.fromkeys(spec.framework for spec in block)
        for topology in (["1n1g", "1n2g"] if several else ["1n1g"])
    ]


def prove(
    specs: Sequence[RunSpec], manifest: Path | None, pythons: dict[str, str], folder: Path, steps: int = STEPS
) -> dict[str, Any]:
    """The content of equivalence.json: one entry per framework and topology of `specs`.

    `pythons` are the interpreters of the frameworks with an environment of their own; every run's record and log go
    to `folder`.
    """
    plain = [settings(spec, steps) for spec in specs]
    first = plain[0]
    data = Manifest(manifest, str(workloads.of(first.model).DATA)) if manifest else None
    found: dict[str, dict[str, Any]] = {}
    expected: dict[int, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="throughline-") as work:
        weights = Path(work, "weights.npz")
        initial(first, data, weights)
        for spec in plain:
            world = Topology.parse(spec.topology).world
            if world not in expected:
                expected[world] = reference(spec, data, world, weights)
            place = folder / f"{spec.framework}_{spec.topology}.json"
            job = launch.Job(
                spec=spec,
                record=place,
                log=place.with_suffix(".log"),
                manifest=manifest,
                weights=weights,
                python=pythons.get(spec.framework, sys.executable),
                part_of=f"{folder}.json",
            )
            found.setdefault(spec.framework, {})[spec.topology] = _compared(job, expected[world])
    return {
        "schema": records.SCHEMA,
        "benchmark": first.benchmark,
        "model": first.model,
        **first.parameters,
        "batch_per_device": first.batch_per_device,
        "steps": steps,
        "tolerance": TOLERANCE,
        "reference": "one process, float64, the mean of the ranks' means",
        "limits": LIMITS,
        "optimizer": first.optimizer.model_dump(),
        "reference_loss": {str(world): losses for world, losses in expected.items()},
        "frameworks": found,
    }


def _compared(job: launch.Job, expected: list[float]) -> dict[str, Any]:
    """One framework on one topology against the reference."""
    nothing: dict[str, Any] = {"loss": [], "difference": [], "largest_difference": None, "at_step": None}
    try:
        record = launch.run(job)
    except UserError as error:
        return {"verdict": "failed", "reason": error.what, **nothing}
    if record["status"] != "ok":
        return {"verdict": "unsupported", "reason": record["reason"], **nothing}
    every = [rank["loss"] for rank in record["ranks"]]
    losses = [sum(step) / len(step) for step in zip(*every, strict=True)]
    difference = [abs(loss - true) / abs(true) for loss, true in zip(losses, expected, strict=True)]
    largest = max(difference)
    return {
        "verdict": "equal" if largest <= TOLERANCE else "different",
        "reason": None
        if largest <= TOLERANCE
        else f"its loss is off by {largest:.1e}, and {TOLERANCE:.0e} is tolerated",
        "loss": losses,
        "difference": difference,
        "largest_difference": largest,
        "at_step": difference.index(largest) + 1,
    }


def initial(spec: RunSpec, manifest: Manifest | None, path: Path) -> None:
    """Write the weights that everybody starts from."""
    import numpy as np
    import torch

    torch.manual_seed(spec.seed)
    form = workloads.form(spec.model, "torch")
    with path.open("wb") as file:
        np.savez(file, **form.weights(form.build(spec.model_dump(), _facts(spec, manifest))))


def reference(spec: RunSpec, manifest: Manifest | None, world: int, weights: Path) -> list[float]:
    """The loss at every step, in double precision, from `weights`."""
    import numpy as np
    import torch

    form = workloads.form(spec.model, "torch")
    network = form.build(spec.model_dump(), _facts(spec, manifest))
    with np.load(weights) as file:
        form.load(network, {name: file[name] for name in file.files})
    torch.set_num_threads(spec.threads)  # as a worker: where others compute as well, threads wait for one another
    at = "cuda" if spec.device != "cpu" and torch.cuda.is_available() else "cpu"
    network.double().to(at)
    parameters = list(network.parameters())
    means = [torch.zeros_like(parameter) for parameter in parameters]
    squares = [torch.zeros_like(parameter) for parameter in parameters]
    (beta1, beta2), rate, epsilon = spec.optimizer.betas, spec.optimizer.learning_rate, spec.optimizer.epsilon
    sources = [_batches(spec, manifest, rank, world) for rank in range(world)]
    losses = []
    for step in range(1, spec.steps.timed + 1):
        total = 0.0
        for source in sources:
            loss = network(**{name: _double(array, at) for name, array in next(source).items()}) / world
            loss.backward()
            total += float(loss.detach())
        losses.append(total)
        with torch.no_grad():
            for parameter, mean, square in zip(parameters, means, squares, strict=True):
                gradient = parameter.grad
                mean.mul_(beta1).add_(gradient, alpha=1 - beta1)
                square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
                root = (square / (1 - beta2**step)).sqrt() + epsilon
                parameter -= rate * (mean / (1 - beta1**step)) / root
                parameter.grad = None
    return losses


def _double(array: Any, at: str) -> Any:
    import torch

    if array is None:
        return None
    tensor = torch.from_numpy(array).to(at)
    return tensor.double() if tensor.is_floating_point() else tensor


def _batches(spec: RunSpec, manifest: Manifest | None, rank: int, world: int) -> Iterator[dict[str, Any]]:
    """The batches that a worker of this rank reads."""
    model, count = workloads.of(spec.model), spec.batch_per_device
    if manifest:
        return (model.batch(rows, {}) for rows in batches(manifest, spec.seed, rank, world, count))
    seeds = itertools.cycle(synthetic_seeds(spec.seed, rank))
    return (model.synthetic(count, spec.model_dump(), seed) for seed in seeds)


def _facts(spec: RunSpec, manifest: Manifest | None) -> dict[str, Any]:
    return workloads.of(spec.model).facts(manifest.content if manifest else None)


def write(result: dict[str, Any], path: Path) -> None:
    """Write equivalence.json, after checking its form."""
    records.Equivalence.model_validate(result)
    files.write_json(path, result)
