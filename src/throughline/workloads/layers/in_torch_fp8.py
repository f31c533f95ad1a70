"""Products with a layer's matrices in fp8, forward and backward. Everything else stays in bf16.

The recipe is the usual one: e4m3 forward, and e5m2 for the gradients of outputs. Each tensor has a scale, which every
call computes again (`in_torch_fp8.scaled`).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from throughline.workloads.in_torch_fp8 import BACKWARD, FORWARD, scaled, times


def matrices(layer: nn.Module) -> list[tuple[nn.Module, bool]]:
    """Return the modules that multiply by a weight, each with True if the weight has a row for each input (GPT-2)."""
    from transformers.pytorch_utils import Conv1D

    kinds = (module for module in layer.modules() if isinstance(module, nn.Linear | Conv1D))
    return [(module, isinstance(module, Conv1D)) for module in kinds]


def use(layer: nn.Module) -> None:
    """Make all these modules multiply in fp8."""
    for module, turned in matrices(layer):
        module.forward = partial(_forward, module, turned)


def _forward(module: Any, turned: bool, hidden: Tensor) -> Tensor:
    weight = module.weight.t() if turned else module.weight
    product: Tensor = Product.apply(hidden.flatten(0, -2), weight)  # type: ignore[no-untyped-call]
    product = product.reshape(*hidden.shape[:-1], -1)
    return product if module.bias is None else product + module.bias


class Product(torch.autograd.Function):
    """The product [n, m] of inputs [n, k] and the transposed weight [m, k], both in bf16."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor) -> Tensor:
        left, right = scaled(inputs, FORWARD), scaled(weight, FORWARD)
        ctx.save_for_backward(*left, *right)
        return times(left, right, fast=True)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        inputs, of_inputs, weight, of_weight = ctx.saved_tensors
        values, scale = scaled(gradient, BACKWARD)
        to_inputs = times((values, scale), (weight.t(), of_weight))
        return to_inputs, times((values.t(), scale), (inputs.t(), of_inputs))
