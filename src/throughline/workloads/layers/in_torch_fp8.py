"""Products of a layer's matrices in fp8, forward and backward; all else stays in bf16.

The recipe is the usual one: e4m3 forward, e5m2 for the gradients of outputs, for each tensor a scale that maps its
largest value onto the largest of its type, taken anew in every call. Casts are calls of their own, and count.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

FORWARD, BACKWARD = torch.float8_e4m3fn, torch.float8_e5m2


def matrices(layer: nn.Module) -> list[tuple[nn.Module, bool]]:
    """The modules that multiply by a weight, and whether it lies with a row for each input, as GPT-2's do."""
    from transformers.pytorch_utils import Conv1D

    kinds = (module for module in layer.modules() if isinstance(module, nn.Linear | Conv1D))
    return [(module, isinstance(module, Conv1D)) for module in kinds]


def use(layer: nn.Module) -> None:
    """Have all of them multiply in fp8."""
    for module, turned in matrices(layer):
        module.forward = partial(_forward, module, turned)


def _forward(module: Any, turned: bool, hidden: Tensor) -> Tensor:
    weight = module.weight.t() if turned else module.weight
    product: Tensor = Product.apply(hidden.flatten(0, -2), weight)  # type: ignore[no-untyped-call]
    product = product.reshape(*hidden.shape[:-1], -1)
    return product if module.bias is None else product + module.bias


class Product(torch.autograd.Function):
    """inputs [n, k] and weight [m, k] in bf16 -> their product [n, m]."""

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
    """The values in fp8, and what to multiply them by."""
    largest = values.abs().amax().float().clamp(min=1e-12)
    return (values * (torch.finfo(dtype).max / largest)).to(dtype), largest / torch.finfo(dtype).max


def _times(left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor], fast: bool = False) -> Tensor:
    """left [n, k] times right [m, k] transposed; the units want both with neighbours along k."""
    (a, of_a), (b, of_b) = left, right
    call: Any = torch._scaled_mm
    product: Tensor = call(
        a.contiguous(), b.contiguous().t(), of_a, of_b, out_dtype=torch.bfloat16, use_fast_accum=fast
    )
    return product
