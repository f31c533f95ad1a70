"""The number of devices of a run (Topology), how its model is split over them (Layout), and the samples of a step.

Standard library only: ranks import this too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from throughline.files import UserError


@dataclass(frozen=True, order=True)
class Topology:
    """A number of nodes and devices per node, written `<nodes>n<devices per node>g`.

    A device is a GPU, or one worker process on a CPU. `simulated`: all nodes are simulated on one machine.
    """

    nodes: int
    devices: int
    simulated: bool = False

    @classmethod
    def parse(cls, text: str) -> Topology:
        match = re.fullmatch(r"([1-9]\d*)n([1-9]\d*)g", text)
        if not match:
            raise UserError(f"{text!r} is not a topology", next_step="write <nodes>n<devices per node>g, such as 1n2g")
        return cls(int(match[1]), int(match[2]))

    @property
    def world(self) -> int:
        """World size: the number of ranks."""
        return self.nodes * self.devices

    def __str__(self) -> str:
        return f"{self.nodes}n{self.devices}g" + (" (simulated)" if self.simulated else "")


@dataclass(frozen=True)
class Layout:
    """How a model is split over its ranks.

    `tensor_parallel` consecutive ranks share one replica of the model. `sharding` says what the replicas split among
    them. `hybrid_shard_groups`: the replicas form so many groups, and each group splits the whole; `nodes`: each node
    is a group. Within a group, `expert_parallel` consecutive replicas each hold a part of a model's experts.
    """

    tensor_parallel: int = 1
    sharding: str = "none"
    hybrid_shard_groups: int | str = 1
    expert_parallel: int = 1

    def groups(self, topology: Topology) -> int:
        """Return how many groups of replicas there are, each of which has the whole model and its states."""
        return topology.nodes if isinstance(self.hybrid_shard_groups, str) else max(1, self.hybrid_shard_groups)


@dataclass(frozen=True)
class StepSize:
    """The samples of an optimizer step: each of `replicas` copies of the model computes `gradient_accumulation`
    micro-batches of `batch_per_replica` samples."""

    replicas: int
    batch_per_replica: int
    gradient_accumulation: int = 1

    @classmethod
    def of(
        cls, topology: Topology, layout: Layout, batch: int, scaling: str = "weak", gradient_accumulation: int = 1
    ) -> StepSize:
        """Return the size of a step. Raise UserError if devices or batch cannot be divided equally among the replicas.

        `batch` is the batch of each replica. If `scaling` is strong, it is the batch of all replicas together.
        """
        replicas, rest = divmod(topology.world, layout.tensor_parallel)
        if rest:
            raise UserError(
                f"the {topology.world} devices of {topology} do not divide into replicas of {layout.tensor_parallel}",
                next_step="choose topologies whose devices are a multiple of options.tensor_parallel",
            )
        if replicas % layout.groups(topology):
            raise UserError(
                f"the {replicas} replicas of {topology} do not divide into {layout.groups(topology)} groups",
                next_step="choose topologies whose replicas are a multiple of options.hybrid_shard_groups",
            )
        if replicas // layout.groups(topology) % layout.expert_parallel:
            raise UserError(
                f"the {replicas} replicas of {topology} do not divide into sets of {layout.expert_parallel} that "
                "share experts",
                next_step="choose topologies whose replicas are a multiple of options.expert_parallel",
            )
        if scaling == "weak":
            return cls(replicas, batch, gradient_accumulation)
        each, rest = divmod(batch, replicas)
        if rest:
            raise UserError(
                f"a batch of {batch} does not divide over the {replicas} replicas of {topology}",
                why="scaling is strong: a batch size is the sum over all replicas",
                next_step=f"choose a multiple of {replicas}",
            )
        return cls(replicas, each, gradient_accumulation)

    @property
    def samples_at_once(self) -> int:
        """The samples that all replicas together compute at once: one micro-batch of each."""
        return self.replicas * self.batch_per_replica

    @property
    def global_batch(self) -> int:
        """The global batch: the samples of all replicas between two updates of the weights."""
        return self.samples_at_once * self.gradient_accumulation

    def accumulating(self, global_batch: int) -> StepSize:
        """Return this size with as many micro-batches as make `global_batch`. Raise UserError if none do."""
        gradient_accumulation, rest = divmod(global_batch, self.samples_at_once)
        if rest or not gradient_accumulation:
            raise UserError(
                f"{self.replicas} replicas of {self.batch_per_replica} compute {self.samples_at_once:,} samples at "
                f"once, and {global_batch:,} is no multiple of that",
                next_step=f"choose {nearest([self], global_batch)}",
            )
        return replace(self, gradient_accumulation=gradient_accumulation)


def nearest(sizes: Iterable[StepSize], global_batch: int) -> str:
    """Return in words the nearest numbers of samples that all these sizes can take in whole micro-batches."""
    common = math.lcm(*(size.samples_at_once for size in sizes))
    below = global_batch // common * common
    return " or ".join(f"{near:,}" for near in (below, below + common) if near)
