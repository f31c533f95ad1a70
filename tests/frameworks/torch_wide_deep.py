"""Helper process: steps of wide & deep whose tables are whole or split over several ranks. Argument: a folder for the
results.

It forks the ranks of each layout, so PyTorch is imported only once.
"""

from __future__ import annotations

import pickle
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.parallel

import rank_helpers
import training_fixtures
from throughline.frameworks.torch.ddp import TorchDDP
from throughline.spec import RunSpec
from throughline.workloads import wide_deep
from throughline.workloads.wide_deep import in_torch

STEPS, BATCH, VOCABULARY = 3, 12, 1001
TABLES, UPDATES = ("replicated", "columns", "rows"), ("lazy", "dense")
WORLDS = (1, 2, 4)
COLUMNS = 6
"""Columns of the deep table. Neither they nor the rows divide evenly by four ranks."""


def spec(table: str, update: str, world: int) -> RunSpec:
    return training_fixtures.spec(
        model="wide-deep", vocabulary=VOCABULARY, embedding=COLUMNS, hidden=2, width=32, table=table, update=update,
        batch=BATCH // world, topology=f"1n{world}g", steps={"warmup": 0, "timed": STEPS},
        optimizer={"name": "adamw", "learning_rate": 1e-2, "weight_decay": 0.1},
        options={"data": "synthetic", "dropout": 0.0},
    )  # fmt: skip


def batch(world: int, rank: int, step: int) -> dict[str, Any]:
    """Return a rank's share of a batch. The whole batch is the same for every number of ranks."""
    whole = wide_deep.WORKLOAD.synthetic(BATCH, spec("replicated", "lazy", 1), step)
    whole = {name: array if name == "ids" else array.astype(float) for name, array in whole.items()}
    return {name: np.split(array, world)[rank] for name, array in whole.items()}


def dense(table: in_torch.Table) -> Any:
    """Return a table's whole gradient. All ranks must call this. A dense gradient is whole already if DDP exchanged
    it."""
    gradient = table.weight.grad.to_dense()
    kept, table.weight.data = table.weight.data, gradient
    whole = table.whole().copy()
    table.weight.data = kept
    return whole


def trained(asked: RunSpec, joined: TorchDDP, weights: dict[str, Any] | None) -> dict[str, Any]:
    """Train; return the results of a rank."""
    rank = TorchDDP(asked, joined.rank, joined.rank, joined.world, "cpu")
    rank.together = joined.together if wide_deep.WORKLOAD.own_gradient_sync(asked) else None
    rank.device()
    rank.model({})
    told: dict[str, Any] = {"held": sum(table.weight.numel() for table in rank.network.tables)}
    if weights is not None:
        rank.load(weights)
    rank.optimizer()
    losses = []
    for step in range(STEPS):
        batches = [rank.deliver(rank.data(batch(rank.world, rank.rank, step)))]
        if step == 0:
            rank.passes(batches)
            told["gradients"] = {name: dense(getattr(rank.network, name)) for name in ("deep", "wide")}
            rank.update.zero_grad()
        losses.append(rank.step(batches))
    return {
        **told,
        "losses": rank.losses(losses),
        "weights": rank.form.weights(rank.network),
        "settings": rank.settings(),
    }


def rank(folder: Path, world: int, number: int) -> None:
    torch.set_default_dtype(torch.float64)
    joined = TorchDDP(spec("rows", "lazy", world), number, number, world, "cpu")
    joined.join()
    path = folder / "weights.pickle"
    weights = pickle.loads(path.read_bytes()) if path.exists() else None
    results = {
        (table, update): trained(spec(table, update, world), joined, weights) for table in TABLES for update in UPDATES
    }
    rank_helpers.tell(folder, world, number, results)
    joined.close()


def main() -> None:
    folder = Path(sys.argv[1])
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(1)
    network = in_torch.FORM.build(spec("replicated", "lazy", 1), {})
    (folder / "weights.pickle").write_bytes(pickle.dumps(in_torch.FORM.weights(network)))
    for world in WORLDS:
        rank_helpers.fork(world, partial(rank, folder, world))


if __name__ == "__main__":
    main()
