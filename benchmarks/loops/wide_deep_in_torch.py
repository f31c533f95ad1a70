"""Wide & deep in PyTorch: nn.Embedding(sparse=True) with SparseAdam, layers with fused Adam, and around both
DistributedDataParallel."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from throughline.workloads import wide_deep
from throughline.workloads.wide_deep.in_torch import crossed

ROWS = [
    f"{workers}:wide-deep:{sizes}"
    for workers in (1, 2)
    for sizes in (
        "256:vocabulary=100000:embedding=16:hidden=2:width=128",
        "4096:vocabulary=1000000:embedding=16:hidden=2:width=256",
    )
]
SETTINGS = {"optimizer": {"name": "adam", "learning_rate": 1e-3, "weight_decay": 0.0, "epsilon": 1e-8}}
SETTINGS |= {"options": {"dropout": 0.0}}
OURS = {table: {"table": table} for table in ("replicated", "columns", "rows")}


class Plain(nn.Module):
    def __init__(self, given: wide_deep.Parameters) -> None:
        super().__init__()
        self.deep = nn.Embedding(given.vocabulary, given.embedding, sparse=True)
        self.wide = nn.Embedding(given.vocabulary, 1, sparse=True)
        first = wide_deep.FIELDS * given.embedding + wide_deep.NUMBERS
        sizes = [first, *[given.width] * given.hidden, 1]
        self.layers = nn.ModuleList([nn.Linear(*two) for two in itertools.pairwise(sizes)])

    def forward(self, ids: Tensor, numbers: Tensor, labels: Tensor) -> Tensor:
        hidden = torch.cat([self.deep(ids).flatten(1), numbers], 1)
        for layer in self.layers[:-1]:
            hidden = layer(hidden).relu()
        wide = self.wide(crossed(ids.long(), self.wide.num_embeddings)).sum((1, 2))
        return nn.functional.binary_cross_entropy_with_logits(self.layers[-1](hidden)[:, 0] + wide, labels)


def contestant(spec: Any, rank: Any, arrays: list[Any]) -> tuple[Callable[[int], float], dict[str, Any]]:
    torch.manual_seed(1)
    network = Plain(spec.parameters)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.div_(10)
    weights = {name: array.numpy().copy() for name, array in network.state_dict().items()}
    model = nn.parallel.DistributedDataParallel(network) if rank.world > 1 else network
    updates = [
        torch.optim.SparseAdam([network.deep.weight, network.wide.weight], lr=1e-3),
        torch.optim.Adam(network.layers.parameters(), lr=1e-3, fused=True),
    ]
    batches = [{name: torch.from_numpy(array) for name, array in each.items()} for each in arrays]

    def step(number: int) -> float:
        loss = model(**batches[number % len(batches)])
        loss.backward()
        for update in updates:
            update.step()
            update.zero_grad()
        return float(loss.detach())

    return step, weights
