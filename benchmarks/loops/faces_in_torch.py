"""Face recognition in PyTorch: the same network, a full classifier with ArcFace's margin on every worker,
DistributedDataParallel around both, SGD."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear, normalize

from throughline.workloads import faces
from throughline.workloads.faces.in_torch_networks import iresnet, mobilefacenet

ROWS = [f"2:mobilefacenet-y1:8:classes={classes}" for classes in (1000, 100_000, 300_000)]
SETTINGS = {"optimizer": {"name": "sgd", "learning_rate": 0.1, "weight_decay": 5e-4}, "options": {"dropout": 0.0}}
OURS = {kind: {"classifier": kind} for kind in ("data_parallel", "model_parallel", "partial")}


class Plain(nn.Module):
    def __init__(self, model: str, classes: int) -> None:
        super().__init__()
        network = faces.NETWORKS[model]
        self.layers = iresnet(network, 0.0) if network.layers else mobilefacenet(network.embedding)
        self.weight = nn.Parameter(torch.randn(classes, network.embedding) * 0.01)

    def forward(self, pixels: Tensor, labels: Tensor) -> Tensor:
        embeddings = self.layers((pixels.permute(0, 3, 1, 2).float() - 127.5) / 127.5)
        cosines = linear(normalize(embeddings), normalize(self.weight))
        own = torch.arange(len(labels)), labels.long()
        angle = cosines[own].clamp(-1 + 1e-7, 1 - 1e-7).acos()
        return cross_entropy(64 * cosines.index_put(own, (angle + 0.5).cos()), own[1])


def contestant(spec: Any, rank: Any, arrays: list[Any]) -> tuple[Callable[[int], float], None]:
    network = Plain(spec.model, spec.parameters.classes)
    model = nn.parallel.DistributedDataParallel(network) if rank.world > 1 else network
    given = spec.optimizer
    update = torch.optim.SGD(
        model.parameters(), given.learning_rate, momentum=given.momentum, weight_decay=given.weight_decay
    )
    batches = [{name: torch.from_numpy(array) for name, array in each.items()} for each in arrays]

    def step(number: int) -> float:
        loss = model(**batches[number % len(batches)])
        loss.backward()
        update.step()
        update.zero_grad()
        return float(loss.detach())

    return step, None
