"""The seconds of a step on a topology, as a sum of terms. Each term is a known column times a constant that is fitted.

    step = (compute + waiting) of each micro-batch + exchange inside the nodes + exchange between the nodes + input

Two forms of the exchange bracket what libraries do. `hierarchical`: first inside each node, then between the nodes;
with k parts, an all-reduce moves (k-1)/k of the bytes twice through the slowest link. `ring`: one ring over all ranks,
as fast as its slowest link, so beyond one node only the links between nodes count. The first one grows with every
doubling, the second one hardly. docs/method-prediction.md names the sources.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from throughline.prediction.facts import Job, Point, Target

Form = Literal["hierarchical", "ring"]
FORMS: tuple[Form, ...] = ("hierarchical", "ring")
COLUMNS = ("compute", "fixed", "inside", "between")
"""Compute that grows with the samples, compute of each micro-batch whatever its size, and the two exchanges."""


@dataclass(frozen=True)
class Place:
    """A topology, and how much each replica computes there.

    replicas_inside: replicas of the model on each node; gradient_accumulation: micro-batches of a step; samples:
    samples of one micro-batch of one replica.
    """

    nodes: int
    replicas_inside: int
    gradient_accumulation: int
    samples: float
    ranks: int

    @classmethod
    def of(cls, where: Point | Target, job: Job) -> Place:
        replicas = where.world // job.layout.tensor_parallel
        samples = where.global_batch / (replicas * where.gradient_accumulation)
        return cls(
            where.nodes, where.devices // job.layout.tensor_parallel, where.gradient_accumulation, samples, where.world
        )

    @property
    def replicas(self) -> int:
        return self.nodes * self.replicas_inside


def share(parts: int) -> float:
    """Return the share of the bytes that an all-reduce over `parts` moves in either direction: (k-1)/k."""
    return (parts - 1) / parts


def exchange(place: Place, form: Form) -> tuple[float, float]:
    """Return the columns of the exchange inside the nodes and between them."""
    if form == "hierarchical":
        return share(place.replicas_inside), share(place.nodes)
    alone = place.nodes == 1
    return (share(place.replicas_inside), 0.0) if alone else (0.0, share(place.replicas))


def times(place: Place, job: Job) -> int:
    """Return how often a step exchanges: sharded weights are gathered anew for each micro-batch."""
    return place.gradient_accumulation if job.layout.sharding in ("shard_grad_op", "full_shard") else 1


def slowest(ranks: int, spread: float) -> float:
    """Return by which share the slowest of `ranks` ranks is expected to take longer than their mean."""
    return spread * expected_maximum(ranks)


@cache
def expected_maximum(count: int) -> float:
    """Return the expected maximum of `count` independent standard normal values.

    Blom 1958: the quantile at (n - 0.375) / (n + 0.25). From n = 2 on it errs by less than 0.03.
    """
    return statistics.NormalDist().inv_cdf((count - 0.375) / (count + 0.25)) if count > 1 else 0.0


def spread_of(points: Sequence[Point]) -> float:
    """Return the relative spread of the ranks: the median of the topologies where it is known, otherwise 0."""
    known = [point.rank_spread for point in points if point.rank_spread is not None]
    return statistics.median(known) if known else 0.0


def input_of(points: Sequence[Point], job: Job) -> float:
    """Return the seconds that a step waits for data, for each sample of a replica: their median, otherwise 0."""
    places = ((point, Place.of(point, job)) for point in points)
    known = [
        point.input_s / (place.samples * place.gradient_accumulation)
        for point, place in places
        if point.input_s is not None
    ]
    return statistics.median(known) if known else 0.0


def doublings(larger: float, smaller: float) -> float:
    return math.log2(larger / smaller)
