"""The reference of every equivalence check: the same training in one process, in double precision.

Its gradient is the mean of the replicas' means, as in an exchange of gradients. A single mean over all samples would be
different if the replicas have different numbers of the items that the loss counts. The optimizers and the clipping are
written here from the papers, and no framework's code uses them. The workload provides the batches, and its
implementation in PyTorch provides the whole model.

    python -m throughline.checks.reference initial|train SPECIFICATION WEIGHTS ASKED [MANIFEST]

ASKED has the fields of `Asked` as JSON. reference_process.py starts it.
"""

import itertools
import json
import math
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from throughline import frameworks, workloads
from throughline.checks.reference_process import Asked, Trained
from throughline.processes import die_with_parent
from throughline.rank.data import Manifest, batches, synthetic_seeds
from throughline.spec import Optimizer, Options, RunSpec

Batches = Iterator[dict[str, Any]]
PLAIN = Options()
"""The options of a reference: it takes batches as they are."""
PLAINLY = Asked()
NO_GRADIENT = 1e-9
"""The largest norm of a gradient, as a share of the largest of all tensors, that counts as none.

The bias of attention's keys has none, because a softmax does not see what is added to all scores of a query: in double
precision we found 1e-16 of the largest. The smallest real gradient was 1e-5 of it.
"""


def initial(spec: RunSpec, manifest: Manifest | None, path: Path) -> None:
    """Write the weights that the reference and all frameworks start from."""
    torch.manual_seed(spec.seed)
    form = workloads.form(spec.model, "torch")
    with path.open("wb") as file:
        np.savez(file, **form.weights(_network(spec, manifest)))


def train(
    spec: RunSpec, manifest: Manifest | None, weights: Path, sources: Sequence[Batches] = (), asked: Asked = PLAINLY
) -> Trained:
    """Train from `weights`. `sources` are the batches of each replica; without them, the run's own batches are used."""
    network = _network(spec, manifest)
    with np.load(weights) as file:
        initial = dict(file)
    workloads.form(spec.model, "torch").load(network, initial)
    # As many threads as a worker. If other processes compute too, more threads would only wait for one another.
    torch.set_num_threads(spec.threads)
    at = "cuda" if spec.device != "cpu" and torch.cuda.is_available() else "cpu"
    network.double().to(at)
    sources = sources or [batches_of(spec, manifest, replica) for replica in range(spec.size.replicas)]
    names, parameters = zip(*network.named_parameters(), strict=True)
    micro_batches = spec.options.gradient_accumulation
    moments = [(torch.zeros_like(parameter), torch.zeros_like(parameter)) for parameter in parameters]
    slopes = [0.0] * len(names)
    losses: list[float] = []
    clipped = taken = 0
    for step in range(1, spec.steps.timed + 1):
        total = 0.0
        for batch in itertools.chain.from_iterable(itertools.islice(source, micro_batches) for source in sources):
            tensors = {name: _double(array, at) for name, array in batch.items()}
            loss = network(**tensors) / (len(sources) * micro_batches)
            loss.backward()
            total += float(loss.detach())
        losses.append(total)
        gradients = [parameter.grad for parameter in parameters]
        slopes = [max(slope, _norm(gradient)) for slope, gradient in zip(slopes, gradients, strict=True)]
        if step not in asked.skipped:
            taken += 1
            at_rate = replace(spec.optimizer, learning_rate=_rate(step, spec.optimizer))
            with torch.no_grad():
                clipped += _clip(gradients, spec.options.clip)
                for parameter, pair in zip(parameters, moments, strict=True):
                    _update(parameter, parameter.grad, *pair, taken, at_rate)
        network.zero_grad()
        if str(step) in asked.updates:
            _write_updates(network, spec.model, initial, Path(asked.updates[str(step)]))
    still = [name for name, slope in zip(names, slopes, strict=True) if slope <= NO_GRADIENT * max(slopes)]
    return Trained(losses, clipped, still, [name for name in names if name not in still])


def _norm(gradient: Any) -> float:
    return float((gradient.coalesce().values() if gradient.is_sparse else gradient).norm())


def _write_updates(network: Any, model: str, initial: dict[str, Any], path: Path) -> None:
    """Write what training has added to each weight so far."""
    now = workloads.form(model, "torch").weights(network)
    with path.open("wb") as file:
        np.savez(file, **{name: (array - initial[name]).astype(np.float32) for name, array in now.items()})


def batches_of(spec: RunSpec, manifest: Manifest | None, replica: int) -> Batches:
    """Return the batches that the ranks of a replica read."""
    model, size = workloads.of(spec.model), spec.size
    if manifest:
        rows = batches(manifest, spec.seed, replica, size.replicas, size.batch_per_replica)
        return (model.batch(arrays, PLAIN) for arrays in manifest.decoded(rows, size.batch_per_replica))
    seeds = itertools.cycle(synthetic_seeds(spec.seed, replica))
    return (model.synthetic(size.batch_per_replica, _whole(spec), seed) for seed in seeds)


def _rate(step: int, settings: Optimizer) -> float:
    """Return the learning rate of a step; steps count from 1. After the warm-up, it is a function of the time that has
    passed, as a share of the time from the end of the warm-up (or from the start) to the last step."""
    schedule, highest = settings.schedule, settings.learning_rate
    if step <= schedule.warmup_steps:
        return highest * step / schedule.warmup_steps
    if schedule.total_steps is None:
        return highest
    begin = schedule.warmup_steps * (schedule.decay_from == "warmup_end")
    time = min(1.0, (step - begin) / (schedule.total_steps - begin))
    lowest = highest * schedule.last
    if schedule.name == "cosine":  # Loshchilov and Hutter 2017, equation 5
        return lowest + (highest - lowest) * 0.5 * (1 + math.cos(time * math.pi))
    return lowest + (highest - lowest) * float((1 - time) ** schedule.power)


def _clip(gradients: Sequence[Any], kind: str) -> bool:
    """Clip at 1.0 each number, the norm of each tensor, or the norm of all tensors (Pascanu et al. 2013).

    Return True if a gradient was changed.
    """
    sizes = [gradient.abs().max() if kind == "value" else gradient.norm() for gradient in gradients]
    if kind == "global_norm":
        sizes = [torch.stack(sizes).norm()] * len(sizes)
    above = kind != "none" and any(float(size) > 1 for size in sizes)
    for gradient, size in zip(gradients, sizes, strict=True):
        if above and kind == "value":
            gradient.clamp_(-1.0, 1.0)
        elif above:
            gradient /= max(1.0, float(size))
    return above


def _update(weight: Tensor, gradient: Any, mean: Tensor, square: Tensor, step: int, settings: Optimizer) -> None:
    """Update a weight and its moments in place. A sparse gradient updates only the rows that it names."""
    if not gradient.is_sparse:
        weight -= _step(weight, gradient, mean, square, step, settings)
        return
    gradient = gradient.coalesce()
    rows = gradient.indices()[0]
    means, squares = mean[rows], square[rows]
    weight[rows] -= _step(weight[rows], gradient.values(), means, squares, step, settings)
    mean[rows], square[rows] = means, squares


def _step(weight: Tensor, gradient: Tensor, mean: Tensor, square: Tensor, step: int, settings: Optimizer) -> Tensor:
    """Update the moments, and return what is subtracted from the weight.

    * sgd: with momentum (Sutskever et al. 2013), without Nesterov's change; `mean` is the velocity
    * adam: Kingma and Ba 2015, algorithm 1; epsilon is added to the root of the corrected second moment
    * adamw: Loshchilov and Hutter 2019, algorithm 2; its decay is no part of the gradient
    * bertadam: the Adam of BERT's own code, which GluonNLP calls BERTAdam: adamw without correction of the bias
    * lamb: You et al. 2020, algorithm 2, with the identity as phi: adamw's step, scaled to the norm of the weight

    In sgd and adam, the decay is an L2 penalty, which is part of the gradient. It applies only to weights of two
    dimensions or more.
    """
    name, rate, (beta1, beta2) = settings.name, settings.learning_rate, settings.betas
    decay = (settings.weight_decay if weight.ndim >= 2 else 0.0) * weight
    if name in ("sgd", "adam"):
        gradient = gradient + decay
    if name == "sgd":
        return rate * mean.mul_(settings.momentum).add_(gradient)
    mean.mul_(beta1).add_(gradient, alpha=1 - beta1)
    square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
    if name == "bertadam":
        direction = mean / (square.sqrt() + settings.epsilon)
    else:
        direction = mean / (1 - beta1**step) / ((square / (1 - beta2**step)).sqrt() + settings.epsilon)
    update = direction if name == "adam" else direction + decay
    if name == "lamb" and (size := float(weight.norm())) and (length := float(update.norm())):
        return rate * (size / length) * update
    return rate * update


def _network(spec: RunSpec, manifest: Manifest | None) -> Any:
    facts = workloads.of(spec.model).facts(manifest.content if manifest else None)
    return workloads.form(spec.model, "torch").build(_whole(spec), facts)


def _whole(spec: RunSpec) -> RunSpec:
    """Return the specification with the whole model on one rank."""
    return replace(spec, parameters=replace(spec.parameters, **workloads.whole(spec.model)))


def _double(array: Any, at: str) -> Any:
    if array is None:
        return None
    tensor = torch.from_numpy(array).to(at)
    return tensor.double() if tensor.is_floating_point() else tensor


def main() -> None:
    """Compute what the command line asks for, and print the answer as the last line of the output.

    Libraries may print lines before it.
    """
    die_with_parent(os.getppid(), signal.SIGKILL)
    what, values, weights, asked, *manifest = sys.argv[1:]
    spec = frameworks.specification(json.loads(values))
    data = Manifest.of_run(spec, manifest[0]) if manifest else None
    if what == "initial":
        initial(spec, data, Path(weights))
    asked_for = Asked(**json.loads(asked))
    print(json.dumps(train(spec, data, Path(weights), asked=asked_for) if what == "train" else None))


if __name__ == "__main__":
    main()
