"""Helper process: steps of GPT-2 in which several ranks share a replica. Argument: a folder for the results, with the
weights.npz to start from.

It forks four ranks for each layout, so PyTorch is imported only once.
"""

from __future__ import annotations

import functools
import hashlib
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch._dynamo
import torch.distributed.device_mesh
import torch.nn.parallel
from torch import Tensor
from torch_reading import Reading

import rank_helpers
import training_fixtures
from throughline.frameworks.torch.ddp import TorchDDP
from throughline.spec import RunSpec
from throughline.workloads import gpt2, in_torch_operations
from throughline.workloads.gpt2 import in_torch
from throughline.workloads.in_torch_operations import dropped

WORLD, STEPS, BATCH = 4, 3, 2
VOCABULARY = 1000
EXACT: dict[str, dict[str, Any]] = {
    "adamw": {"options": {"clip": "global_norm", "gradient_accumulation": 2}},
    "lamb": {"optimizer": {"name": "lamb", "learning_rate": 1e-2}, "options": {"clip": "norm"}},
    "adam": {"optimizer": {"name": "adam"}, "options": {"activation_checkpointing": True}},
}
"""Cases in double precision, which are compared with one process that has the whole model."""
OTHERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "compiled": {"options": {"compile": True}},
    "dropout": {"options": {"dropout": 0.25}},
    "recomputed": {"options": {"dropout": 0.25, "activation_checkpointing": True}},
    "bf16": {"precision": "bf16"},
    "fp16": {"precision": "fp16", "options": {"clip": "global_norm"}},
    "overflow": {"precision": "fp16"},
    "overflow lamb": {"precision": "fp16", "optimizer": {"name": "lamb"}},
    "no exchange": {"options": {"gradient_sync": False}},
}
DRAWN = 4096
"""The size of a mask that is drawn at the place where attention draws its own."""


def spec(name: str, tensor: int) -> RunSpec:
    case = {**EXACT, **OTHERS}[name]
    optimizer = {"learning_rate": 1e-3, "weight_decay": 0.1, **case.get("optimizer", {})}
    options = {"data": "synthetic", "dropout": 0.0, "tensor_parallel": tensor, **case.get("options", {})}
    return training_fixtures.spec(
        model="gpt2-tiny", sequence_length=16, batch=BATCH, topology=f"1n{WORLD}g",
        steps={"warmup": 0, "timed": STEPS}, **{**case, "optimizer": optimizer, "options": options},
    )  # fmt: skip


def micro_batches(asked: RunSpec, step: int, replica: int) -> list[dict[str, Any]]:
    """Return the micro-batches of a replica in a step."""
    count = asked.options.gradient_accumulation
    seeds = (1000 * replica + step * count + turn for turn in range(count))
    return [gpt2.WORKLOAD.synthetic(BATCH, asked, seed) for seed in seeds]


def digest(*tensors: Tensor) -> str:
    return hashlib.sha256(b"".join(tensor.detach().float().numpy().tobytes() for tensor in tensors)).hexdigest()


def trained(name: str, tensor: int, joined: TorchDDP, weights: dict[str, Any]) -> dict[str, Any]:
    """Train a case; return the results of a rank."""
    asked = spec(name, tensor)
    torch.set_default_dtype(torch.float64 if name in EXACT else torch.float32)
    rank = TorchDDP(asked, joined.rank, joined.rank, WORLD, "cpu")
    rank.averaging, rank.tensor = joined.averaging, type(joined.tensor)(joined.tensor.group)
    rank.device()
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    rank.model(gpt2.WORKLOAD.facts(None))
    rank.load(weights)
    rank.optimizer()
    ranks, told = rank.tensor, {}
    if name in EXACT:
        told["loaded"] = {key: array.copy() for key, array in rank.form.weights(rank.network).items()}

    masks: list[np.ndarray] = []
    hidden: list[str] = []
    in_torch.attended = functools.partial(masked, masks, rank.options.dropout)
    for block in rank.form.blocks(rank.network):
        block.register_forward_hook(lambda _, given, result: hidden.append(digest(result)))
    losses, read = [], []
    for step in range(STEPS):
        batches = [rank.deliver(rank.data(arrays)) for arrays in micro_batches(asked, step, rank.replica)]
        if step == 0 and name in EXACT:
            rank.passes(batches)
            gradients = {key: parameter.grad for key, parameter in rank.network.named_parameters()}
            cut = {key: ranks.whole(gradients[key], axis) for key, axis in ranks.dimensions.items()}
            told["gradients"] = {key: gradient.numpy().copy() for key, gradient in {**gradients, **cut}.items()}
            rank.update.zero_grad()
        overflowing = name.startswith("overflow") and step == 1
        last = rank.network.get_parameter("layers.0.up.weight")
        hook = last.register_hook(infinite) if overflowing and rank.rank == WORLD - 1 else None
        before = digest(*rank.parameters)
        # Under a mode that sees every operation, PyTorch would compile nothing.
        with nullcontext() if rank.options.compile else Reading() as reading:
            losses.append(rank.step(batches))
        read += reading.found if reading else []
        if overflowing:
            told["kept"] = digest(*rank.parameters) == before
        if hook:
            hook.remove()
    whole = [p for key, p in rank.network.named_parameters() if key not in ranks.dimensions]
    return {
        **told,
        "losses": rank.losses(losses),
        "weights": digest(*map(torch.from_numpy, rank.form.weights(rank.network).values())),
        "held": sum(parameter.numel() for parameter in rank.parameters),
        "settings": rank.settings(),
        "skipped": rank.skipped(),
        "read": read,
        "compiled": torch._dynamo.utils.counters["frames"]["ok"] if rank.options.compile else 0,
        "hidden": hidden,
        "masks": masks,
        "random": digest(torch.get_rng_state()),
        "alike": digest(*whole),
    }


def masked(masks: list[np.ndarray], p: float, *given: Any) -> Tensor:
    """Compute attention. Before that, draw a mask from the random numbers that attention would draw."""
    if p:
        masks.append(dropped(torch.ones(DRAWN), p).numpy() > 0)
    return ATTENDED(*given)


ATTENDED = in_torch.attended


def infinite(gradient: Tensor) -> Tensor:
    """Make a row of a rank's part of a gradient infinite, before any exchange."""
    return gradient.index_fill(0, torch.tensor(0), float("inf"))


def rank(folder: Path, tensor: int, number: int) -> None:
    torch.compile = functools.partial(torch.compile, backend="aot_eager")  # traces, but generates no code: seconds
    names = [*EXACT, *OTHERS] if tensor < WORLD else list(EXACT)
    joined = TorchDDP(spec("plain", tensor), number, number, WORLD, "cpu")
    joined.join()
    weights = dict(np.load(folder / "weights.npz"))
    results = {name: trained(name, tensor, joined, weights) for name in names}
    rank_helpers.tell(folder, tensor, number, results)
    joined.close()


def main() -> None:
    folder = Path(sys.argv[1])
    gpt2.VOCABULARY = VOCABULARY
    in_torch_operations.CACHED = 2**13  # so small that the loss's rows are computed in several parts
    for tensor in (2, WORLD):
        rank_helpers.fork(WORLD, partial(rank, folder, tensor))


if __name__ == "__main__":
    main()
