"""The size of an optimizer step: the one place that knows how many samples a step takes, and on which replica.

Standard library only: ranks import this too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from throughline.files import UserError
from throughline.topology import Layout, Topology


@dataclass(frozen=True)
class StepSize:
    """Each of `replicas` copies of the model computes `accumulate` micro-batches of `batch_per_replica` samples."""

    replicas: int
    batch_per_replica: int
    accumulate: int = 1

    @property
    def samples_per_step(self) -> int:
        """Samples between two updates of the weights, on all replicas: the global batch."""
        return self.replicas * self.batch_per_replica * self.accumulate


def of(topology: Topology, layout: Layout, batch: int, scaling: str = "weak", accumulate: int = 1) -> StepSize:
    """`batch` is of each replica or, where `scaling` is strong, of all of them. UserError where it does not divide."""
    replicas, rest = divmod(topology.world, layout.tensor)
    if rest:
        raise UserError(
            f"the {topology.world} devices of {topology} do not divide into replicas of {layout.tensor}",
            next_step="choose topologies whose devices are a multiple of options.tensor",
        )
    if scaling == "weak":
        return StepSize(replicas, batch, accumulate)
    each, rest = divmod(batch, replicas)
    if rest:
        raise UserError(
            f"a batch of {batch} does not divide over the {replicas} replicas of {topology}",
            why="scaling is strong: a batch size is the sum over all replicas",
            next_step=f"choose a multiple of {replicas}",
        )
    return StepSize(replicas, each, accumulate)


def of_spec(spec: Mapping[str, Any]) -> StepSize:
    """The same, of a run specification as parsed JSON with its defaults."""
    options = spec["options"]
    layout = Layout(options["tensor"], options["sharding"])
    topology = Topology.parse(spec["topology"])
    return of(topology, layout, spec["batch_per_device"], spec["scaling"], options["accumulate"])
