"""Each figure of a fleet with all of its places, each of them beside its peers. outliers.py decides who is slow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from throughline import outliers
from throughline.acceptance import limits
from throughline.acceptance.measured import FIGURE, Measured
from throughline.records.acceptance import FleetFigure, Standing
from throughline.study.acceptance import Place, PlaceKind

Family = dict[int, outliers.Peers[Place]]
Outcomes = dict[int, dict[Place, outliers.Standing]]


def judge(measured: Measured, tolerance: float) -> list[FleetFigure]:
    """Return every figure. The figures of peers are judged as one family, and the others only have distances."""
    bare = list(_bare(measured, tolerance))
    compared = of_peers([figure for figure, _ in bare])
    family = {number: peers for number, (figure, peers) in enumerate(bare) if figure in compared}
    outcomes = _in_two_looks(family, {number: bare[number][0].kind for number in family})
    figures = []
    for number, (figure, peers) in enumerate(bare):
        judged = number in family and len(peers.values) >= outliers.LEAST_PARTS
        places = outcomes.get(number) or outliers.judge({number: peers})[number]
        standings = [_standing(place, peers, places[place], judged) for place in sorted(places)]
        figures.append(figure.model_copy(update={"judged": judged, "standings": standings}))
    return figures


def _bare(measured: Measured, tolerance: float) -> Iterator[tuple[FleetFigure, outliers.Peers[Place]]]:
    """Yield each figure without its places, and their values by repeat."""
    for names, lines in measured.values().groupby(FIGURE, sort=False):
        key: dict[str, Any] = dict(zip(FIGURE, names, strict=True))
        figure = FleetFigure.model_validate(key | {"size": int(key["size"]) or None})
        limit, source = limits.of_hardware(figure, measured) or (None, None)
        values: dict[Place, dict[int, float]] = {}
        for place, repeat, value in zip(lines.place, lines.repeat, lines.value, strict=True):
            values.setdefault(place, {})[int(repeat)] = float(value)
        peers = outliers.Peers(values, figure.better == "less", figure.tolerance(tolerance))
        yield figure.model_copy(update={"limit": limit, "limit_source": source}), peers


def largest(figures: Sequence[FleetFigure]) -> list[FleetFigure]:
    """Return the figures that are compared: of an all-reduce, the bandwidth of the largest message and the latency."""
    sizes: dict[PlaceKind, int] = {}
    for figure in figures:
        if figure.figure == "bus_bandwidth":
            sizes[figure.kind] = max(figure.size or 0, sizes.get(figure.kind, 0))
    return [figure for figure in figures if figure.figure != "bus_bandwidth" or figure.size == sizes[figure.kind]]


def of_peers(figures: Sequence[FleetFigure]) -> list[FleetFigure]:
    """Return the figures whose places are peers, by name."""
    peers = [figure for figure in largest(figures) if figure.kind != "all"]
    return sorted(peers, key=lambda figure: (figure.what, figure.figure, str(figure.size), figure.kind))


def _in_two_looks(family: Family, kinds: Mapping[int, PlaceKind]) -> Outcomes:
    """Judge all figures as one family, then once more with pairs of sound nodes only, if a node is slow.

    The pairs of a slow node are slow because of it. Of four nodes they are half of all pairs, and hide a slow link. A
    pair is slow if one of both looks says so. If it is the network of a node that is slow, none of its pairs is. With
    equal nodes there is no second look, so it gives no alarm of its own.
    """
    first = outliers.judge(family)
    slow: dict[PlaceKind, set[int]] = {"link": set(), "device": set(), "node": set(), "pair": set()}
    for number, places in first.items():
        slow[kinds[number]] |= {place.nodes[0] for place, standing in places.items() if standing.slow}
    away = slow["link"] | slow["device"] | slow["node"]
    if not away:
        return first
    pairs = [number for number in family if kinds[number] == "pair"]
    sound = {
        number: replace(peers, values={place: of for place, of in peers.values.items() if not away & set(place.nodes)})
        for number, peers in family.items()
        if number in pairs
    }
    second = outliers.judge(family | sound)
    for number, places in second.items():
        for place, standing in first[number].items():
            is_explained = number in pairs and bool(slow["link"] & set(place.nodes))
            again = places.get(place, standing)
            first[number][place] = replace(again, slow=not is_explained and (standing.slow or again.slow))
    return first


def _standing(place: Place, peers: outliers.Peers[Place], outcome: outliers.Standing, judged: bool) -> Standing:
    values = vars(outcome) | {
        "place": place,
        "repeats": {str(repeat): value for repeat, value in sorted(peers.values[place].items())},
        "verdict": "not judged" if not judged else "slow" if outcome.slow else "as its peers",
        "because": None,
    }
    values |= {} if judged else {"p": None, "p_holm": None}
    return Standing.model_validate({name: values[name] for name in Standing.model_fields})
