"""The classifier with a margin, in PyTorch: whole on every rank, or split over the ranks by classes.

If it is split, every rank gets the embeddings of all ranks and computes the scores of its own classes. For the softmax
over all classes, the ranks exchange two numbers for each face. This is the method of An et al. 2021 (partial FC).
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear, normalize

from throughline.workloads import in_torch_tensor_parallel as parallel
from throughline.workloads.faces import MARGINS, SCALE, Parameters, first_classes, sampled_classes
from throughline.workloads.in_torch_tensor_parallel import TensorGroup

INITIAL = 0.01
"""Standard deviation of the initial vectors of classes."""
BELOW_1 = 1 - 1e-7
"""The largest cosine whose angle has a finite gradient."""


class Classifier(nn.Module):
    """The classifier. `forward` takes embeddings [B, D] and labels [B] of this rank and returns the mean loss.

    If ranks split the classifier, the mean is over the faces of all ranks.
    """

    ranks: TensorGroup | None = None

    def __init__(self, given: Parameters, embedding: int) -> None:
        super().__init__()
        self.given, self.first = given, 0
        self.weight = nn.Parameter(torch.empty(given.classes, embedding).normal_(0, INITIAL))

    def spread(self, ranks: TensorGroup) -> None:
        """Keep this rank's classes."""
        self.ranks, self.first = ranks, first_classes(self.given.classes, ranks.size)[ranks.place]
        self.weight.data = self.part(self.weight.data).clone()

    def part(self, whole: Any) -> Any:
        """Return this rank's classes from the whole weight."""
        if self.ranks is None:
            return whole
        return whole[self.first : first_classes(self.given.classes, self.ranks.size)[self.ranks.place + 1]]

    def whole(self) -> Tensor:
        """Return the whole weight. If ranks split it, all of them have to call this together."""
        held = self.weight.detach()
        if self.ranks is None:
            return held
        starts = first_classes(self.given.classes, self.ranks.size)
        longest = max(end - start for start, end in pairwise(starts))
        padded = torch.cat([held, held.new_zeros(longest - len(held), held.shape[1])])
        every = self.ranks.whole(padded[None], 0)
        return torch.cat([part[: end - start] for part, (start, end) in zip(every, pairwise(starts), strict=True)])

    def forward(self, embeddings: Tensor, labels: Tensor, half: torch.dtype | None = None) -> Tensor:
        if self.ranks:
            embeddings = parallel.EXCHANGE(embeddings, parallel.all_gathered, scattered_sum, self.ranks.group)
            labels = self.ranks.whole(labels, 0)
        local = labels - self.first
        others = (local < 0) | (local >= len(self.weight))
        local = local.masked_fill(others, 0)
        weight: Tensor = self.weight
        if self.given.classifier == "partial":
            kept, local = self.sampled(local, others)
            weight = weight[kept]
        faces, persons = normalize(embeddings.to(weight.dtype)) * SCALE, normalize(weight)
        scores = linear(faces.to(half or weight.dtype), persons.to(half or weight.dtype)).to(weight.dtype)
        cosines = scores.gather(1, local[:, None]) / SCALE
        with_margin = torch.where(others[:, None], cosines, self.margin(cosines)) * SCALE
        scores = scores.scatter(1, local[:, None], with_margin)
        if self.ranks is None:
            return cross_entropy(scores, local)
        return parallel.CROSS_ENTROPY(scores, local, others, scores.dtype, self.ranks).mean()

    def sampled(self, local: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
        """Return the classes of this rank with which a step computes, in their order, those of its faces included, and
        the places of the labels among them."""
        count = len(self.weight)
        keep = sampled_classes(self.given, count, len(local))
        drawn = torch.rand(count, device=local.device)
        drawn = drawn.index_add(0, local, (~others).to(drawn.dtype))  # the faces' classes get more than any number
        kept = drawn.topk(keep).indices.sort().values
        return kept, torch.searchsorted(kept, local).clamp(max=keep - 1)

    def margin(self, cosines: Tensor) -> Tensor:
        """Return the cosines with the margin."""
        margin = MARGINS[self.given.margin_loss]
        if self.given.margin_loss == "cosface":
            return cosines - margin
        if self.given.margin_gradient == "insightface":
            return cosines + ((cosines.detach().clamp(-1, 1).acos() + margin).cos() - cosines.detach())
        return (cosines.clamp(-BELOW_1, BELOW_1).acos() + margin).cos()


def scattered_sum(gradient: Tensor, group: dist.ProcessGroup) -> Tensor:
    """Return the sum of the gradients that all ranks have for this rank's rows, times the number of ranks: the
    framework averages the gradients of the network over the ranks once more."""
    return parallel.reduce_scattered(gradient, group) * group.size()
