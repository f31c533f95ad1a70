"""The node jobs of an acceptance: what the plan says about them, and how long they are expected to take.

A node job measures everything once at one place: a node, a pair of nodes, or all of them.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from throughline.launch.quick_check import limit_s
from throughline.numbers import counted
from throughline.records import stored_run
from throughline.study.acceptance import QUICK, Fleet, Measurement, Place, Plan

START_S = 8.0
"""Assumed seconds from a run's start to its first step (start processes, load a model), if none was measured yet."""
JOB_S = 10.0
"""Assumed seconds that Slurm and Snakemake add to a node job."""


@dataclass(frozen=True)
class NodeJobs:
    """The node jobs that a call makes, by their files.

    lines: what the plan says about them. names: their places and repeats in words. expected_s: the seconds of each.
    """

    lines: Sequence[str]
    names: Mapping[str, str]
    expected_s: Mapping[str, float]


def quick(asked: Plan) -> NodeJobs:
    """Return what is known before the nodes have checked themselves: that they do so, and how long they may take."""
    limit = limit_s(asked.fleet.kind)
    pairs = " Then pairs of nodes that have passed are measured." if asked.rounds else ""
    how = "all at once" if asked.fleet.hosts != "simulated" else "one after the other"
    line = f"  quick acceptance: {len(asked.fleet.nodes)} nodes check themselves, {how}, in at most {limit:.0f} s each."
    return NodeJobs([line + pairs], {QUICK: "all nodes, each alone"}, {QUICK: limit})


def planned(
    node_jobs: Mapping[str, Sequence[Measurement]],
    pending: Collection[str],
    fleet: Fleet,
    away: Mapping[int, str],
    on_slurm: bool,
) -> NodeJobs:
    """Return the node jobs that have to be made.

    node_jobs: all of them by file; pending: the files that have to be made; away: why nodes cannot be measured now.
    """
    to_make = {file: measurements for file, measurements in node_jobs.items() if file in pending}
    finished: dict[tuple[str, str], list[float]] = {}
    for measurement in (measurement for measurements in node_jobs.values() for measurement in measurements):
        record = stored_run(Path(measurement.record))
        if record and record.seconds is not None:
            finished.setdefault((measurement.place.kind, measurement.what), []).append(record.seconds)

    def expected_s(measurement: Measurement) -> float:
        """The median of the same measurement at other places or in other repeats; without one, what it asks for."""
        if like := finished.get((measurement.place.kind, measurement.what)):
            return median(like)
        parameters = measurement.spec.parameters
        sizes, min_seconds = getattr(parameters, "sizes", ()), getattr(parameters, "min_seconds", 0.0)
        return START_S + (measurement.spec.steps.max_total_seconds or 0.0) + len(sizes) * min_seconds

    each_s = {file: JOB_S * on_slurm + sum(map(expected_s, visit)) for file, visit in to_make.items()}
    names: dict[str, str] = {}
    # Side by side: single nodes, then pairs, then all. A node is busy for the sum of its node jobs of a kind.
    busy_s: dict[str, dict[int, float]] = {}
    for file, seconds in each_s.items():
        place, repeat = to_make[file][0].place, to_make[file][0].spec.repeat
        if place.kind == "device":  # the node job measures the whole node too
            place = Place("node", place.nodes)
        names[file] = f"{place}, repeat {repeat}"
        nodes = busy_s.setdefault(place.kind, {})
        for node in place.nodes:
            nodes[node] = nodes.get(node, 0.0) + seconds
    side_by_side = on_slurm or fleet.hosts == "ssh"
    total_s = sum(max(nodes.values()) for nodes in busy_s.values()) if side_by_side else sum(each_s.values())
    count, total = (sum(map(len, some.values())) for some in (to_make, node_jobs))
    where = counted(len(fleet.nodes), "node")
    how = ", if all nodes work side by side" if side_by_side and len(fleet.nodes) > 1 else ""
    lines = [
        f"  acceptance of {where}: {count} of {total} measurements to make, in {counted(len(to_make), 'node job')}",
        *(f"    node {node} is left out, because {why}; a later call measures it" for node, why in away.items()),
        f"  measuring: about {max(1, round(total_s / 60))} min{how}; accept.repeats, accept.measure and accept.pairs "
        "make it shorter",
    ]
    return NodeJobs(lines, names, each_s)
