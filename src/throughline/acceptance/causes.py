"""Whether the machine, the program or a link is slow, and what shows it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from throughline.acceptance.measured import Spot
from throughline.acceptance.slow import Slow, Standings, slow_nodes
from throughline.outliers import Standing
from throughline.records.acceptance import NAMES, UNSURE, Cause

HARDWARE = ("matmul", "memory", "copies")
"""Measurements without a training program."""


def of(spot: Spot, group: Sequence[Slow], standings: Standings) -> tuple[Cause, str]:
    """Return whether the machine, the program or a link is slow, and what shows it."""
    alone = [one for one in group if one.key.kind in ("device", "node")]
    whats = {one.key.what for one in alone}
    if not alone:
        return (_cause_of_pair if spot.kind == "pair" else _cause_of_link)(spot, group, standings)
    if bare := sorted({NAMES[one.key.what, one.key.figure] for one in alone if one.key.what in HARDWARE}):
        return "machine", f"it is the machine and not the program: it is slow without training, too ({', '.join(bare)})"
    equal, behind = _alone(spot, standings, HARDWARE)
    if "all-reduce" in whats:
        return "link", "it is the exchange between the devices of this node" + (
            f": each alone is as fast as the others ({', '.join(equal)})" if equal and not behind else ""
        )
    if behind:
        return "not known", f"whether it is the machine or the program is not known: {', '.join(behind)} may be slow"
    if not equal:
        return "not known", "whether it is the machine or the program is not known: only the training step was measured"
    return "program", (
        f"only the training step is slow, and not the hardware under it ({', '.join(equal)} are as fast "
        "as the others'): look at what a program needs besides, such as the host's processor and the software"
    )


def _cause_of_pair(spot: Spot, group: Sequence[Slow], standings: Standings) -> tuple[Cause, str]:
    """Return what the other pairs of both nodes show. Pairs with a node whose link is slow show nothing."""
    bad = slow_nodes(standings, "link")
    others: dict[int, list[bool]] = {}
    for node in spot.nodes:
        pairs = {
            one: standing for one, standing in standings[group[0].key].items() if node in one.nodes and one != spot
        }
        others[node] = [
            _is_as_slow(standing, group[0].standing) for one, standing in pairs.items() if not bad & set(one.nodes)
        ]
    slow = [
        f"node {node} may be slow in {sum(them)} of its {len(them)} other pairs, too"
        for node, them in others.items()
        if any(them)
    ]
    known = [node for node, them in others.items() if them]
    if slow:
        return "link", f"it is the link between the two, or the network of one: {'; '.join(slow)}"
    if len(known) == 2:
        return "link", "it is the link between the two: neither of them is nearly as slow in its other pairs"
    if known:
        (other,) = set(spot.nodes) - set(known)
        fast = f"node {known[0]} is not nearly as slow in its other pairs"
        return "link", f"it is the link between the two, or the network of node {other}: {fast}"
    return "link", "it is the link between the two, or the network of one: neither has another pair to compare with"


def _cause_of_link(spot: Spot, group: Sequence[Slow], standings: Standings) -> tuple[Cause, str]:
    """Return what a node shows alone whose pairs are slow. If its entries are no pairs, even its best pair is slow."""
    pairs = {one.spot for one in group if one.key.kind == "pair"}
    of_node = {
        one for places in standings.values() for one in places if one.kind == "pair" and spot.nodes[0] in one.nodes
    }
    most = f"{len(pairs)} of its {len(of_node)} pairs are slow, so " if pairs else ""
    equal, behind = _alone(spot, standings, tuple(what for what, _ in NAMES))
    if equal and not behind:
        return (
            "link",
            f"{most}it is {'probably ' if pairs else ''}the node's link: alone, this node is as fast as the others",
        )
    shown = f"alone, it may be slow, too ({', '.join(behind)})" if behind else "nothing of it was compared alone"
    return "not known", f"{most}it is the node's link or the node itself: {shown}"


def _alone(spot: Spot, standings: Standings, whats: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the figures of a place, or of all devices of a node, that are as fast as the others', and the rest."""
    equal, behind = set[str](), set[str]()
    for key, places in standings.items():
        for place, standing in places.items():
            is_here = place.nodes == spot.nodes and spot.device in (None, place.device)
            if key.kind in ("device", "node") and key.what in whats and is_here and standing.others:
                (behind if _is_behind(standing) else equal).add(NAMES[key.what, key.figure])
    return sorted(equal - behind), sorted(behind)


def _is_behind(standing: Standing) -> bool:
    """Return whether a place is slow or may be."""
    return standing.slow or (standing.distance or 0.0) < -UNSURE


def _is_as_slow(other: Standing, slow: Standing) -> bool:
    """Return whether a pair is slow as well, or at least by half as much: a slow network slows all pairs of a node."""
    behind, least = (math.log1p(max(one.distance or 0.0, -0.9999)) for one in (other, slow))
    return other.slow or (_is_behind(other) and behind <= least / 2)
