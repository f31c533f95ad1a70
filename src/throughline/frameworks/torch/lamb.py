"""LAMB over lists of tensors, with few kernels on a GPU. Nothing here waits for the device."""

from typing import Any

import torch
from torch import Tensor

from throughline.frameworks.torch.norms import Norms, add_scaled, here, norms_here, scale_each


class Lamb(torch.optim.Optimizer):
    """LAMB (You et al. 2020, algorithm 2, with bias correction). It computes on whole lists of tensors at once.

    A loss scaler sets `grad_scale` (its scale) and `found_inf` (whether a gradient overflowed), both on the device. A
    step with an overflow changes nothing, and nothing has to wait for the device to find this out.

    fused: use few kernels, as on a GPU. On a CPU this rounds in another way, so it is for tests.
    """

    fused = False
    _step_supports_amp_scaling = True
    grad_scale: Tensor | None
    found_inf: Tensor | None

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        norms: Norms = norms_here,
    ) -> None:  # with defaults, because Horovod's DistributedOptimizer makes another one from the groups alone
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0})
        self.norms = norms

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        groups = [(group, [p for p in group["params"] if p.grad is not None]) for group in self.param_groups]
        groups = [(group, weights) for group, weights in groups if weights]
        for _, weights in groups:
            for weight in weights:
                if not self.state[weight]:
                    self.state[weight] = {"mean": torch.zeros_like(weight), "square": torch.zeros_like(weight)}
        if groups and (self.fused or groups[0][1][0].device.type != "cpu"):
            self._update_fused(groups)
            return
        for group, weights in groups:
            self._update(group, weights, *self._unscaled(gradients_here(weights)))

    def _states(self, weights: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Return the means and squares that this rank holds."""
        means, squares = (here([self.state[weight][name] for weight in weights]) for name in ("mean", "square"))
        return means, squares

    def _update_fused(self, groups: list[tuple[dict[str, Any], list[Tensor]]]) -> None:
        """Update with PyTorch's fused kernel of Adam, and with all norms at once: few kernels, few passes over memory.

        Adam with the learning rate -1 adds its update to what stands in `self`, here the decay of the weights.
        """
        overflow, scale = (getattr(self, name, None) for name in ("found_inf", "grad_scale"))
        all_weights: list[Tensor] = []
        updates: list[Tensor] = []
        for group, weights in groups:
            step = self._counted(group, weights[0].device, overflow)
            made = list(torch._foreach_mul(here(weights), group["weight_decay"]))
            means, squares = self._states(weights)
            (beta1, beta2), gradients = group["betas"], gradients_here(weights)
            torch._fused_adam_(
                made, gradients, means, squares, [], [step] * len(weights), lr=-1.0, beta1=beta1, beta2=beta2,
                weight_decay=0.0, eps=group["eps"], amsgrad=False, maximize=False, grad_scale=scale, found_inf=overflow,
            )  # fmt: skip
            all_weights += weights
            updates += made
        sizes, lengths = self.norms([*here(all_weights), *updates], all_weights * 2).chunk(2)
        ratios = trusted(sizes, lengths)
        if overflow is not None:
            ratios *= 1 - overflow
        first = 0
        for group, weights in groups:
            end = first + len(weights)
            add_scaled(here(weights), updates[first:end], ratios[first:end] * -group["lr"])
            first = end

    def _counted(self, group: dict[str, Any], device: torch.device, overflow: Tensor | None) -> Tensor:
        """Count this step on the device, unless it overflows. Return the number of steps that count."""
        step = group.get("step", 0)
        if not isinstance(step, Tensor) or step.dtype != torch.float32:
            step = torch.full((), step, dtype=torch.float32, device=device)
        group["step"] = step
        step += 1
        if overflow is not None:
            step -= overflow
        return step

    def _unscaled(self, gradients: list[Tensor]) -> tuple[list[Tensor], Tensor | None]:
        """Return the gradients without the loss scale, and whether the step counts, as 1 or 0 on the device.

        After an overflow the gradients are zeros. Without a scaler the second value is None: the step counts.
        """
        overflows = getattr(self, "found_inf", None)
        if overflows is None:
            return gradients, None
        scale = getattr(self, "grad_scale", None)
        inverse = torch.ones_like(overflows) if scale is None else scale.double().reciprocal().to(overflows.dtype)
        counts = 1 - overflows.clamp(max=1)
        zero = torch.zeros_like(overflows)
        return [torch.where(counts > 0, gradient * inverse, zero) for gradient in gradients], counts

    def _update(
        self, group: dict[str, Any], weights: list[Tensor], gradients: list[Tensor], counts: Tensor | None
    ) -> None:
        beta1, beta2 = group["betas"]
        step: Any = group.get("step", 0) + (1 if counts is None else counts.double())
        group["step"] = step
        correct1, correct2 = 1 - beta1**step, 1 - beta2**step
        if counts is not None:
            # In a step that does not count, the betas become 1. Before the first step that counts, the corrections
            # would be 0; they become 1.
            beta1, beta2 = 1 - (1 - beta1) * counts, 1 - (1 - beta2) * counts
            correct1, correct2 = (
                (correction + (correction == 0)).to(counts.dtype) for correction in (correct1, correct2)
            )
        held, (means, squares) = here(weights), self._states(weights)
        torch._foreach_mul_(means, beta1)
        torch._foreach_add_(means, gradients, alpha=1 - group["betas"][0])
        torch._foreach_mul_(squares, beta2)
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - group["betas"][1])

        bottoms = torch._foreach_div(squares, correct2)
        torch._foreach_sqrt_(bottoms)
        torch._foreach_add_(bottoms, group["eps"])
        updates = torch._foreach_div(means, correct1)
        torch._foreach_div_(updates, bottoms)
        if group["weight_decay"]:
            torch._foreach_add_(updates, held, alpha=group["weight_decay"])

        ratios = trusted(self.norms(held, weights), self.norms(updates, weights))
        scale_each(updates, ratios if counts is None else ratios * counts)
        torch._foreach_add_(held, updates, alpha=-group["lr"])


def gradients_here(weights: list[Tensor]) -> list[Tensor]:
    return here([weight.grad for weight in weights if weight.grad is not None])


def trusted(sizes: Tensor, lengths: Tensor) -> Tensor:
    """Return LAMB's trust ratios [n] from the norms [n] of the weights and of their updates."""
    return torch.where((sizes > 0) & (lengths > 0), sizes / lengths, torch.ones_like(sizes))
