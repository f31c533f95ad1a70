"""Which cells give the most samples for their money, and whether the repeats tell them apart."""

import math
from collections.abc import Sequence

from throughline import ratios, statistics
from throughline.ratios import SURE, Tested
from throughline.report.analysis import noise
from throughline.report.analysis.noise import Twice
from throughline.report.analysis.sides import Side, in_rounds


def by_value(sides: Sequence[Side], again: Sequence[Twice]) -> list[Side]:
    """Return the side with the lowest cost per sample, and after it those that are not told apart from it.

    No side if not all costs are in one currency. Costs are tested as throughputs are (see `ratios`): all others against
    the cheapest. The figures decide which one that is, so p is adjusted for all pairs.
    """
    priced = {id(side): rate for side in sides if (rate := _per_second(side))}
    sides = [side for side in sides if id(side) in priced]
    currencies = {side.row.cell.cost.currency for side in sides if side.row.cell and side.row.cell.cost}
    if len(currencies) != 1:
        return []
    cheapest, *others = sorted(sides, key=lambda side: -_samples(side, priced[id(side)])[0])
    rounds = in_rounds(sides)
    tests: list[tuple[Side, Tested]] = []
    for side in others:
        value, best = (_samples(one, priced[id(one)])[1] for one in (side, cheapest))
        found = noise.noise_of((side, cheapest), again)
        if tested := ratios.tested(value, best, paired=rounds, noise=found):
            tests.append((side, tested))
    beaten, among = set(), math.comb(len(sides), 2)
    for (side, tested), p in zip(tests, statistics.holm([tested.p for _, tested in tests], among), strict=True):
        floor = noise.floor_of((side, cheapest), again)
        if p < SURE and tested.beyond(floor.log if floor else 0.0):
            beaten.add(id(side))
    return [cheapest, *(side for side in others if id(side) not in beaten)]


def _per_second(side: Side) -> float | None:
    """Return what the devices of a side cost in a second."""
    cell = side.row.cell
    price = cell.cost.price_per_device_hour if cell and cell.cost and cell.cost.per_million_samples else None
    return price * cell.world_size / 3600 if cell and price else None


def _samples(side: Side, per_second: float) -> tuple[float, list[float]]:
    """Return the samples for one unit of money: at the median, and of each repeat."""
    value = side.value
    assert value
    return value.median / per_second, [speed / per_second for speed in value.repeats]
