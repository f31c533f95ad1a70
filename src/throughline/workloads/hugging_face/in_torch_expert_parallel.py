"""Expert parallelism in PyTorch: ranks share the experts of every layer, and tokens travel to them (Lepikhin et al.
2021, GShard).

Every rank has its own samples. It sends each token to the ranks that hold the experts which the token chose, and gets
the results back: two exchanges of rows in the forward pass, and two in the backward pass. No token is dropped, so the
ranks first tell each other how many rows they send, and a device waits once for these numbers in each layer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from throughline.workloads.in_torch_tensor_parallel import TensorGroup, sent

Compute = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Takes rows [M, H] that are sorted by their experts, the number of each row's expert [M], and the end of each expert's
rows [experts]. Returns the results [M, H]."""


@torch.compiler.disable  # type: ignore[untyped-decorator]
def elsewhere(rows: Tensor, ends: Tensor, ranks: TensorGroup, compute: Compute) -> Tensor:
    """Return what the experts of all ranks make of this rank's rows [M, H], which are sorted by their experts.

    `ends` [experts] are the ends of the experts' rows. Rank r of the N ranks holds the r-th of N equal parts of the
    experts. Their gradients become means over the N ranks, as if all ranks held them. A compiler leaves this function
    alone, because its shapes differ in every step.
    """
    counts = ends.diff(prepend=ends.new_zeros(1))
    arriving = torch.empty_like(counts)
    dist.all_to_all_single(arriving, counts, group=ranks.group)
    by_rank = torch.stack([counts, arriving]).view(2, ranks.size, -1)
    sizes, received = by_rank.sum(2).tolist()
    here: Tensor = EXCHANGED(rows, sizes, received, ranks.group, float(ranks.size))
    own = torch.arange(by_rank.shape[2], device=rows.device)
    numbers = own.repeat(ranks.size).repeat_interleave(arriving, output_size=len(here))
    numbers, order = numbers.sort(stable=True)
    own_ends = torch.searchsorted(numbers, own, right=True)
    results = compute(here.index_select(0, order), numbers, own_ends.to(ends.dtype))
    back: Tensor = EXCHANGED(results.index_select(0, inverse(order)), received, sizes, ranks.group, 1 / ranks.size)
    return back


def inverse(order: Tensor) -> Tensor:
    """Return the permutation that undoes `order`."""
    return torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))


class Exchanged(torch.autograd.Function):
    """Rows that all ranks send to each other. In the backward pass their gradients travel back, times `factor`."""

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, sizes: list[int], received: list[int], group: dist.ProcessGroup, factor: float
    ) -> Tensor:
        ctx.back, ctx.factor = (received, sizes, group), factor
        return sent(rows.contiguous(), sizes, received, group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return sent(gradient * ctx.factor, *ctx.back), None, None, None, None


EXCHANGED: Callable[..., Tensor] = Exchanged.apply
