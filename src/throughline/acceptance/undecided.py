"""What a comparison of equal places cannot tell: which of two is wrong, or which half of a few."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from throughline import outliers, statistics
from throughline.acceptance.measured import FigureKey, Spot, Values
from throughline.outliers import LEAST_PARTS, Standing
from throughline.records.acceptance import NAMES, PlaceKind, first_of

FEW = 10
"""Of so few places, the result says how many slow ones can be told from the rest."""
KINDS: dict[PlaceKind, str] = {"device": "devices", "node": "nodes", "pair": "pairs"}


def differences(
    standings: Mapping[FigureKey, Mapping[Spot, Standing]], values: Values, tolerance: float, slow_nodes: set[int]
) -> Iterator[str]:
    """Yield where places differ, so that nobody can tell which of them are slow: of two, or of two halves.

    slow_nodes: nodes that are slow themselves. Their pairs are slow because of them.
    """
    for key, every in standings.items():
        places = {spot: one for spot, one in every.items() if key.kind != "pair" or not slow_nodes & set(spot.nodes)}
        name = NAMES.get((key.what, key.figure), key.what)
        if len(places) == 2:
            slower, distance = min(((spot, standing.distance or 0.0) for spot, standing in places.items()), key=_second)
            if distance < -tolerance:
                yield (
                    f"{name}: {slower} is {-100 * distance:.1f} % slower than the only other one, and of two nobody "
                    "can tell which one is wrong"
                )
            continue
        one_is_slow = any(standing.slow for standing in places.values())
        half = None if one_is_slow else slower_half({spot: values[key][spot] for spot in places}, key.less, tolerance)
        if half:
            slow, distance = half
            yield (
                f"{name}: {first_of(map(str, slow))} ({len(slow)} of {len(places)}) are {-100 * distance:.1f} % slower "
                "than the others in every repeat, and without a clear majority nobody can tell which ones are wrong"
            )


def _second(pair: tuple[Spot, float]) -> float:
    return pair[1]


def slower_half(
    places: Mapping[Spot, Mapping[int, float]], less: bool, tolerance: float
) -> tuple[list[Spot], float] | None:
    """Return the slower group, and its distance from the others; None if there are no two groups.

    A group has more places than can be called slow, and at most half of all. In each repeat all of it is slower than
    all others, by more than the tolerance.
    """
    speeds = {
        spot: {repeat: 1 / value if less else value for repeat, value in of.items()} for spot, of in places.items()
    }
    medians = {spot: statistics.median(list(of.values())) or 0.0 for spot, of in speeds.items()}
    ordered = sorted(medians, key=medians.__getitem__)
    for count in range(outliers.most_slow(len(ordered)) + 1, len(ordered) // 2 + 1):
        slow, others = ordered[:count], ordered[count:]
        repeats = set.intersection(*(set(of) for of in speeds.values()))
        apart = [
            max(speeds[spot][repeat] for spot in slow) < (1 - tolerance) * min(speeds[spot][repeat] for spot in others)
            for repeat in repeats
        ]
        if len(apart) >= 2 and all(apart):
            middle = statistics.median([medians[spot] for spot in others]) or 1.0
            return sorted(slow), (statistics.median([medians[spot] for spot in slow]) or 0.0) / middle - 1
    return None


def limits(standings: Mapping[FigureKey, Mapping[Spot, Standing]]) -> Iterator[str]:
    """Yield how many slow places can be told from the rest, where there are few of a kind."""
    fewest: dict[PlaceKind, int] = {}
    for key, places in standings.items():
        if LEAST_PARTS <= len(places) < FEW and key.kind in KINDS:
            fewest[key.kind] = min(len(places), fewest.get(key.kind, len(places)))
    if fewest:
        told = (
            f"{outliers.most_slow(fewest[kind])} of {fewest[kind]} {KINDS[kind]}" for kind in KINDS if kind in fewest
        )
        yield (
            f"slow ones that can be told from the rest: at most {', '.join(told)}; if more are slow, they may pass "
            "for usual"
        )
