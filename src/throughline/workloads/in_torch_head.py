"""The loss of a vocabulary head in PyTorch, and its gradients, without the scores of all positions in memory.

The scores of 32 samples of 1,024 tokens over GPT-2's vocabulary are 3.3 GB in 16-bit types and 6.6 GB in fp32, and
their gradients as much again. So the forward pass computes the scores of some positions at a time, their loss and its
gradients, and drops the scores. No FLOPs are added.

Ranks that share a replica keep their scores (`TensorGroup.cross_entropy`), because each part of the positions would
need an exchange of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

ROWS = 2048
"""The positions whose scores are in memory at a time. Fewer would make the matrix products less efficient."""
MAGNIFIED = 2.0**10
"""The gradients of scores are kept times this number, so that fp16 holds the small ones. fp32 takes it out again."""

Errors = Callable[[Tensor, Tensor, torch.dtype], tuple[Tensor, Tensor]]


def errors(scores: Tensor, labels: Tensor, kind: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return the cross entropies [n], computed in `kind`, and their gradients (softmax - label) x MAGNIFIED.

    scores and gradients are [n, V] and of the scores' type; labels [n].
    """
    places = labels[:, None]
    if torch.compiler.is_compiling():  # one kernel, which writes nothing but the result
        wide = scores.to(kind)
        sums = wide.logsumexp(1, keepdim=True)
        softmax = (wide - sums).exp()
        here = torch.arange(scores.shape[1], device=scores.device) == places
        gradients = (torch.where(here, softmax - 1, softmax) * MAGNIFIED).to(scores.dtype)
        return (sums - wide.gather(1, places))[:, 0], gradients
    logs = torch.log_softmax(scores, 1, dtype=kind)  # casts and adds up in one kernel
    each = -logs.gather(1, places)[:, 0]
    softmax = logs.exp_().scatter_add_(1, places, logs.new_full(places.shape, -1))
    return each, torch.mul(softmax, MAGNIFIED, out=softmax if kind == scores.dtype else torch.empty_like(scores))


class HeadLoss(torch.autograd.Function):
    """Mean of the cross entropies, in `kind`, of hidden states [N, H] times a table [V, H], with labels [N].

    `part` is the function `errors`, or this function compiled. The gradient of the table is summed in `kind`. The
    backward pass scales both gradients in `kind`, so that a loss scaler preserves small values.
    """

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, table: Tensor, labels: Tensor, kind: torch.dtype, part: Errors) -> Tensor:
        of_hidden, of_table = torch.empty_like(hidden), torch.zeros_like(table, dtype=kind)
        losses = []
        parts = (torch.split(tensor, ROWS) for tensor in (hidden, labels, of_hidden))
        for some, label, result in zip(*parts, strict=True):
            each, gradients = part(some @ table.t(), label, kind)
            losses.append(each)
            torch.mm(gradients, table, out=result)
            add_product(of_table, gradients.t(), some)
        ctx.save_for_backward(of_hidden, of_table)
        return torch.cat(losses).mean()

    @staticmethod
    def backward(ctx: Any, scale: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        of_hidden, of_table = ctx.saved_tensors
        share = scale / (MAGNIFIED * len(of_hidden))
        half = of_hidden.dtype
        return (of_hidden.to(share.dtype) * share).to(half), (of_table * share).to(half), None, None, None


def add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """Add left @ right to `total`, which may have a wider type. On a GPU the product itself adds up in this type."""
    if left.dtype == total.dtype:
        torch.addmm(total, left, right, out=total)
    elif total.is_cuda:
        torch.addmm(total, left, right, out_dtype=total.dtype, out=total)
    else:
        total += left @ right


HEAD_LOSS: Callable[[Tensor, Tensor, Tensor, torch.dtype, Errors], Tensor] = HeadLoss.apply
ERRORS: Any = errors
"""The function as a part of a network, whose other parts return one tensor."""
