"""Who is slow or broken, in what, and what may explain it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from throughline.acceptance import causes, facts
from throughline.acceptance.explanations import FACTS
from throughline.acceptance.measured import Measured
from throughline.records.acceptance import DifferingFact, Finding, FleetFigure, SlowFigure
from throughline.records.visit import Broken
from throughline.study.acceptance import Place

UNEXPLAINED = "nothing that was observed explains it"
NAMED = 3
"""How many facts a sentence names."""


def find(measured: Measured, figures: Sequence[FleetFigure]) -> list[Finding]:
    """Return what is slow, the worst first. A node takes the place of its devices or pairs if most of them are slow.

    figures: those whose places are peers. The pairs of a node whose link is slow are not called slow there.
    """
    slow = [figure for of_places in figures for figure in _slow(of_places)]
    groups = _groups(slow, figures)
    unsorted = [_finding(measured, figures, place, group, slow) for place, group in groups.items()]
    return sorted(unsorted, key=lambda finding: min(figure.distance for figure in finding.slow))


def refused(broken: Iterable[Broken], nodes: int) -> list[Finding]:
    """Return a finding for each GPU, or each node, that was refused for a fault of its own. nodes: of the fleet.

    A node that lacks a GPU is broken if most others have theirs. Otherwise somebody has asked for too many.
    """
    faults: dict[Place, list[str]] = {}
    for entry in broken:
        place = Place("node" if entry.device is None else "device", (entry.node,), entry.device)
        faults.setdefault(place, []).append(entry.fault)
    lacking = [place for place in faults if place.device is None]
    because = "it is the machine: a measurement there was refused"
    return [
        Finding(
            place=place,
            slow=[],
            cause="machine",
            because=because,
            facts=[],
            sentence=f"{place} {' and '.join(dict.fromkeys(of_place))}. {because[0].upper()}{because[1:]}.",
        )
        for place, of_place in sorted(faults.items(), key=lambda item: (item[0].nodes, item[0].device or -1))
        if place.device is not None or 2 * len(lacking) < nodes
    ]


def _slow(figure: FleetFigure) -> Iterator[SlowFigure]:
    for standing in figure.standings:
        if standing.slow:
            yield SlowFigure(
                what=figure.what,
                figure=figure.figure,
                size=figure.size,
                kind=figure.kind,
                place=standing.place,
                distance=standing.distance or 0.0,
                others=standing.others,
                others_low=standing.others_low or 0.0,
                others_high=standing.others_high or 0.0,
            )


def _groups(slow: Iterable[SlowFigure], figures: Sequence[FleetFigure]) -> dict[Place, list[SlowFigure]]:
    """Return the figures in which each place is slow. What follows from a slow device is counted as this device's."""
    to_blame = _nodes_of_pairs(figures)
    of_node: dict[int, list[SlowFigure]] = {}
    groups: dict[Place, list[SlowFigure]] = {}
    for figure in slow:
        if figure.kind == "pair" and figure.place not in to_blame:
            groups.setdefault(figure.place, []).append(figure)
        else:
            of_node.setdefault(to_blame.get(figure.place, figure.place.nodes[0]), []).append(figure)
    places = {standing.place for figure in figures if figure.kind == "device" for standing in figure.standings}
    for node, group in of_node.items():
        whole = Place("node", (node,))
        devices: dict[Place, list[SlowFigure]] = {}
        for figure in group:
            if figure.kind == "device":
                devices.setdefault(figure.place, []).append(figure)
        if not devices or 2 * len(devices) > max(2, sum(place.nodes == (node,) for place in places)):
            groups[whole] = group
            continue
        groups |= devices
        rest = [figure for figure in group if figure.kind != "device"]
        worst = min(devices, key=lambda place: min(figure.distance for figure in devices[place]))
        groups[worst] = groups[worst] + [figure for figure in rest if figure.what == "step"]
        if others := [figure for figure in rest if figure.what != "step"]:
            groups[whole] = others
    return groups


def _nodes_of_pairs(figures: Sequence[FleetFigure]) -> dict[Place, int]:
    """Map slow pairs to the node of theirs that is slow in most of its pairs, and in two at least."""
    to_blame: dict[Place, int] = {}
    for figure in figures:
        pairs = figure.standings if figure.kind == "pair" else []
        counts: dict[int, list[bool]] = {}
        for pair in pairs:
            for node in pair.place.nodes:
                counts.setdefault(node, []).append(pair.slow)
        shares = {node: sum(slow) / len(slow) for node, slow in counts.items() if sum(slow) >= 2}
        for pair in pairs:
            nodes = [node for node in sorted(pair.place.nodes) if shares.get(node, 0) > 0.5]
            if pair.slow and nodes:
                to_blame[pair.place] = max(nodes, key=shares.__getitem__)
    return to_blame


def _finding(
    measured: Measured,
    figures: Sequence[FleetFigure],
    place: Place,
    group: Sequence[SlowFigure],
    slow: Sequence[SlowFigure],
) -> Finding:
    cause, because = causes.cause_of(place, group, figures)
    # A machine that is slow alone is slow in its pairs, too.
    group = sorted(group, key=lambda figure: (figure.kind in ("link", "pair"), figure.distance))
    nodes = place.nodes if place.kind == "node" else group[0].place.nodes
    differing = facts.differing(measured, group[0], nodes, [figure.place for figure in slow])
    return Finding(
        place=place,
        slow=group,
        cause=cause,
        because=because,
        facts=differing,
        sentence=f"{place}: {_how_slow(place, group)}; {why(differing)}. {because[0].upper()}{because[1:]}.",
    )


def _how_slow(place: Place, group: Sequence[SlowFigure]) -> str:
    """Return by how much a place is slower in its worst figure, among whom, and its other figures.

    group: the worst first. Several devices of a node may be slow in one figure. Then the worst of them stands for all.
    """
    worst: dict[tuple[str, str], SlowFigure] = {}
    for figure in group:
        worst.setdefault((figure.words, figure.kind), figure)
    names = [f"{one.words}{f' of {one.place}' if one.place != place else ''}" for one in worst.values()]
    behind = [f"{name} {-100 * one.distance:.1f} %" for name, one in zip(names, worst.values(), strict=True)]
    first = group[0]
    beside = f"the {first.others} others" if first.kind != "device" else f"{first.others} other devices"
    reach = 100 * max(abs(first.others_low), abs(first.others_high))
    return ", ".join([f"{behind[0]} slower than {beside} (range of the others ±{reach:.1f} %)", *behind[1:]])


def why(differing: Sequence[DifferingFact]) -> str:
    """Return the facts that differ, and the reason if one of them is a reason."""
    if not differing:
        return UNEXPLAINED
    differences = [
        f"its {fact.fact} was {fact.here}, theirs {fact.others}"
        for fact in differing
        if not (fact.why and fact.fact.startswith(FACTS[0].words))  # it is the reason already
    ][:NAMED]
    reason = next((fact.why for fact in differing if fact.why), None)
    return "; ".join([*differences, *([f"reason: {reason}"] if reason else [])])
