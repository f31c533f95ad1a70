"""PyTorch's optimizers by their names in config.yaml, LAMB, and the three kinds of gradient clipping.

Nothing here waits for the device: no `.item()`, no Python branch on a tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

THRESHOLD = 1.0


def build(settings: dict[str, Any], parameters: Sequence[Tensor]) -> torch.optim.Optimizer:
    """The optimizer; weight decay is on matrices only, as BERT's authors have it (not on biases and norms)."""
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": settings["weight_decay"]},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    constants = {"lr": settings["learning_rate"], "betas": tuple(settings["betas"]), "eps": settings["epsilon"]}
    if settings["name"] == "lamb":
        return Lamb(groups, **constants)
    kinds: dict[str, Callable[..., torch.optim.Optimizer]] = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam}
    return kinds[settings["name"]](groups, fused=True, **constants)


def described(name: str, optimizer: torch.optim.Optimizer, clip: str) -> dict[str, Any]:
    """The update as it is set up, in the words of `frameworks.SETTINGS`."""
    groups = optimizer.param_groups
    return {
        "optimizer": name,
        "learning_rate": groups[0]["lr"],
        "betas": list(groups[0]["betas"]),
        "epsilon": groups[0]["eps"],
        "epsilon_is_added_to": "the root of the bias-corrected second moment",
        "weight_decay": groups[0]["weight_decay"],
        "decays": "matrices" if groups[1]["weight_decay"] == 0.0 else "everything",
        "clip": clip,
        "clip_at": THRESHOLD if CLIP[clip] else None,
    }


class Lamb(torch.optim.Optimizer):
    """LAMB (You et al. 2020, algorithm 2, with bias correction), over whole lists of tensors at once."""

    def __init__(
        self, params: Any, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-6
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            weights = [p for p in group["params"] if p.grad is not None]
            if weights:
                self._update(group, weights, [p.grad for p in weights])

    def _update(self, group: dict[str, Any], weights: list[Tensor], gradients: list[Tensor]) -> None:
        for weight in weights:
            if not self.state[weight]:
                self.state[weight] = {"mean": torch.zeros_like(weight), "square": torch.zeros_like(weight)}
        group["step"] = group.get("step", 0) + 1
        (beta1, beta2), step = group["betas"], group["step"]
        means = [self.state[weight]["mean"] for weight in weights]
        squares = [self.state[weight]["square"] for weight in weights]
        torch._foreach_lerp_(means, gradients, 1 - beta1)
        torch._foreach_mul_(squares, beta2)
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - beta2)

        bottoms = torch._foreach_div(squares, 1 - beta2**step)
        torch._foreach_sqrt_(bottoms)
        torch._foreach_add_(bottoms, group["eps"])
        updates = torch._foreach_div(means, 1 - beta1**step)
        torch._foreach_div_(updates, bottoms)
        if group["weight_decay"]:
            torch._foreach_add_(updates, weights, alpha=group["weight_decay"])

        sizes, lengths = torch._foreach_norm(weights), torch._foreach_norm(updates)
        one = torch.ones((), device=weights[0].device)
        ratios = [
            torch.where((size > 0) & (length > 0), size / length, one)
            for size, length in zip(sizes, lengths, strict=True)
        ]
        torch._foreach_mul_(updates, ratios)
        torch._foreach_add_(weights, updates, alpha=-group["lr"])


def _by_norm(parameters: Sequence[Tensor]) -> None:
    """Each tensor's gradient scaled down to a norm of THRESHOLD at most."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    scales = [(THRESHOLD / (norm + 1e-6)).clamp(max=1.0) for norm in torch._foreach_norm(gradients)]
    torch._foreach_mul_(gradients, scales)


CLIP: dict[str, Callable[[Sequence[Tensor]], Any] | None] = {
    "none": None,
    "value": lambda parameters: torch.nn.utils.clip_grad_value_(parameters, THRESHOLD),
    "norm": _by_norm,
    "global_norm": lambda parameters: torch.nn.utils.clip_grad_norm_(parameters, THRESHOLD),
}
