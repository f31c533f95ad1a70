"""Hardware that was refused before a measurement, because it is broken: it has no figures that could be slow."""

from __future__ import annotations

from collections.abc import Iterable

from throughline.acceptance.measured import Spot
from throughline.records.acceptance import Finding
from throughline.records.visit import Broken


def find(broken: Iterable[Broken], nodes: int) -> list[Finding]:
    """Return a finding for each GPU, or each node, that was refused for a fault of its own. nodes: of the fleet.

    A node that lacks a GPU is broken if most others have theirs. Otherwise somebody has asked for too many.
    """
    faults: dict[Spot, dict[str, None]] = {}
    for one in broken:
        spot = Spot("node" if one.device is None else "device", (one.node,), one.device)
        faults.setdefault(spot, {})[one.fault] = None
    lacking = [spot for spot in faults if spot.device is None]
    return [
        _finding(spot, list(found))
        for spot, found in sorted(faults.items(), key=str)
        if spot.device is not None or 2 * len(lacking) < nodes
    ]


def _finding(spot: Spot, faults: list[str]) -> Finding:
    because = "it is the machine: a measurement there was refused"
    return Finding(
        place=spot.entry,
        slow=[],
        cause="machine",
        because=because,
        facts=[],
        sentence=f"{spot} {' and '.join(faults)}. {because[0].upper()}{because[1:]}.",
    )
