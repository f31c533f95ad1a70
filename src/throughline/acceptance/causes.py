"""Whether the machine, the program or a link is slow, and what shows it."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from throughline.records.acceptance import NAMES, Cause, FleetFigure, SlowFigure, Standing
from throughline.study.acceptance import Place

HARDWARE = ("matmul", "memory", "copies")
"""Measurements without a training program."""
UNSURE = 0.1
"""A place that is behind by more than this share may be slow, although it is not called slow."""


def cause_of(place: Place, group: Sequence[SlowFigure], figures: Sequence[FleetFigure]) -> tuple[Cause, str]:
    """Return whether the machine, the program or a link is slow, and what shows it."""
    alone = [figure for figure in group if figure.kind in ("device", "node")]
    if not alone:
        return _of_pair(place, group[0], figures) if place.kind == "pair" else _of_link(place, group, figures)
    if bare := sorted({figure.words for figure in alone if figure.what in HARDWARE}):
        return "machine", f"it is the machine and not the program: it is slow without training, too ({', '.join(bare)})"
    equal, behind = _alone(place, figures, HARDWARE)
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
    equal, behind = _alone(place, figures, [what for what, _ in NAMES])
    if equal and not behind:
        link = f"it is {'probably ' if slow else ''}the node's link"
        return "link", f"{most}{link}: alone, this node is as fast as the others"
    shown = f"alone, it may be slow, too ({', '.join(behind)})" if behind else "nothing of it was compared alone"
    return "not known", f"{most}it is the node's link or the node itself: {shown}"


def _alone(place: Place, figures: Sequence[FleetFigure], whats: Collection[str]) -> tuple[list[str], list[str]]:
    """Return the figures of a place, or of all devices of a node, that are as fast as the others', and the rest."""
    equal, behind = set[str](), set[str]()
    for figure in figures:
        if figure.kind in ("device", "node") and figure.what in whats:
            for standing in figure.standings:
                here = standing.place.nodes == place.nodes and place.device in (None, standing.place.device)
                if here and standing.others:
                    (behind if _may_be_slow(standing) else equal).add(figure.words)
    return sorted(equal - behind), sorted(behind)


def _may_be_slow(standing: Standing) -> bool:
    return standing.slow or standing.behind > UNSURE


def _is_as_slow(pair: Standing, slow: float) -> bool:
    """Return whether a pair is slow as well, or at least by half as much: a slow network slows all pairs of a node.

    slow: the distance of the slow pair.
    """
    behind, least = (math.log1p(max(distance, -0.9999)) for distance in (pair.distance or 0.0, slow))
    return pair.slow or (_may_be_slow(pair) and behind <= least / 2)
