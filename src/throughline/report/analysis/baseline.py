"""Over what speedups are taken: one device, or the smallest topology on which the model's layout is possible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from throughline.records import RunRecord
from throughline.topology import Layout, Topology

ONE_DEVICE = "1n1g"


def of(by_topology: Mapping[str, Sequence[RunRecord]]) -> str:
    """The baseline of one framework's runs.

    A model that is split over ranks may need several devices: then it is the smallest topology that was asked for and
    is not `unsupported`. A baseline that is out of memory stays the baseline, and there is no speedup.
    """
    if all(run.spec.layout == Layout() for runs in by_topology.values() for run in runs):
        return ONE_DEVICE
    possible = [name for name, runs in by_topology.items() if any(run.status != "unsupported" for run in runs)]
    return min(possible, key=size, default=ONE_DEVICE)


def size(topology: str) -> tuple[int, Topology]:
    """What topologies are ordered by: devices, then nodes."""
    parsed = Topology.parse(topology)
    return parsed.world, parsed


def share(topology: str, baseline: str) -> float:
    """How many times the baseline's devices a topology has: the ideal speedup."""
    return Topology.parse(topology).world / Topology.parse(baseline).world
