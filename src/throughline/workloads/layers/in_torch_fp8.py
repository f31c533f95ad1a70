"""Products with a layer's matrices in fp8, forward and backward. Everything else stays in bf16.

The recipe is the usual one: e4m3 forward, and e5m2 for the gradients of outputs. Each tensor has a scale, which maps
its largest value to the largest value of the type. Every call computes the scales again. The casts are separate
operations, and their time counts.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

FORWARD, BACKWARD = torch.float8_e4m3fn, torch.float8_e5m2


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
        return _times(left, right, fast=True)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        inputs, of_inputs, weight, of_weight = ctx.saved_tensors
        values, scale = scaled(gradient, BACKWARD)
        to_inputs = _times((values, scale), (weight.t(), of_weight))
        return to_inputs, _times((values.t(), scale), (inputs.t(), of_inputs))


def scaled(values: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return the values in fp8, and the scale: multiply by it to get the values back."""
    largest = values.abs().amax().float().clamp(min=1e-12)
    return (values * (torch.finfo(dtype).max / largest)).to(dtype), largest / torch.finfo(dtype).max


def _times(left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor], fast: bool = False) -> Tensor:
    """Return left [n, k] times the transposed right [m, k]. The hardware needs both contiguous along k."""
    (a, of_a), (b, of_b) = left, right
    call: Any = torch._scaled_mm
    product: Tensor = call(
        a.contiguous(), b.contiguous().t(), of_a, of_b, out_dtype=torch.bfloat16, use_fast_accum=fast
    )
    return product
