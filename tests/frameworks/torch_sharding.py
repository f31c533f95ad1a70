"""Helper process: the same steps with every kind of sharding. Argument: a folder for the results.

It forks the ranks of every group, so PyTorch is imported only once.
"""

from __future__ import annotations

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
JOINED = ("averaging", "tensor", "mesh", "sharing", "holding", "experts", "together")
"""What a rank knows of its groups of ranks after `join`."""
OVERFLOW = 1
"""The step in which the case with the loss scaler overflows, in one number of one rank."""
KINDS = ("none", "zero1", "shard_grad_op", "full_shard")
CLIPPED = {"gradient_accumulation": 2, "clip": "global_norm"}
CASES: dict[str, dict[str, Any]] = {
    "adamw": {"model": "gpt2-tiny", "options": CLIPPED},
    "adam": {"precision": "bf16", "optimizer": {"name": "adam"},
        "options": {"clip": "norm", "activation_checkpointing": True}},
    "tensor_parallel": {"model": "gpt2-tiny", "precision": "fp16",
        "options": {"tensor_parallel": 2, "clip": "global_norm"}},
    "hf-loop": {"framework": "hf-loop", "model": "gpt2-tiny", "options": CLIPPED},
    "lamb": {"precision": "fp16", "optimizer": {"name": "lamb"}, "options": {"clip": "value"}},
    "halves": {"precision": "bf16", "options": CLIPPED},
    "reduce_dtype": {"model": "gpt2-tiny", "options": {**CLIPPED, "reduce_dtype": "bf16"}},
}  # fmt: skip
OVERFLOWS, GATHERED_IN_HALF = "lamb", "halves"
"""The cases that overflow, and that gather weights in 16 bits."""
FITTING = {"adamw": KINDS, "tensor_parallel": KINDS[:2], "halves": ("none", "full_shard"), "reduce_dtype": KINDS[:1]}
GROUPS = {
    "2": ("adamw", "adam", "lamb", "halves", "reduce_dtype", "hf-loop"),
    "4 in pairs": ("tensor_parallel",),
}
"""Group of processes -> the cases that they train."""


def kinds(case: str) -> tuple[str, ...]:
    """Return the kinds of sharding that fit a case. `shard_grad_op` splits the same parts as `full_shard`, so one case
    for it is enough."""
    return FITTING.get(case, ("none", "zero1", "full_shard"))


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


def trained(rank: TorchDDP, overflows: bool) -> dict[str, Any]:
    """Train; return the results of a rank, with the weights at the end."""
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
    return {
        "losses": rank.losses(losses), "skipped": rank.skipped(), "read": read, "held": held,
        "buffer": rank.changing["norm.running_mean"].tolist(), "settings": rank.settings(),
        "weights": {name: whole(parameter) for name, parameter in rank.network.named_parameters()},
    }  # fmt: skip


def overflowing(rank: TorchDDP, passes: Any, batches: Any) -> Any:
    """Do the passes, then make one gradient infinite: on every rank, or only on the last one if gradients are split."""
    total = passes(batches)
    if rank.rank == rank.world - 1 or not rank.in_parts:
        next(grad for p in rank.parameters if (grad := own(p.grad)).numel()).view(-1)[0] = float("inf")
    return total


def train(folder: Path, group: str, world: int, rank: int) -> None:
    met: Any = None
    every, pairs = {}, [(case, kind) for case in GROUPS[group] for kind in kinds(case)]
    for case, kind in pairs:
        options = {**CASES[case]["options"], "dropout": 0.0, "sharding": kind}
        spec = training_fixtures.spec(topology=f"1n{world}g", **{**CASES[case], "options": options})
        one: Any = load(spec.framework)(spec, rank, rank, world, "cpu")
        if met is None:
            one.join()
        else:
            vars(one).update({name: value for name, value in vars(met).items() if name in JOINED})
        if case == GATHERED_IN_HALF and kind != "none":
            one.gathered = torch.bfloat16
        met = one
        every[case, kind] = trained(one, case == OVERFLOWS)
    rank_helpers.tell(folder, group, rank, every)
    one.close()


if __name__ == "__main__":
    workloads.form("gpt2-tiny", "transformers")  # imported once, before the ranks are forked
    for group in GROUPS:
        world = int(group.split()[0])
        rank_helpers.fork(world, partial(train, Path(sys.argv[1]), group, world))
