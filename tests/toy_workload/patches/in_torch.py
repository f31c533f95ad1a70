"""Patches in PyTorch."""

from __future__ import annotations

import time
from typing import Any

import torch
from throughline.workloads.patches import HIDDEN, Parameters
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, gelu

from throughline.spec import RunSpec
from throughline.workloads import Values
from throughline.workloads.in_torch_form import TorchForm


class Classifier(nn.Module):
    """The network: it takes the tensors of a batch and returns the loss."""

    def __init__(self, pixels: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(pixels, hidden), nn.Linear(hidden, classes)

    def forward(self, pixels: Tensor, labels: Tensor) -> Tensor:
        return cross_entropy(self.scores(pixels), labels)

    def scores(self, pixels: Tensor) -> Tensor:
        scores: Tensor = self.second(gelu(self.first(pixels)))
        return scores


class PatchesInTorch(TorchForm[Parameters, Classifier]):
    lacks = {"bf16": "patches has no bf16 yet"}

    def build(self, spec: RunSpec[Parameters], facts: Values, at: torch.device | None = None) -> Classifier:
        return Classifier(spec.parameters.image**2, HIDDEN[spec.model], spec.parameters.classes)

    def settings(self, network: Classifier) -> dict[str, Any]:
        return {
            "parameters": sum(parameter.numel() for parameter in network.parameters()),
            "hidden": network.first.out_features,
            "dropout": [],
            "loss": "mean cross entropy, of each rank",
        }

    @torch.no_grad()
    def figures(self, network: Classifier) -> list[tuple[str, Any, float | None]]:
        found: list[tuple[str, Any, float | None]] = []
        for count in (1, 8):
            pixels = torch.zeros(count, network.first.in_features, device=network.first.weight.device)
            start = time.monotonic()
            network.scores(pixels).sum().item()
            found.append(("latency", count, 1000 * (time.monotonic() - start)))
        return found


FORM = PatchesInTorch()
