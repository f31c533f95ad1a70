"""Which cells give the most samples for their money, and whether the repeats tell them apart."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from throughline import ratios, statistics
from throughline.ratios import SURE, Tested
from throughline.report.analysis import noise
from throughline.report.analysis.noise import Twice
from throughline.report.analysis.sides import Side, in_rounds


@dataclass(frozen=True)
class Rated:
    """A side, and what a second on it takes: money, devices, or 1.0 if only its throughput counts."""

    side: Side
    per_second: float

    @property
    def median(self) -> float:
        """The samples for one unit, at the median."""
        assert self.side.value
        return self.side.value.median / self.per_second

    @property
    def repeats(self) -> list[float]:
        """The samples for one unit, of each repeat."""
        assert self.side.value
        return [speed / self.per_second for speed in self.side.value.repeats]


def by_value(sides: Sequence[Side], again: Sequence[Twice]) -> list[Side]:
    """Return the side with the lowest cost per sample, and after it those that cannot be distinguished from it.

    No side if not all costs are in one currency.
    """
    priced = [Rated(side, rate) for side in sides if (rate := _per_second(side))]
    currencies = {one.side.row.cell.cost.currency for one in priced if one.side.row.cell}
    return [one.side for one in best_of(priced, again)] if len(currencies) == 1 else []


def best_of(rated: Sequence[Rated], again: Sequence[Twice]) -> list[Rated]:
    """Return the one with the most samples for a unit, and after it those that cannot be distinguished from it.

    Samples for a unit are tested as throughputs are (see `ratios`): all others against the best. The figures decide
    which one that is, so p is adjusted for all pairs.
    """
    if not rated:
        return []
    best, *others = sorted(rated, key=lambda one: -one.median)
    rounds = in_rounds(one.side for one in rated)
    tests = [(one, tested) for one in others if (tested := ratio(one, best, again, paired=rounds))]
    beaten, among = set(), math.comb(len(rated), 2)
    for (one, tested), p in zip(tests, statistics.holm([tested.p for _, tested in tests], among), strict=True):
        floor = noise.floor_of((one.side, best.side), again)
        if p < SURE and tested.log > 0 and tested.beyond(floor.log if floor else 0.0):
            beaten.add(id(one))
    return [best, *(one for one in others if id(one) not in beaten)]


def ratio(one: Rated, base: Rated, again: Sequence[Twice], *, paired: bool) -> Tested | None:
    """Return the tested ratio of the samples for a unit of `base` over those of `one`; None without three repeats."""
    found = noise.noise_of((one.side, base.side), again)
    return ratios.tested(one.repeats, base.repeats, paired=paired, noise=found)


def _per_second(side: Side) -> float | None:
    """Return what the devices of a side cost in a second."""
    cell = side.row.cell
    price = cell.cost.price_per_device_hour if cell and cell.cost.per_million_samples else None
    return price * cell.world_size / 3600 if cell and price else None
