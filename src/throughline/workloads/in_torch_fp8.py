"""Products in fp8 in PyTorch: operands in 8 bits with scales, which every call computes again (dynamic scaling).

The casts are operations of their own, and their time counts. The hardware multiplies rows and columns in multiples of
ALIGNED.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

FORWARD, BACKWARD = torch.float8_e4m3fn, torch.float8_e5m2
ALIGNED = 16
LEAST = 1e-12
"""The least largest value: a tensor of zeros has a scale as well."""

Scaled = tuple[Tensor, Tensor]
"""Values in fp8, and their scales: multiply by them to get the values back."""


def scaled(values: Tensor, dtype: torch.dtype) -> Scaled:
    """Return the values in fp8 with one scale, which maps the largest value to the largest value of the type."""
    largest = values.abs().amax().float().clamp(min=LEAST)
    return (values * (torch.finfo(dtype).max / largest)).to(dtype), largest / torch.finfo(dtype).max


def scaled_by_row(values: Tensor, dtype: torch.dtype) -> Scaled:
    """Return values [n, k] in fp8 with a scale for each row [n, 1]. Scales are powers of two, so they round nothing."""
    largest = values.abs().amax(1, keepdim=True).float().clamp(min=LEAST)
    factors = torch.exp2(torch.floor(torch.log2(torch.finfo(dtype).max / largest)))
    return (values.float() * factors).to(dtype), factors.reciprocal()


def times(left: Scaled, right: Scaled, fast: bool = False) -> Tensor:
    """Return left [n, k] times the transposed right [m, k] in bf16. The hardware needs both contiguous along k."""
    (a, of_a), (b, of_b) = left, right
    call: Any = torch._scaled_mm
    product: Tensor = call(
        a.contiguous(), b.contiguous().t(), of_a, of_b.t(), out_dtype=torch.bfloat16, use_fast_accum=fast
    )
    return product
