"""The classifier with a margin, in PyTorch: whole on every rank, or split over the ranks by classes.

Where it is split, every rank gets the embeddings of all ranks, computes the scores of its own classes, and the ranks
exchange two numbers a face for the softmax over all classes (the arrangement of An et al. 2021, partial FC).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear, normalize

from throughline.workloads.faces import MARGINS, SCALE, Parameters
from throughline.workloads.in_torch_tensor_parallel import CROSS_ENTROPY, TensorGroup

INITIAL = 0.01
"""Standard deviation of a class's first vector."""
BELOW_1 = 1 - 1e-7
"""The largest cosine whose angle has a finite gradient."""


class Classifier(nn.Module):
    """`forward` takes embeddings [B, D] and labels [B], and returns the mean loss: of all ranks where they split it."""

    ranks: TensorGroup | None = None

    def __init__(self, given: Parameters, embedding: int) -> None:
        super().__init__()
        self.given, self.first = given, 0
        self.weight = nn.Parameter(torch.empty(given.classes, embedding).normal_(0, INITIAL))

    def spread(self, ranks: TensorGroup) -> None:
        """Keep this rank's classes."""
        self.ranks, self.first = ranks, self.starts(ranks)[ranks.place]
        self.weight.data = self.part(self.weight.data).clone()

    def starts(self, ranks: TensorGroup) -> list[int]:
        """The first class of each rank, and the number of all; ranks have as many classes as others, or one less."""
        return [self.given.classes * place // ranks.size for place in range(ranks.size + 1)]

    def part(self, whole: Any) -> Any:
        """This rank's classes of a whole weight."""
        if self.ranks is None:
            return whole
        starts = self.starts(self.ranks)
        return whole[starts[self.ranks.place] : starts[self.ranks.place + 1]]

    def whole(self) -> Tensor:
        """The whole weight; where ranks split it, all of them have to ask."""
        own = self.weight.detach()
        if self.ranks is None:
            return own
        starts = self.starts(self.ranks)
        longest = max(end - start for start, end in pairwise(starts))
        padded = torch.cat([own, own.new_zeros(longest - len(own), own.shape[1])])
        every = self.ranks.whole(padded[None], 0)
        return torch.cat([part[: end - start] for part, (start, end) in zip(every, pairwise(starts), strict=True)])

    def forward(self, embeddings: Tensor, labels: Tensor, half: torch.dtype | None = None) -> Tensor:
        if self.ranks:
            embeddings, labels = GATHER(embeddings, self.ranks), self.ranks.whole(labels, 0)
        own = labels - self.first
        others = (own < 0) | (own >= len(self.weight))
        own = own.masked_fill(others, 0)
        weight: Tensor = self.weight
        if self.given.classifier == "partial":
            kept, own = self.sampled(own, others)
            weight = weight[kept]
        faces, persons = normalize(embeddings.to(weight.dtype)) * SCALE, normalize(weight)
        scores = linear(faces.to(half or weight.dtype), persons.to(half or weight.dtype)).to(weight.dtype)
        cosines = scores.gather(1, own[:, None]) / SCALE
        with_margin = torch.where(others[:, None], cosines, self.margin(cosines)) * SCALE
        scores = scores.scatter(1, own[:, None], with_margin)
        if self.ranks is None:
            return cross_entropy(scores, own)
        return CROSS_ENTROPY(scores, own, others, scores.dtype, self.ranks).mean()

    def sampled(self, own: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
        """The classes of this rank that a step computes with, in their order, and the labels' places among them.

        As many as `sample_ratio` says; at least as many as there are faces, so that each one's class is among them
        and nobody has to wait for the device to hear how many there are.
        """
        count = len(self.weight)
        keep = min(count, max(int(self.given.sample_ratio * count), len(own)))
        drawn = torch.rand(count, device=own.device)
        drawn = drawn.index_add(0, own, (~others).to(drawn.dtype))  # beyond any that is drawn
        kept = drawn.topk(keep).indices.sort().values
        return kept, torch.searchsorted(kept, own).clamp(max=keep - 1)

    def margin(self, cosines: Tensor) -> Tensor:
        """Cosines with the margin."""
        margin = MARGINS[self.given.margin_loss]
        if self.given.margin_loss == "cosface":
            return cosines - margin
        if self.given.margin_gradient == "insightface":
            return cosines + ((cosines.detach().clamp(-1, 1).acos() + margin).cos() - cosines.detach())
        return (cosines.clamp(-BELOW_1, BELOW_1).acos() + margin).cos()


class Gather(torch.autograd.Function):
    """The rows of all ranks. The backward pass adds up what the ranks' classes say of this rank's rows, times the
    number of ranks: the gradients of what comes before are averaged over them, and the loss is a mean over all."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, ranks: TensorGroup) -> Tensor:
        ctx.ranks, ctx.count = ranks, len(rows)
        return ranks.whole(rows, 0)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        total = gradient.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=ctx.ranks.group)
        return total.narrow(0, ctx.ranks.place * ctx.count, ctx.count) * ctx.ranks.size, None


GATHER: Callable[[Tensor, TensorGroup], Tensor] = Gather.apply
