"""Operations in PyTorch that several workloads' forms are made of. None knows a workload.

All are functions of tensors, so that a compiler sees through them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import dropout, embedding, layer_norm, scaled_dot_product_attention

from throughline.workloads import Arrays

CACHED = 2**19
"""Scores that a core works on at a time."""


def pin_attention(kind: str, precision: str, dropout: float, masked: bool) -> str:
    """Have PyTorch compute attention by one kernel in this process; returns which.

    FlashAttention is for 16 bits and knows no mask: where some batches are `masked`, as those with padding are, the
    memory-efficient kernel serves all. PyTorch itself would choose anew for each batch.
    """
    half = precision in ("fp16", "bf16")
    chosen = "flash" if kind == "cpu" or (half and not masked) else "mem_efficient"
    for name in ("flash", "mem_efficient", "math", "cudnn"):
        getattr(torch.backends.cuda, f"enable_{name}_sdp")(name == chosen)
    if kind == "cpu":
        return "products and softmax by themselves" if dropout else "PyTorch's flash kernel for CPUs"
    if chosen == "flash":
        return "FlashAttention"
    new = torch.cuda.get_device_capability() >= (8, 0)
    return "memory-efficient kernel" + (", each product as three in TF32" if new and not half else "")


def versions() -> dict[str, str | None]:
    """Versions of what the form is made of, beside the library: nothing."""
    return {}


def weights(network: torch.nn.Module) -> Arrays:
    """The weights by the names that every framework's form knows: those of this one."""
    return {name: parameter.detach().cpu().numpy() for name, parameter in network.named_parameters()}


def load(network: torch.nn.Module, weights: Arrays) -> None:
    """Set the weights, in place; all of them and no other."""
    parameters = dict(network.named_parameters())
    if parameters.keys() != weights.keys():
        raise ValueError(f"weights of another network: {sorted(parameters.keys() ^ weights.keys())}")
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(torch.from_numpy(weights[name]))


def attended(
    query: Tensor, key: Tensor, value: Tensor, masked: Tensor | None, p: float, causal: bool = False
) -> Tensor:
    """Attention of [B, heads, S, width] each; `causal`: a position sees none behind it.

    PyTorch's on a CPU has no dropout of its own and falls back to fp32.
    """
    if p == 0 or query.device.type != "cpu":
        return scaled_dot_product_attention(query, key, value, masked, p, causal)
    if causal:
        masked = query.new_full((query.shape[-2],) * 2, float("-inf")).triu_(1)
    scores = (query * query.shape[-1] ** -0.5) @ key.transpose(-1, -2)
    return dropped((scores if masked is None else scores + masked).softmax(-1), p) @ value


def normed(hidden: Tensor, weight: Tensor, bias: Tensor, epsilon: float) -> Tensor:
    """Layer norm, computed in the weights' type; on a CPU the kernel does that by itself."""
    inside = hidden if hidden.device.type == "cpu" else hidden.to(weight.dtype)
    return layer_norm(inside, hidden.shape[-1:], weight, bias, epsilon).to(hidden.dtype)


def dropped(hidden: Tensor, p: float) -> Tensor:
    """Dropout. On a CPU PyTorch draws each element by itself: there four come from one draw, p to 1 / 65,536."""
    if p == 0 or hidden.device.type != "cpu" or torch.compiler.is_compiling():
        return dropout(hidden, p)
    below = round(p * 2**16)
    words = torch.empty(-(-hidden.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    draws = words.view(torch.int16)[: hidden.numel()].view(hidden.shape)
    return hidden * (draws >= below - 2**15).to(hidden.dtype).mul_(2**16 / (2**16 - below))


class Shared(torch.autograd.Function):
    """Rows of a table of embeddings [B, S, H], and all of them in another type; both gradients meet in one tensor.

    PyTorch's own would fill a table with zeros for the rows' gradient, and add the two tables.
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

    The forward pass keeps softmax - label in the scores' type; rows are weighted and scaled in the backward pass, in
    fp32, so that a loss scaler keeps what is small.
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
    """Parts of some rows each; the first tensor is the widest."""
    rows = max(1, CACHED // tensors[0].shape[1])
    return zip(*(torch.split(tensor, rows) for tensor in tensors), strict=True)


SHARED: Callable[[Tensor, Tensor, torch.dtype], tuple[Tensor, Tensor]] = Shared.apply
MEAN: Callable[[Tensor, Tensor, Tensor], Tensor] = Mean.apply
