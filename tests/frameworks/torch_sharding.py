"""Helper process: the same steps with every kind of sharding. Arguments: file of the cases, folder for results.

It forks the ranks of every group, so PyTorch is imported only once.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed.optim  # imported once here; sharding imports it only where it is needed
from torch import Tensor
from torch_reading import Reading

import rank_helpers
import training_fixtures
from throughline import workloads
from throughline.frameworks.rank import load
from throughline.frameworks.torch.ddp import TorchDDP

STEPS = 3
VOCABULARY = 200
GROUPS = ("averaging", "tensor", "mesh", "sharing", "holding", "experts", "together")
"""What a rank knows of its groups of ranks after `join`."""
OVERFLOW = 1
"""The step in which the case with the loss scaler overflows, in one number of one rank."""


def own(tensor: Any) -> Tensor:
    """Return the part of a tensor that this rank holds."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def whole(tensor: Any) -> Any:
    tensor = tensor.detach()
    return (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).numpy().copy()


def numbers(tensors: Any) -> int:
    return sum(own(tensor).numel() for tensor in tensors)


def small(batch: dict[str, Any]) -> dict[str, Any]:
    """Return the batch with ids of a small vocabulary, because a large one would take most of the time."""
    return {
        name: array % VOCABULARY if name in ("tokens", "input_ids", "labels") else array
        for name, array in batch.items()
    }


def trained(rank: TorchDDP, overflows: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """Train; return the results of a rank, and the weights at the end."""
    spec = rank.spec
    rank.device()
    rank.model({"vocabulary": VOCABULARY})
    rank.changing = {"norm.running_mean": torch.full((3,), float(rank.rank))}
    given = rank.form.weights(rank.network)
    rank.load({name: array * np.float32(1.5) for name, array in given.items()})
    rank.optimizer()
    held: dict[str, int] = {}
    rank.update.register_step_pre_hook(lambda *_: held.update(gradients=numbers(p.grad for p in rank.parameters)))
    losses, read = [], []
    passes, model, count = rank.passes, workloads.of(spec.model), spec.options.gradient_accumulation
    for step in range(STEPS):
        rank.passes = partial(overflowing, rank, passes) if overflows and step == OVERFLOW else passes
        seeds = [1 + (step * count + turn) * rank.replicas + rank.replica for turn in range(count)]
        batches = [rank.deliver(rank.data(small(model.synthetic(4, spec, seed)))) for seed in seeds]
        with Reading() as reading:
            losses.append(rank.step(batches))
        read += reading.found
    held["weights"] = numbers(rank.parameters)
    local = getattr(rank.update, "optim", rank.update)
    held["states"] = numbers(value for state in local.state.values() for value in state.values() if value.ndim)
    told = {"losses": rank.losses(losses), "skipped": rank.skipped(), "read": read, "held": held}
    told["buffer"] = rank.changing["norm.running_mean"].tolist()
    return {**told, "settings": rank.settings()}, {
        name: whole(parameter) for name, parameter in rank.network.named_parameters()
    }


def overflowing(rank: TorchDDP, passes: Any, batches: Any) -> Any:
    """Do the passes, then make one gradient infinite: on every rank, or only on the last one if gradients are split."""
    total = passes(batches)
    if rank.rank == rank.world - 1 or not rank.in_parts:
        next(grad for p in rank.parameters if (grad := own(p.grad)).numel()).view(-1)[0] = float("inf")
    return total


def train(cases: dict[str, Any], world: int, results: str, rank: int) -> None:
    met: TorchDDP | None = None
    every = {}
    for name, case in cases.items():
        overflows, gathered = case.pop("overflows", False), case.pop("gathered", None)
        spec = training_fixtures.spec(topology=f"1n{world}g", **case)
        one: Any = load(spec.framework)(spec, rank, rank, world, "cpu")
        if met is None:
            one.join()
        else:
            vars(one).update({name: value for name, value in vars(met).items() if name in GROUPS})
        if gathered and case["options"]["sharding"] != "none":
            one.gathered = getattr(torch, gathered)
        met = one
        every[name], weights = trained(one, overflows)
        np.savez(f"{results}_{name}_{rank}.npz", **weights)
    Path(f"{results}_{rank}.json").write_text(json.dumps(every))
    one.close()


def main() -> None:
    workloads.form("gpt2-tiny", "transformers")  # imported once, before the ranks are forked
    groups, folder = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    for group, cases in groups.items():
        world = int(group.split()[0])
        rank_helpers.fork(world, partial(train, cases, world, str(folder / group)))


if __name__ == "__main__":
    main()
