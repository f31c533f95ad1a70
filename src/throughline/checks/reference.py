"""The reference of every proof: the same training in one process, in double precision.

Its gradient is the mean of the replicas' means, as an exchange of gradients computes it (one mean over everything
differs wherever replicas have different numbers of what the loss counts). Adam is written out here: it shares no
optimizer with anybody. The workload's form in PyTorch gives the model, whole, and the workload the batches.
"""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from throughline import workloads
from throughline.rank.data import Manifest, batches, synthetic_seeds
from throughline.study.benchmark import Optimizer
from throughline.study.runs import RunSpec

Batches = Iterator[dict[str, Any]]


def initial(spec: RunSpec, manifest: Manifest | None, path: Path) -> None:
    """Write the weights that everybody starts from."""
    torch.manual_seed(spec.seed)
    form = workloads.form(spec.model, "torch")
    with path.open("wb") as file:
        np.savez(file, **form.weights(_network(spec, manifest)))


def losses(spec: RunSpec, manifest: Manifest | None, weights: Path, sources: Sequence[Batches] = ()) -> list[float]:
    """The loss at every step, from `weights`. `sources`: the batches of every replica, if not those of the run."""
    network = _network(spec, manifest)
    with np.load(weights) as file:
        workloads.form(spec.model, "torch").load(network, {name: file[name] for name in file.files})
    torch.set_num_threads(spec.threads)  # as a worker: where others compute as well, threads wait for one another
    at = "cuda" if spec.device != "cpu" and torch.cuda.is_available() else "cpu"
    network.double().to(at)
    sources = sources or [batches_of(spec, manifest, replica) for replica in range(spec.size.replicas)]
    adam = _Adam(list(network.parameters()), spec.optimizer)
    every = []
    for _ in range(spec.steps.timed):
        total = 0.0
        for source in sources:
            loss = network(**{name: _double(array, at) for name, array in next(source).items()}) / len(sources)
            loss.backward()
            total += float(loss.detach())
        every.append(total)
        with torch.no_grad():
            adam.step()
    return every


def batches_of(spec: RunSpec, manifest: Manifest | None, replica: int) -> Batches:
    """The batches that the ranks of a replica read."""
    model, size = workloads.of(spec.model), spec.size
    if manifest:
        rows = batches(manifest, spec.seed, replica, size.replicas, size.batch_per_replica)
        return (model.batch(some, {}) for some in rows)
    seeds = itertools.cycle(synthetic_seeds(spec.seed, replica))
    return (model.synthetic(size.batch_per_replica, _whole(spec), seed) for seed in seeds)


class _Adam:
    """Kingma and Ba 2015, algorithm 1; no weight decay."""

    def __init__(self, parameters: Sequence[torch.Tensor], settings: Optimizer) -> None:
        self.parameters, self.settings, self.done = parameters, settings, 0
        self.means = [torch.zeros_like(parameter) for parameter in parameters]
        self.squares = [torch.zeros_like(parameter) for parameter in parameters]

    def step(self) -> None:
        """Change the parameters by their gradients, and forget these."""
        self.done += 1
        (beta1, beta2), rate, epsilon = self.settings.betas, self.settings.learning_rate, self.settings.epsilon
        for parameter, mean, square in zip(self.parameters, self.means, self.squares, strict=True):
            gradient: Any = parameter.grad
            mean.mul_(beta1).add_(gradient, alpha=1 - beta1)
            square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
            root = (square / (1 - beta2**self.done)).sqrt() + epsilon
            parameter -= rate * (mean / (1 - beta1**self.done)) / root
            parameter.grad = None


def _network(spec: RunSpec, manifest: Manifest | None) -> Any:
    facts = workloads.of(spec.model).facts(manifest.content if manifest else None)
    return workloads.form(spec.model, "torch").build(_whole(spec), facts)


def _whole(spec: RunSpec) -> dict[str, Any]:
    """The specification as JSON, with the whole model on one rank."""
    return {**spec.model_dump(), **workloads.whole(spec.model)}


def _double(array: Any, at: str) -> Any:
    if array is None:
        return None
    tensor = torch.from_numpy(array).to(at)
    return tensor.double() if tensor.is_floating_point() else tensor
