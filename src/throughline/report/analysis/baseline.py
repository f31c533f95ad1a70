"""Choose the repeats that enter a median, and the topology that speedups are relative to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from throughline.grouping import grouped
from throughline.records import LeftOut, RunRecord
from throughline.report.analysis import differences
from throughline.spec import Layout, Topology, canonical

ONE_DEVICE = "1n1g"


@dataclass(frozen=True)
class Pool:
    """All records of a cell: those that enter its median (`kept`), and those that are left out."""

    every: Sequence[RunRecord]
    kept: list[RunRecord]
    left_out: list[LeftOut]


def pool(runs: Sequence[RunRecord]) -> Pool:
    """Keep the runs of the largest group that shares an environment, and leave out the ok repeats of all others.

    The size of a group is the number of its ok repeats. Of groups of the same size, we take the one that ended last. A
    run without a figure belongs to no group; it is kept.
    """
    groups = grouped((run for run in runs if run.status == "ok"), surroundings)
    kept = max(groups.values(), key=lambda group: (len(group), max(run.ended for run in group)), default=[])
    left_out = []
    for group in (group for group in groups.values() if group is not kept):
        unlike = differences.differing(differences.of_run(group[0]), differences.of_run(kept[0]))
        left_out.append(
            LeftOut(
                repeats=[run.spec.repeat for run in group],
                values=[run.samples_per_s for run in group if run.samples_per_s is not None],
                environment=group[0].environment.get("digest"),
                differs=[f"{key} is {out} and {stays}" for key, (out, stays) in unlike.items()],
            )
        )
    return Pool(runs, [run for run in runs if run.status != "ok" or run in kept], left_out)


def surroundings(run: RunRecord) -> str:
    """Return a text that is the same for runs in the same environment, on the same device and on the same data.

    It has the digest of the environment in place of its facts.
    """
    others = {key: value for key, value in differences.of_run(run).items() if not key.startswith("environment.")}
    return canonical({"digest": run.environment.get("digest"), **others})


def of(by_topology: Mapping[str, Sequence[RunRecord]]) -> str:
    """Return the topology that is the baseline of one framework's runs.

    It is one device. A model that is split over ranks may need several devices: then it is the smallest topology that
    was asked for and is not `unsupported`. If the baseline runs out of memory, it stays the baseline, and there is no
    speedup.
    """
    if all(run.spec.options.layout == Layout() for runs in by_topology.values() for run in runs):
        return ONE_DEVICE
    possible = [name for name, runs in by_topology.items() if any(run.status != "unsupported" for run in runs)]
    return min(possible, key=size, default=ONE_DEVICE)


def size(topology: str) -> tuple[int, Topology]:
    """Return the key that topologies are sorted by: devices, then nodes."""
    parsed = Topology.parse(topology)
    return parsed.world, parsed
