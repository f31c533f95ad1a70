"""The products of a decoder's layers in fp8. Everything else stays in bf16, and the weights in fp32.

The recipes are those of torchao, which torchtitan trains with. `tensorwise`: a scale for each operand, e4m3 forward,
and e5m2 for the gradients of results. `rowwise`: a scale for each row of an operand, a power of two, and e4m3 for all.
The backward pass casts inputs and weights again: so it needs them only as they are, and ranks that gather the weights
of a layer for each pass keep none of them between the passes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from throughline.spec import Options
from throughline.workloads import Unsupported
from throughline.workloads.hugging_face.architecture import Architecture
from throughline.workloads.in_torch_fp8 import ALIGNED, BACKWARD, FORWARD, Scaled, scaled, scaled_by_row, times

_REST = "; scales from the largest values, computed in every pass; the head, attention and all else in bf16"
WORDS = {
    "tensorwise": f"fp8, tensorwise: e4m3 forward, e5m2 for gradients of results, a scale for each operand{_REST}",
    "rowwise": f"fp8, rowwise: e4m3 for all, a scale for each row of an operand, a power of two{_REST}",
}
"""Map each value of `options.fp8_scaling` to words for the products of the layers."""


class Product(torch.autograd.Function):
    """hidden [n, k] times transposed matrices [m, k] that lie side by side, which gives [n, sum of m] in bf16."""

    @staticmethod
    def forward(ctx: Any, by_rows: bool, hidden: Tensor, *matrices: Tensor) -> Tensor:
        ctx.save_for_backward(hidden, *matrices)
        ctx.by_rows = by_rows
        cast = scaled_by_row if by_rows else scaled
        return times(cast(hidden, FORWARD), cast(_whole(matrices), FORWARD), fast=True)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        hidden, *matrices = ctx.saved_tensors
        by_rows = ctx.by_rows
        if by_rows:
            rows, columns = scaled_by_row(gradient, FORWARD), scaled_by_row(gradient.t(), FORWARD)
        else:
            rows = scaled(gradient, BACKWARD)
            columns = rows[0].t(), rows[1]
        to_hidden = times(rows, _transposed(_whole(matrices), by_rows), fast=by_rows)
        whole = times(columns, _transposed(hidden, by_rows), fast=by_rows)
        return None, to_hidden, *torch.split(whole, [len(matrix) for matrix in matrices])


def _whole(matrices: list[Tensor] | tuple[Tensor, ...]) -> Tensor:
    return matrices[0] if len(matrices) == 1 else torch.cat(tuple(matrices))


def _transposed(values: Tensor, by_rows: bool) -> Scaled:
    """Return the transposed values in e4m3."""
    if by_rows:
        return scaled_by_row(values.t(), FORWARD)
    cast, scale = scaled(values, FORWARD)
    return cast.t(), scale


PRODUCT: Callable[..., Tensor] = Product.apply


def product(hidden: Tensor, matrices: list[Tensor], recipe: str) -> Tensor:
    """Return hidden [..., k] times the transposed matrices, side by side."""
    with torch.autocast(hidden.device.type, enabled=False):  # a CPU computes these products with others
        return PRODUCT(recipe == "rowwise", hidden.flatten(0, -2), *matrices).view(*hidden.shape[:-1], -1)


def with_products(made: Architecture, tokens: int, options: Options) -> Architecture:
    """Return the architecture with its layers' products in fp8; raise Unsupported if they cannot be."""
    if any(layer.experts for layer in made.layers):
        raise Unsupported("the products of experts are not written in fp8: use bf16")
    ranks, sizes = options.tensor_parallel, {f"batch x sequence_length = {tokens}": tokens}
    for layer in made.layers:
        query, key, inner = (size // ranks for size in (layer.query_width, layer.key_width, layer.intermediate))
        sizes |= {f"hidden_size = {layer.hidden}": layer.hidden, f"queries of {query}": query, f"keys of {key}": key}
        sizes[f"a feed-forward part of {inner}"] = inner
    for name, size in sizes.items():
        if size % ALIGNED:
            raise Unsupported(f"products in fp8 need rows and columns in multiples of {ALIGNED}: {name}")
    in_fp8 = {layer: replace(layer, fp8=options.fp8_scaling) for layer in made.layers}  # equal layers stay one
    return replace(made, layers=tuple(in_fp8[layer] for layer in made.layers))
