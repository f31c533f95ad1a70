"""What the plan and the progress say about an acceptance: how many node jobs, how long they take, and what shortens
it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from throughline.records.glance import glance
from throughline.study.acceptance import Fleet, Measurement

START_S = 8.0
"""Assumed seconds from the start of a measurement to its first step, if none was made yet."""
JOB_S = 10.0
"""Assumed seconds that Slurm and Snakemake add to a node job."""


@dataclass(frozen=True)
class Visits:
    """The node jobs that one call makes. lines: what the plan says about them; to_make: by file.

    expected_s: how long each is expected to take; side_by_side: nodes work at the same time. took_s: how long each
    finished node job has taken in this call.
    """

    lines: Sequence[str]
    to_make: Mapping[str, Sequence[Measurement]]
    expected_s: Mapping[str, float]
    side_by_side: bool
    took_s: dict[str, float] = field(default_factory=dict)

    def left_s(self, over: Collection[str], passed_s: Mapping[str, float]) -> float:
        """Return the seconds that are left, at the pace of the node jobs so far.

        over: files of node jobs that have ended; passed_s: for how long each that has begun is at work.
        """
        pace = sum(self.took_s.values()) / sum(map(self.expected_s.__getitem__, self.took_s)) if self.took_s else 1.0
        left = {
            file: max(0.0, pace * self.expected_s[file] - passed_s.get(file, 0.0))
            for file in self.to_make
            if file not in over
        }
        return _seconds(self.to_make, left, self.side_by_side)

    def words(self, file: str) -> str:
        """Return what a finished node job was: `node job 3 of 12: node 2, repeat 1`."""
        first = self.to_make[file][0]
        place = f"node {first.place.nodes[0]}" if first.place.kind == "device" else str(first.place)
        number = f"{len(self.took_s):{len(str(len(self.to_make)))}}"
        return f"node job {number} of {len(self.to_make)}: {place}, repeat {first.spec.repeat}"


def of_call(
    visits: Mapping[str, Sequence[Measurement]],
    pending: Collection[str],
    fleet: Fleet,
    away: Mapping[int, str],
    on_slurm: bool,
    root: Path = Path(),
) -> Visits:
    """Return the node jobs that have to be made.

    visits: all of them by file; pending: the files that have to be made; away: why nodes cannot be measured now.
    """
    to_make = {file: visit for file, visit in visits.items() if file in pending}
    count, every = (sum(map(len, some.values())) for some in (to_make, visits))
    side_by_side = on_slurm or fleet.hosts == "ssh"
    nodes = "1 node" if len(fleet.nodes) == 1 else f"{len(fleet.nodes)} nodes"
    how = ", if all nodes work side by side" if side_by_side and len(fleet.nodes) > 1 else ""
    known, each_s = _known(visits, root), JOB_S if on_slurm else 0.0
    expected = {
        file: each_s + sum(known.get((one.place.kind, one.what)) or expected_s(one) for one in visit)
        for file, visit in to_make.items()
    }
    seconds = _seconds(to_make, expected, side_by_side)
    lines = [
        f"  acceptance of {nodes}: {count} of {every} measurements to make, in {len(to_make)} node jobs",
        *(f"    node {node} is left out, because {why}; a later call measures it" for node, why in away.items()),
        f"  measuring: about {max(1, round(seconds / 60))} min{how}; accept.repeats, accept.measure and accept.pairs "
        "make it shorter",
    ]
    return Visits(lines, to_make, expected, side_by_side)


def _known(visits: Mapping[str, Sequence[Measurement]], root: Path) -> dict[tuple[str, str], float]:
    """Return the median seconds of finished measurements by kind of place and by what is measured."""
    took: dict[tuple[str, str], list[float]] = {}
    for visit in visits.values():
        for measured in visit:
            seen = glance(root / measured.record)
            if seen and seen.seconds is not None:
                took.setdefault((measured.place.kind, measured.what), []).append(seen.seconds)
    return {key: median(seconds) for key, seconds in took.items()}


def _seconds(visits: Mapping[str, Sequence[Measurement]], each_s: Mapping[str, float], side_by_side: bool) -> float:
    """Return how long the node jobs in `each_s` take.

    Side by side: single nodes, then pairs, each node in one of them at a time.
    """
    if not side_by_side:
        return sum(each_s.values())
    busy: dict[str, dict[int, float]] = {}
    for file, seconds in each_s.items():
        place = visits[file][0].place
        nodes = busy.setdefault({"device": "node"}.get(place.kind, place.kind), {})
        for node in place.nodes:
            nodes[node] = nodes.get(node, 0.0) + seconds
    return sum(max(nodes.values()) for nodes in busy.values())


def expected_s(measured: Measurement) -> float:
    """Return how long a measurement takes that was never made: its start, its steps, and its figures."""
    parameters = measured.spec.parameters
    sizes, min_seconds = getattr(parameters, "sizes", ()), getattr(parameters, "min_seconds", 0.0)
    return START_S + (measured.spec.steps.max_total_seconds or 0.0) + len(sizes) * min_seconds
