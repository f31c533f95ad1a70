"""What the plan says about an acceptance: how many measurements, how long they take, and how to make it shorter."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from statistics import median

from throughline.records.glance import glance
from throughline.study.acceptance import Fleet, Measurement

START_S = 8.0
"""Assumed seconds from the start of a measurement to its first step, if none was made yet."""
JOB_S = 10.0
"""Assumed seconds that Slurm and Snakemake add to a visit."""


def lines(
    visits: Mapping[str, Sequence[Measurement]],
    pending: Collection[str],
    fleet: Fleet,
    away: Mapping[int, str],
    on_slurm: bool,
    root: Path = Path(),
) -> list[str]:
    """Return the lines of the plan about visits that have to be made.

    visits: all of them by file; pending: the files that have to be made; away: why nodes cannot be measured now.
    """
    to_make = {file: visit for file, visit in visits.items() if file in pending}
    count, every = (sum(map(len, some.values())) for some in (to_make, visits))
    side_by_side = on_slurm or fleet.hosts == "ssh"
    nodes = "1 node" if len(fleet.nodes) == 1 else f"{len(fleet.nodes)} nodes"
    how = ", if all nodes work side by side" if side_by_side and len(fleet.nodes) > 1 else ""
    seconds = _seconds(to_make, _known(visits, root), side_by_side, JOB_S if on_slurm else 0.0)
    return [
        f"  acceptance of {nodes}: {count} of {every} measurements to make, in {len(to_make)} visits",
        *(f"    node {node} is left out, because {why}; a later call measures it" for node, why in away.items()),
        f"  measuring: about {max(1, round(seconds / 60))} min{how}; accept.repeats, accept.pairs and accept.step_s "
        "make it shorter",
    ]


def _known(visits: Mapping[str, Sequence[Measurement]], root: Path) -> dict[tuple[str, str], float]:
    """Return the median seconds of finished measurements by kind of place and by what is measured."""
    took: dict[tuple[str, str], list[float]] = {}
    for visit in visits.values():
        for measured in visit:
            seen = glance(root / measured.record)
            if seen and seen.seconds is not None:
                took.setdefault((measured.place.kind, measured.what), []).append(seen.seconds)
    return {key: median(seconds) for key, seconds in took.items()}


def _seconds(
    visits: Mapping[str, Sequence[Measurement]],
    known: Mapping[tuple[str, str], float],
    side_by_side: bool,
    each_s: float,
) -> float:
    """Return how long the visits take. Side by side: single nodes, then pairs, each node in one of them at a time."""
    busy: dict[str, dict[int, float]] = {}
    total = 0.0
    for visit in visits.values():
        seconds = each_s + sum(known.get((one.place.kind, one.what)) or expected_s(one) for one in visit)
        total += seconds
        kind = {"device": "node"}.get(visit[0].place.kind, visit[0].place.kind)
        for node in visit[0].place.nodes:
            busy.setdefault(kind, {}).setdefault(node, 0.0)
            busy[kind][node] += seconds
    return sum(max(nodes.values()) for nodes in busy.values()) if side_by_side else total


def expected_s(measured: Measurement) -> float:
    """Return how long a measurement takes that was never made: its start, its steps, and its figures."""
    parameters = measured.spec.parameters
    sizes, at_least_s = getattr(parameters, "sizes", ()), getattr(parameters, "at_least_s", 0.0)
    return START_S + (measured.spec.steps.at_most_s or 0.0) + len(sizes) * at_least_s
