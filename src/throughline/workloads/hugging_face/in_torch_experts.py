"""A mixture of experts in PyTorch: every token is computed by the experts that it chooses, and none is dropped.

The tokens are sorted by their experts, so that each expert multiplies one block of rows. On a GPU one grouped product
does this for all experts, and its shapes do not depend on the routing, so nothing waits for the device.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import gelu, grouped_mm, linear, relu, silu

from throughline.workloads.hugging_face.architecture import Experts, Layer

ALIGNED_BYTES = 16
"""PyTorch's grouped product needs rows that begin at multiples of so many bytes."""


def activated(gate: Tensor, kind: str) -> Tensor:
    if kind == "silu":
        return silu(gate)
    return relu(gate) if kind == "relu" else gelu(gate, approximate="tanh" if kind == "gelu_tanh" else "none")


def mixed(hidden: Tensor, own: dict[str, Tensor], layer: Layer, experts: Experts) -> Tensor:
    """Return what the experts make of hidden [N, H]: the sum over the chosen experts, times their weights."""
    weights, chosen = routed(hidden, own, experts)
    numbers, order = chosen.flatten().sort(stable=True)
    ends = torch.searchsorted(numbers, torch.arange(experts.count, device=numbers.device), right=True)
    rows = hidden.index_select(0, order // experts.chosen)
    of_experts = _clamped if experts.limit is not None else _gated
    results = of_experts(rows, own, layer, experts, numbers, ends.to(torch.int32))
    back = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))
    each = results.index_select(0, back).view(*chosen.shape, -1)
    total = (each * weights[..., None].to(each.dtype)).sum(1)
    if experts.shared:
        total = total + _shared(hidden, own, layer)
    return total


def routed(hidden: Tensor, own: dict[str, Tensor], experts: Experts) -> tuple[Tensor, Tensor]:
    """Return the weights [N, chosen] and the numbers [N, chosen] of each token's experts. Probabilities have at least
    32 bits."""
    if experts.limit is not None:  # gpt_oss: a softmax over the chosen ones only
        router, bias = own["mlp.router.weight"], own["mlp.router.bias"]
        scores, chosen = linear(hidden, router.to(hidden.dtype), bias.to(hidden.dtype)).topk(experts.chosen)
        return wide(scores).softmax(-1), chosen
    scores = linear(hidden, own["mlp.gate.weight"].to(hidden.dtype))
    weights, chosen = wide(scores).softmax(-1).topk(experts.chosen)
    return (weights / weights.sum(-1, keepdim=True) if experts.renormalised else weights), chosen


def wide(tensor: Tensor) -> Tensor:
    """Return the tensor in fp32, or in its own type if that is wider."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def _gated(
    rows: Tensor, own: dict[str, Tensor], layer: Layer, experts: Experts, numbers: Tensor, ends: Tensor
) -> Tensor:
    both, down = (own[f"mlp.experts.{name}_proj"].to(rows.dtype).transpose(1, 2) for name in ("gate_up", "down"))
    gate, up = grouped(rows, both, ends).chunk(2, -1)
    return grouped(activated(gate, layer.activation) * up, down, ends)


def _clamped(
    rows: Tensor, own: dict[str, Tensor], layer: Layer, experts: Experts, numbers: Tensor, ends: Tensor
) -> Tensor:
    """The experts of gpt_oss: biases, gate and up in turn, both clamped, and one is added to up."""
    kind, limit = rows.dtype, experts.limit
    both, down = (own[f"mlp.experts.{name}_proj"].to(kind) for name in ("gate_up", "down"))
    biases = [own[f"mlp.experts.{name}_proj_bias"].to(kind).index_select(0, numbers) for name in ("gate_up", "down")]
    pairs = grouped(rows, both, ends) + biases[0]
    gate, up = pairs[:, ::2].clamp(max=limit), pairs[:, 1::2].clamp(min=-(limit or 0.0), max=limit)
    return grouped((up + 1) * gate * torch.sigmoid(gate * experts.alpha), down, ends) + biases[1]


def _shared(hidden: Tensor, own: dict[str, Tensor], layer: Layer) -> Tensor:
    kind = hidden.dtype
    gate, up, down = (own[f"mlp.shared_expert.{name}_proj.weight"].to(kind) for name in ("gate", "up", "down"))
    share = torch.sigmoid(linear(hidden, own["mlp.shared_expert_gate.weight"].to(kind)))
    return share * linear(activated(linear(hidden, gate), layer.activation) * linear(hidden, up), down)


def grouped(rows: Tensor, matrices: Tensor, ends: Tensor) -> Tensor:
    """Return rows [M, K], which are sorted by groups, times the matrix [K, N] of their group in matrices [G, K, N].

    `ends` [G] are the ends of the groups.
    """
    aligned = all(size * rows.element_size() % ALIGNED_BYTES == 0 for size in matrices.shape[1:])
    if rows.dtype != torch.float64 and aligned:
        return grouped_mm(rows, matrices, offs=ends)
    starts = [0, *ends.tolist()]
    parts = [rows[begin:end] @ matrix for begin, end, matrix in zip(starts, starts[1:], matrices, strict=False)]
    return torch.cat(parts)
