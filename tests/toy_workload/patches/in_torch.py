"""Patches in PyTorch."""

from __future__ import annotations

import time
from typing import Any

import torch
from throughline.workloads.patches import HIDDEN
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, gelu

CHANGING: frozenset[str] = frozenset()
LACKS = {"bf16": "patches has no bf16 yet"}


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


def build(spec: dict[str, Any], facts: dict[str, Any], at: torch.device) -> Classifier:
    return Classifier(spec["image"] ** 2, HIDDEN[spec["model"]], spec["classes"])


def weights(network: nn.Module) -> dict[str, Any]:
    return {name: parameter.detach().cpu().numpy() for name, parameter in network.named_parameters()}


def load(network: nn.Module, weights: dict[str, Any]) -> None:
    network.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})


def settings(network: Classifier) -> dict[str, Any]:
    return {
        "parameters": sum(parameter.numel() for parameter in network.parameters()),
        "hidden": network.first.out_features,
        "dropout": [],
        "loss": "mean cross entropy, of each rank",
    }


def versions() -> dict[str, str | None]:
    return {}


@torch.no_grad()
def figures(network: Classifier) -> list[tuple[str, Any, float | None]]:
    """Return figures: name, number of images, and value."""
    found: list[tuple[str, Any, float | None]] = []
    for count in (1, 8):
        pixels = torch.zeros(count, network.first.in_features, device=network.first.weight.device)
        start = time.monotonic()
        network.scores(pixels).sum().item()
        found.append(("latency", count, 1000 * (time.monotonic() - start)))
    return found
