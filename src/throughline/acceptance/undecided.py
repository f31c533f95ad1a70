"""What a comparison of equal places cannot tell, and what limits it."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from throughline import outliers, statistics
from throughline.acceptance.findings import UNSURE
from throughline.acceptance.measured import Measured
from throughline.disk import IN_MEMORY
from throughline.records.acceptance import Finding, FleetFigure, Standing, first_of
from throughline.study.acceptance import Place, PlaceKind

MANY, LIKELY = 10, 0.5
"""With so many peers, a place is not certain only if equal places are less likely than this to lie so far behind."""
FEW = 10
"""Of so few places, the result says how many slow ones can be told from the rest."""
KINDS: dict[PlaceKind, str] = {"device": "devices", "node": "nodes", "pair": "pairs"}
APART_H = 12
"""Figures that lie further apart than this get a remark. Those of two nights do, and those of one acceptance do not."""


def with_doubts(figure: FleetFigure, findings: Sequence[Finding], tolerance: float) -> FleetFigure:
    """Name the places that are far behind and not called slow, because their peers or their repeats differ too much.

    A place that a finding explains is not in doubt. Many peers tell how much equal places differ: what lies among them
    is as they are.
    """

    tolerance = max(UNSURE, figure.tolerance(tolerance))

    def doubted(standing: Standing) -> Standing:
        is_usual = standing.others >= MANY and (standing.p_holm or 0.0) >= LIKELY
        if standing.verdict != "as its peers" or standing.behind <= tolerance or is_usual:
            return standing
        causes = [str(finding.place) for finding in findings if finding.explains(standing.place)]
        verdict = {"verdict": "explained", "because": causes[0]} if causes else {"verdict": "not certain"}
        return standing.model_copy(update=verdict)

    return figure.model_copy(update={"standings": [doubted(standing) for standing in figure.standings]})


def differences(figures: Sequence[FleetFigure], tolerance: float, slow_nodes: set[int]) -> Iterator[str]:
    """Yield where places differ, so that nobody can tell which of them are slow: of two, or of two halves.

    figures: those whose places are peers; slow_nodes: nodes that are slow themselves. Their pairs are slow because of
    them.
    """
    for figure in figures:
        tolerated, ignored = figure.tolerance(tolerance), slow_nodes if figure.kind == "pair" else set()
        places = [standing for standing in figure.standings if not ignored & set(standing.place.nodes)]
        if len(places) == 2:
            slower = max(places, key=lambda standing: standing.behind)
            if slower.behind > tolerated:
                other = next(place for place in places if place is not slower)
                yield (
                    f"{figure.words}: {100 * slower.behind:.1f} % slower at {slower.place} than at {other.place}, "
                    "and of two nobody can tell which one is wrong"
                )
        elif half := slower_half(places, figure.better == "less", tolerated):
            slow, behind = half
            yield (
                f"{figure.words}: {first_of(slow)} ({len(slow)} of {len(places)}) are {100 * behind:.1f} % slower than "
                "the others in every repeat, and without a clear majority nobody can tell which ones are wrong"
            )


def slower_half(places: Sequence[Standing], less: bool, tolerance: float) -> tuple[list[Place], float] | None:
    """Return the slower group, and its share behind the others; None if there are no two groups.

    A group has more places than can be called slow, and at most half of all. In each repeat all of it is slower than
    all others, by more than the tolerance.
    """
    if any(place.slow for place in places) or len(places) < 2:
        return None

    def speed(value: float) -> float:
        return 1 / value if less else value

    ordered = sorted(places, key=lambda place: speed(place.median))
    shared = set.intersection(*(set(place.repeats) for place in places))
    for count in range(outliers.most_slow(len(ordered)) + 1, len(ordered) // 2 + 1):
        slow, others = ordered[:count], ordered[count:]
        if len(shared) >= 2 and all(
            max(speed(place.repeats[repeat]) for place in slow)
            < (1 - tolerance) * min(speed(place.repeats[repeat]) for place in others)
            for repeat in shared
        ):
            here, there = (
                statistics.median([speed(place.median) for place in group]) or 1.0 for group in (slow, others)
            )
            return sorted(place.place for place in slow), 1 - here / there
    return None


def remarks(figures: Sequence[FleetFigure], measured: Measured) -> Iterator[str]:
    """Yield what limits the verdict: few places, few repeats, and records of other days or of different software."""
    most = []
    for kind, words in KINDS.items():
        counts = [len(figure.standings) for figure in figures if figure.kind == kind]
        if few := [count for count in counts if outliers.LEAST_PARTS <= count < FEW]:
            most.append(f"{outliers.most_slow(min(few))} of {min(few)} {words}")
    if most:
        yield f"At most {', '.join(most)} can be called slow; if more are slow, they pass for usual"
    alone = [
        f"{figure.words} ({KINDS[figure.kind]})" for figure in figures if figure.kind in KINDS and not has_peers(figure)
    ]
    if alone and any(map(has_peers, figures)):
        yield f"These figures were not compared, because nothing else of their kind was measured: {', '.join(alone)}"
    yield from _of_runs(measured)
    if any(len(standing.repeats) < 3 for figure in figures for standing in figure.standings):
        yield "Some places have fewer than 3 repeats: a short disturbance may look like a slow device"


def has_peers(figure: FleetFigure) -> bool:
    return any(standing.others for standing in figure.standings)


def _of_runs(measured: Measured) -> Iterator[str]:
    """Yield in what the runs differ: the model of the devices, Throughline's code, and the day; and lacking disks."""
    models: dict[str, set[int]] = {}
    for run in measured.runs:
        if len(run.nodes) == 1 and run.record.device and run.record.device.name:
            models.setdefault(run.record.device.name, set()).add(run.nodes[0])
    if len(models) > 1:
        which = [f"{name} in {first_of(f'node {node}' for node in sorted(of))}" for name, of in sorted(models.items())]
        yield f"The devices are of different models, and a slower model looks like a slow device: {'; '.join(which)}"
    diskless = {run.nodes[0] for run in measured.runs if (run.record.settings or {}).get("file_system") in IN_MEMORY}
    if diskless:
        nodes = first_of(f"node {node}" for node in sorted(diskless))
        yield f"No disk of {nodes} was measured, because the folder is in memory; set accept.disk to a folder on a disk"
    digests = {str(run.record.environment.get("code")) for run in measured.runs}
    if len(digests) > len({run.measurement.what for run in measured.runs}):
        yield "The runs were made by different versions of Throughline's code"
    if not measured.runs:
        return
    first = min(run.record.started for run in measured.runs)
    last = max(run.record.ended for run in measured.runs)
    hours = (datetime.fromisoformat(last) - datetime.fromisoformat(first)).total_seconds() / 3600
    if hours > APART_H:
        yield (
            f"The figures lie up to {hours:.0f} hours apart ({first[:10]} to {last[:10]}): what has changed meanwhile "
            "may look like a slow place; --forcerun accept_visit measures everything again"
        )
