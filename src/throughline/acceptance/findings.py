"""Who is slow or broken, in what, whether it is the machine, the program or a link, and what may explain it."""

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from throughline.acceptance import facts
from throughline.acceptance.measured import Measured
from throughline.grouping import grouped
from throughline.records.acceptance import Broken, Cause, DifferingFact, Finding, FleetFigure, SlowFigure, Standing
from throughline.study.acceptance import Place

UNEXPLAINED = "nothing that was observed explains it"
NAMED = 3
"""How many facts a sentence names."""
HARDWARE = ("matmul", "memory", "copies", "disk")
"""Measurements without a training program."""
UNSURE = 0.1
"""A place that is behind by more than this share may be slow, although it is not called slow."""


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
    return [
        _not_slow(place, f"{place} {' and '.join(dict.fromkeys(of_place))}", "it could not be measured")
        for place, of_place in sorted(faults.items(), key=lambda item: (item[0].nodes, item[0].device or -1))
        if place.device is not None or 2 * len(lacking) < nodes
    ]


def odd(measured: Measured, named: Collection[int]) -> Iterator[Finding]:
    """Yield a finding for each node whose facts are worse than those of most others. named: nodes that have one."""
    because = "nothing of it is slow, and it is not like the others"
    for node, differing in sorted(facts.odd(measured).items()):
        if node not in named:
            place = Place("node", (node,))
            yield _not_slow(place, f"{place}: {why(differing)}", because, differing)


def _not_slow(place: Place, what: str, because: str, differing: Sequence[DifferingFact] = ()) -> Finding:
    """Return a finding about a machine of which nothing is called slow."""
    because, sentence = f"it is the machine: {because}", f"{what}. It is the machine: {because}."
    return Finding(place=place, slow=[], cause="machine", because=because, facts=list(differing), sentence=sentence)


def _slow(figure: FleetFigure) -> Iterator[SlowFigure]:
    about: dict[str, Any] = {name: getattr(figure, name) for name in ("what", "figure", "size", "kind")}
    for standing in (standing for standing in figure.standings if standing.slow):
        distances: dict[str, Any] = {
            name: getattr(standing, name) or 0.0 for name in ("distance", "others_low", "others_high")
        }
        yield SlowFigure(**about, **distances, place=standing.place, others=standing.others)


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
        devices = grouped((figure for figure in group if figure.kind == "device"), lambda figure: figure.place)
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
    cause, because = cause_of(place, group, figures)
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
        if not (fact.why and fact.fact.startswith(facts.FACTS[0].words))  # it is the reason already
    ][:NAMED]
    reason = next((fact.why for fact in differing if fact.why), None)
    return "; ".join([*differences, *([f"reason: {reason}"] if reason else [])])


def cause_of(place: Place, group: Sequence[SlowFigure], figures: Sequence[FleetFigure]) -> tuple[Cause, str]:
    """Return whether the machine, the program or a link is slow, and what shows it."""
    alone = [figure for figure in group if figure.kind in ("device", "node")]
    if not alone:
        return _of_pair(place, group[0], figures) if place.kind == "pair" else _of_link(place, group, figures)
    if bare := sorted({figure.words for figure in alone if figure.what in HARDWARE}):
        return "machine", f"it is the machine and not the program: it is slow without training, too ({', '.join(bare)})"
    equal, behind = _alone(place, [figure for figure in figures if figure.what in HARDWARE])
    if any(figure.what == "all-reduce" for figure in alone):
        fast = f": each alone is as fast as the others ({', '.join(equal)})" if equal and not behind else ""
        return "link", f"it is the exchange between the devices of this node{fast}"
    if behind:
        return "not known", f"whether it is the machine or the program is not known: {', '.join(behind)} may be slow"
    if not equal:
        return "not known", "whether it is the machine or the program is not known: only the training step was measured"
    return "program", (
        f"only the training step is slow, and not the hardware under it ({', '.join(equal)} are as fast "
        "as the others'): look at what a program needs besides, such as the host's processor and the software"
    )


def _of_pair(place: Place, slow: SlowFigure, figures: Sequence[FleetFigure]) -> tuple[Cause, str]:
    """Return what the other pairs of both nodes show. Pairs with a node whose link is slow show nothing."""
    bad = {link.place.nodes[0] for figure in figures if figure.kind == "link" for link in figure.standings if link.slow}
    kind = slow.what, slow.figure, slow.kind
    pairs = next(figure.standings for figure in figures if (figure.what, figure.figure, figure.kind) == kind)
    others = {
        node: [
            _is_as_slow(pair, slow.distance)
            for pair in pairs
            if node in pair.place.nodes and pair.place != place and not bad & set(pair.place.nodes)
        ]
        for node in place.nodes
    }
    if all(as_slow and not any(as_slow) for as_slow in others.values()):
        return "link", "it is the link between the two: neither node is nearly as slow in its other pairs"
    shown = [
        f"node {node} {f'may be slow in {sum(as_slow)} of {len(as_slow)}' if as_slow else 'has no'} other pairs"
        for node, as_slow in others.items()
    ]
    return "link", f"it is the link between the two, or the network of one: {', '.join(shown)}"


def _of_link(place: Place, group: Sequence[SlowFigure], figures: Sequence[FleetFigure]) -> tuple[Cause, str]:
    """Return what a node shows alone whose pairs are slow. If its entries are no pairs, even its best pair is slow."""
    slow = {figure.place for figure in group if figure.kind == "pair"}
    pairs = {pair.place for figure in figures if figure.kind == "pair" for pair in figure.standings}
    count = sum(place.nodes[0] in nodes.nodes for nodes in pairs)
    most = f"{len(slow)} of its {count} pairs are slow, so " if slow else ""
    equal, behind = _alone(place, figures)
    if equal and not behind:
        link = f"it is {'probably ' if slow else ''}the node's link"
        return "link", f"{most}{link}: alone, this node is as fast as the others"
    shown = f"alone, it may be slow, too ({', '.join(behind)})" if behind else "nothing of it was compared alone"
    return "not known", f"{most}it is the node's link or the node itself: {shown}"


def _alone(place: Place, figures: Iterable[FleetFigure]) -> tuple[list[str], list[str]]:
    """Return the figures of a place, or of all devices of a node, that are as fast as the others', and the rest."""
    equal, behind = set[str](), set[str]()
    for figure in figures:
        if figure.kind in ("device", "node"):
            for standing in figure.standings:
                here = standing.place.nodes == place.nodes and place.device in (None, standing.place.device)
                if here and standing.others:
                    (behind if _may_be_slow(standing, figure.tolerance(UNSURE)) else equal).add(figure.words)
    return sorted(equal - behind), sorted(behind)


def _may_be_slow(standing: Standing, unsure: float = UNSURE) -> bool:
    return standing.slow or standing.behind > unsure


def _is_as_slow(pair: Standing, slow: float) -> bool:
    """Return whether a pair is slow as well, or at least by half as much: a slow network slows all pairs of a node.

    slow: the distance of the slow pair.
    """
    behind, least = (math.log1p(max(distance, -0.9999)) for distance in (pair.distance or 0.0, slow))
    return pair.slow or (_may_be_slow(pair) and behind <= least / 2)
