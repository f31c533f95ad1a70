"""A mixture of experts in PyTorch: every token is computed by the experts that it takes, and none is dropped.

The tokens are sorted by their experts, so that each expert multiplies one block of rows. On a GPU one grouped product
does this for all experts, and its shapes do not depend on the routing, so nothing waits for the device.

With expert parallelism (Lepikhin et al. 2021, GShard), ranks share the experts of every layer. A rank sends each of its
tokens to the ranks that hold the token's experts, and gets the results back: two exchanges of rows in each pass. The
ranks first tell each other how many rows they send, and a device waits once for these numbers in each layer.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import gelu, grouped_mm, linear, relu, silu

from throughline.workloads.hugging_face.architecture import Experts, Layer
from throughline.workloads.in_torch_tensor_parallel import ALL_TO_ALL, TensorGroup, copied, gathered, scattered

ALIGNED_BYTES = 16
"""PyTorch's grouped product needs rows that begin at multiples of so many bytes."""


def activated(gate: Tensor, kind: str) -> Tensor:
    if kind == "silu":
        return silu(gate)
    return relu(gate) if kind == "relu" else gelu(gate, approximate="tanh" if kind == "gelu_tanh" else "none")


def wide(tensor: Tensor) -> Tensor:
    """Return the tensor in fp32, or in its own type if that is wider."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


class GatedExperts(nn.Module):
    """The weights of all experts, gate and up side by side. A call computes rows [M, H], which are sorted by their
    experts. numbers [M]: each row's expert. ends [experts]: the end of each expert's rows."""

    gate_up_proj: Tensor
    gate_up_proj_bias: Tensor
    down_proj: Tensor
    down_proj_bias: Tensor

    def __init__(self, layer: Layer, experts: Experts) -> None:
        super().__init__()
        self.activation, self.limit, self.alpha = layer.activation, experts.limit, experts.alpha
        for name, shape in experts.shapes(layer.hidden).items():
            if name.startswith("experts."):
                self.register_parameter(name.removeprefix("experts."), nn.Parameter(torch.empty(shape)))

    def forward(self, rows: Tensor, numbers: Tensor, ends: Tensor, ranks: TensorGroup | None = None) -> Tensor:
        both, down = (weight.to(rows.dtype).transpose(1, 2) for weight in (self.gate_up_proj, self.down_proj))
        gate, up = grouped(rows, both, ends).chunk(2, -1)
        return grouped(activated(gate, self.activation) * up, down, ends)


class ClampedExperts(GatedExperts):
    """The experts of gpt_oss: biases, gate and up in turn, both clamped, and 1 is added to up."""

    def forward(self, rows: Tensor, numbers: Tensor, ends: Tensor, ranks: TensorGroup | None = None) -> Tensor:
        kind, limit = rows.dtype, self.limit
        both, down = self.gate_up_proj.to(kind), self.down_proj.to(kind)
        down_bias = copied(self.down_proj_bias, ranks) / (ranks.size if ranks else 1)  # each rank adds its share
        biases = [bias.to(kind).index_select(0, numbers) for bias in (self.gate_up_proj_bias, down_bias)]
        pairs = grouped(rows, both, ends) + biases[0]
        gate, up = pairs[:, ::2].clamp(max=limit), pairs[:, 1::2].clamp(min=-(limit or 0.0), max=limit)
        return grouped((up + 1) * gate * torch.sigmoid(gate * self.alpha), down, ends) + biases[1]


class SharedExpert(nn.Module):
    """The expert that all tokens take."""

    def __init__(self, layer: Layer, width: int) -> None:
        super().__init__()
        self.activation = layer.activation
        self.gate_proj, self.up_proj = (nn.Linear(layer.hidden, width, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(width, layer.hidden, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        result: Tensor = self.down_proj(activated(self.gate_proj(hidden), self.activation) * self.up_proj(hidden))
        return result


class Mixture(nn.Module):
    """The sum of what a token's experts compute, times their weights.

    ranks: those that share a replica; each has some columns of every expert, and its rows of the states. holders: those
    that share the experts; each has some of them (expert parallelism). None: this rank has all.
    """

    ranks: TensorGroup | None = None
    holders: TensorGroup | None = None

    def __init__(self, layer: Layer, experts: Experts) -> None:
        super().__init__()
        self.sizes, softmax_last = experts, experts.limit is not None
        if softmax_last:
            self.router = nn.Linear(layer.hidden, experts.count)
        else:
            self.gate = nn.Linear(layer.hidden, experts.count, bias=False)
        self.experts = (ClampedExperts if softmax_last else GatedExperts)(layer, experts)
        if experts.shared:
            self.shared_expert_gate = nn.Linear(layer.hidden, 1, bias=False)
            self.shared_expert = SharedExpert(layer, experts.shared)

    def forward(self, hidden: Tensor) -> Tensor:
        if self.ranks:
            return scattered(self.mixed(gathered(hidden, self.ranks)), self.ranks)
        return self.mixed(hidden.flatten(0, -2)).view_as(hidden)

    def mixed(self, hidden: Tensor) -> Tensor:
        """Return the sum for hidden [N, H]; if ranks share a replica, this rank's share of it."""
        weights, chosen = self.routed(hidden)
        numbers, order = chosen.flatten().sort(stable=True)
        ends = torch.searchsorted(numbers, torch.arange(self.sizes.count, device=numbers.device), right=True)
        rows, ends = hidden.index_select(0, order // self.sizes.top_k), ends.to(torch.int32)
        if self.holders:
            results = dispatched(rows, ends, self.holders, self.experts)
        else:
            results = self.experts(rows, numbers, ends, self.ranks)
        each = results.index_select(0, inverse(order)).view(*chosen.shape, -1)
        total: Tensor = (each * weights[..., None].to(each.dtype)).sum(1, dtype=each.dtype)
        if self.sizes.shared:
            share = torch.sigmoid(linear(hidden, copied(self.shared_expert_gate.weight, self.ranks)))
            total = total + share * self.shared_expert(hidden)
        return total

    def routed(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weights [N, top_k] and the numbers [N, top_k] of each token's experts. Probabilities have at least
        32 bits."""
        if self.sizes.limit is not None:  # gpt_oss: a softmax over the chosen ones only
            weight, bias = copied(self.router.weight, self.ranks), copied(self.router.bias, self.ranks)
            scores, chosen = linear(hidden, weight, bias).topk(self.sizes.top_k)
            return wide(scores).softmax(-1), chosen
        scores = linear(hidden, copied(self.gate.weight, self.ranks))
        weights, chosen = wide(scores).softmax(-1).topk(self.sizes.top_k)
        return (weights / weights.sum(-1, keepdim=True) if self.sizes.renormalised else weights), chosen


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


@torch.compiler.disable  # type: ignore[untyped-decorator]
def dispatched(rows: Tensor, ends: Tensor, holders: TensorGroup, experts: Callable[..., Tensor]) -> Tensor:
    """Return what the experts of all holders compute of this rank's rows [M, H], which are sorted by their experts.

    `ends` [all experts] are the ends of the experts' rows. Rank r of the N holders has the r-th of N equal parts of the
    experts. Their gradients become means over the N ranks, as if all ranks had them. A compiler leaves this function
    alone, because its shapes differ in every step.
    """
    counts = ends.diff(prepend=ends.new_zeros(1))
    arriving = torch.empty_like(counts)
    dist.all_to_all_single(arriving, counts, group=holders.group)
    by_rank = torch.stack([counts, arriving]).view(2, holders.size, -1)
    sizes, received = by_rank.sum(2).tolist()
    here: Tensor = ALL_TO_ALL(rows, sizes, received, holders.group, float(holders.size))
    local = torch.arange(by_rank.shape[2], device=rows.device)
    numbers = local.repeat(holders.size).repeat_interleave(arriving, output_size=len(here))
    numbers, order = numbers.sort(stable=True)
    local_ends = torch.searchsorted(numbers, local, right=True)
    results = experts(here.index_select(0, order), numbers, local_ends.to(ends.dtype))
    back: Tensor = ALL_TO_ALL(results.index_select(0, inverse(order)), received, sizes, holders.group, 1 / holders.size)
    return back


def inverse(order: Tensor) -> Tensor:
    """Return the permutation that undoes `order`."""
    return torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))
