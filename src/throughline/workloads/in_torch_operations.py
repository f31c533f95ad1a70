"""Operations in PyTorch that the implementations of several workloads use. None depends on a workload.

All are functions of tensors, so that a compiler sees through them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import dropout, embedding, linear, scaled_dot_product_attention

# torch 2.11 and 2.12 have these two under other names, which torch 2.13 warns about.
all_gather_single = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter_single = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor

CACHED = 2**19
"""How many scores a CPU computes at a time, so that they stay in its caches."""


def attended(
    query: Tensor, key: Tensor, value: Tensor, masked: Tensor | None, p: float, causal: bool = False
) -> Tensor:
    """Attention; query, key and value are [B, heads, S, width]. With `causal`, a position sees no later position.

    With dropout on a CPU, PyTorch's function would fall back to fp32, so we compute the products ourselves.
    """
    if p == 0 or query.device.type != "cpu":
        return scaled_dot_product_attention(query, key, value, masked, p, causal)
    if causal:
        masked = query.new_full((query.shape[-2],) * 2, float("-inf")).triu_(1)
    scores = (query * query.shape[-1] ** -0.5) @ key.transpose(-1, -2)
    return dropped((scores if masked is None else scores + masked).softmax(-1), p) @ value


def projected(hidden: Tensor, layers: Sequence[nn.Linear], width: int) -> Tensor:
    """Return what each of these layers makes of `hidden`, by heads: [..., layers, heads, width]. It is one product."""
    weight, bias = (torch.cat([getattr(layer, name) for layer in layers]) for name in ("weight", "bias"))
    return linear(hidden, weight, bias).view(*hidden.shape[:-1], len(layers), -1, width)


def dropped(hidden: Tensor, p: float) -> Tensor:
    """Dropout. PyTorch makes one draw for each element. On a CPU we use one draw for four elements; this rounds p to
    1 / 65,536."""
    if p == 0 or hidden.device.type != "cpu" or torch.compiler.is_compiling():
        return dropout(hidden, p)
    below = round(p * 2**16)
    words = torch.empty(-(-hidden.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    draws = words.view(torch.int16)[: hidden.numel()].view(hidden.shape)
    return hidden * (draws >= below - 2**15).to(hidden.dtype).mul_(2**16 / (2**16 - below))


class Shared(torch.autograd.Function):
    """Look up rows of a table of embeddings [B, S, H], and convert the whole table to another type.

    The backward pass adds both gradients in one tensor. PyTorch itself would make a table of zeros for the gradient of
    the rows, and then add the two tables.
    """

    @staticmethod
    def forward(ctx: Any, table: Tensor, ids: Tensor, kind: torch.dtype) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(ids)
        return embedding(ids, table), table.to(kind, copy=True)

    @staticmethod
    def backward(ctx: Any, rows: Tensor, table: Tensor) -> tuple[Tensor, None, None]:
        whole = table.to(rows.dtype, copy=True)
        return whole.index_add_(0, ctx.saved_tensors[0].flatten(), rows.flatten(0, -2)), None, None


class Mean(torch.autograd.Function):
    """Weighted mean of the cross entropies of scores [N, V] on a CPU, some rows at a time: they stay in its caches.

    The forward pass keeps softmax - label in the type of the scores. The backward pass weights and scales the rows in
    fp32, so that a loss scaler preserves small values.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
        shares = (weights / weights.sum().clamp(min=1))[:, None]
        kept, means = torch.empty_like(scores), []
        for some, label, share, result in by_rows(scores, labels[:, None], shares, kept):
            logs = some.log_softmax(-1, dtype=weights.dtype)
            means.append((logs.gather(1, label) * share).sum())
            result.copy_(logs.exp_().scatter_add_(1, label, torch.full_like(share, -1)))
        ctx.save_for_backward(kept, shares)
        return -torch.stack(means).sum()

    @staticmethod
    def backward(ctx: Any, scale: Tensor) -> tuple[Tensor, None, None]:
        kept, shares = ctx.saved_tensors
        gradient = torch.empty_like(kept)
        for some, share, result in by_rows(kept, shares * scale, gradient):
            result.copy_(some * share)
        return gradient, None, None


def by_rows(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Split all tensors into parts of some rows. The first tensor is the widest."""
    rows = max(1, CACHED // tensors[0].shape[1])
    return zip(*(torch.split(tensor, rows) for tensor in tensors), strict=True)


SHARED: Callable[..., tuple[Tensor, Tensor]] = Shared.apply
MEAN: Callable[[Tensor, Tensor, Tensor], Tensor] = Mean.apply
