"""A mixture of experts in PyTorch: every token is computed by the experts that it chooses, and none is dropped.

The tokens are sorted by their experts, so that each expert multiplies one block of rows. On a GPU one grouped product
does this for all experts, and its shapes do not depend on the routing, so nothing waits for the device.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import gelu, grouped_mm, linear, relu, silu

from throughline.workloads.hugging_face.architecture import Experts, Layer
from throughline.workloads.hugging_face.in_torch_expert_parallel import elsewhere, inverse
from throughline.workloads.in_torch_tensor_parallel import TensorGroup

ALIGNED_BYTES = 16
"""PyTorch's grouped product needs rows that begin at multiples of so many bytes."""


def activated(gate: Tensor, kind: str) -> Tensor:
    if kind == "silu":
        return silu(gate)
    return relu(gate) if kind == "relu" else gelu(gate, approximate="tanh" if kind == "gelu_tanh" else "none")


def mixed(
    hidden: Tensor, own: dict[str, Tensor], layer: Layer, experts: Experts, holders: TensorGroup | None = None
) -> Tensor:
    """Return what the experts make of hidden [N, H]: the sum over the chosen experts, times their weights.

    If ranks share a replica, each has some columns of every expert, and returns its share of the sum. holders: the
    ranks that each hold a part of the experts; None: this rank has all of them.
    """
    weights, chosen = routed(hidden, own, experts)
    numbers, order = chosen.flatten().sort(stable=True)
    ends = torch.searchsorted(numbers, torch.arange(experts.count, device=numbers.device), right=True)
    rows = hidden.index_select(0, order // experts.top_k)
    compute = partial(_clamped if experts.limit is not None else _gated, own, layer, experts)
    ends = ends.to(torch.int32)
    results = elsewhere(rows, ends, holders, compute) if holders else compute(rows, numbers, ends)
    each = results.index_select(0, inverse(order)).view(*chosen.shape, -1)
    total = (each * weights[..., None].to(each.dtype)).sum(1)
    if experts.shared:
        total = total + _shared(hidden, own, layer)
    return total


def routed(hidden: Tensor, own: dict[str, Tensor], experts: Experts) -> tuple[Tensor, Tensor]:
    """Return the weights [N, chosen] and the numbers [N, chosen] of each token's experts. Probabilities have at least
    32 bits."""
    if experts.limit is not None:  # gpt_oss: a softmax over the chosen ones only
        router, bias = own["mlp.router.weight"], own["mlp.router.bias"]
        scores, chosen = linear(hidden, router.to(hidden.dtype), bias.to(hidden.dtype)).topk(experts.top_k)
        return wide(scores).softmax(-1), chosen
    scores = linear(hidden, own["mlp.gate.weight"].to(hidden.dtype))
    weights, chosen = wide(scores).softmax(-1).topk(experts.top_k)
    return (weights / weights.sum(-1, keepdim=True) if experts.renormalised else weights), chosen


def wide(tensor: Tensor) -> Tensor:
    """Return the tensor in fp32, or in its own type if that is wider."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def _gated(
    own: dict[str, Tensor], layer: Layer, experts: Experts, rows: Tensor, numbers: Tensor, ends: Tensor
) -> Tensor:
    both, down = (own[f"mlp.experts.{name}_proj"].to(rows.dtype).transpose(1, 2) for name in ("gate_up", "down"))
    gate, up = grouped(rows, both, ends).chunk(2, -1)
    return grouped(activated(gate, layer.activation) * up, down, ends)


def _clamped(
    own: dict[str, Tensor], layer: Layer, experts: Experts, rows: Tensor, numbers: Tensor, ends: Tensor
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

    `ends` [G] are the ends of the groups. PyTorch's compiler knows its grouped product in bf16 only, so for all other
    types there is an operation of our own, which the compiler takes as a whole.
    """
    if rows.dtype == torch.bfloat16 and _aligned(rows, matrices):
        return grouped_mm(rows, matrices, offs=ends)
    product: Tensor = GROUPED(rows, matrices, ends)
    return product


@torch.library.custom_op("throughline::grouped", mutates_args=())
def _grouped(rows: Tensor, matrices: Tensor, ends: Tensor) -> Tensor:
    if rows.dtype != torch.float64 and _aligned(rows, matrices):
        return grouped_mm(rows, matrices, offs=ends)
    return torch.cat([part @ matrix for part, matrix in zip(_parts(rows, ends), matrices, strict=True)])


@torch.library.custom_op("throughline::grouped_gradient", mutates_args=())
def _gradient(rows: Tensor, gradient: Tensor, ends: Tensor) -> Tensor:
    """Return the gradient of the matrices [G, K, N], from the rows [M, K] and the gradient [M, N] of the product."""
    if rows.dtype != torch.float64 and _aligned(rows, gradient):
        return grouped_mm(rows.t(), gradient, offs=ends)
    pairs = zip(_parts(rows, ends), _parts(gradient, ends), strict=True)
    return torch.stack([part.t() @ of_product for part, of_product in pairs])


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
    rows, matrices, ends = ctx.saved_tensors
    gradient = gradient.contiguous()
    return GROUPED(gradient, matrices.transpose(1, 2), ends), GRADIENT(rows, gradient, ends), None


GROUPED: Any = _grouped
GRADIENT: Any = _gradient
GROUPED.register_fake(lambda rows, matrices, ends: rows.new_empty(len(rows), matrices.shape[2]))
GRADIENT.register_fake(lambda rows, gradient, ends: rows.new_empty(len(ends), rows.shape[1], gradient.shape[1]))
GROUPED.register_autograd(_backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs))


def _aligned(rows: Tensor, others: Tensor) -> bool:
    """True if all rows of both tensors begin where PyTorch's grouped product needs it."""
    sizes = (rows.shape[-1], *others.shape[1:])
    return all(size * rows.element_size() % ALIGNED_BYTES == 0 for size in sizes)


def _parts(rows: Tensor, ends: Tensor) -> list[Tensor]:
    starts = [0, *ends.tolist()]
    return [rows[begin:end] for begin, end in pairwise(starts)]
