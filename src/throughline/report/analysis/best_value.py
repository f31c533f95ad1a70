"""Which cells give the most samples for their money, and whether the repeats tell them apart."""

import math
from collections.abc import Mapping, Sequence

from throughline import ratios, statistics
from throughline.ratios import SURE
from throughline.records import Cost
from throughline.report.analysis.cells import Cell, in_rounds
from throughline.report.analysis.comparison import Pair
from throughline.report.analysis.judged_pairs import floor_of, noise_of


def best_value(costs: Mapping[Cell, Cost], again: Sequence[Pair]) -> tuple[list[Cell], str]:
    """Return the cell with the lowest cost per sample, and after it those that cannot be distinguished from it.

    No cell if no price is known or not all are in one currency; then the reason stands beside it. Samples for a unit of
    money are tested as throughputs are (see `ratios`): all others against the best. The figures decide which one that
    is, so p is adjusted for all pairs.
    """
    prices = {cell: price for cell, cost in costs.items() if (price := cost.price_per_device_hour)}
    currencies = sorted({costs[cell].currency or "" for cell in prices})
    if len(currencies) != 1:
        return [], f"prices are in {' and '.join(currencies)}" if currencies else "no price is known"
    rates = {cell: price * cell.topology.world / 3600 for cell, price in prices.items()}
    best, *others = sorted(rates, key=lambda cell: -cell.median / rates[cell])
    rounds = in_rounds(rates)
    tests = []
    for cell in others:
        mine, theirs = ([speed / rates[one] for speed in one.repeats] for one in (cell, best))
        found = noise_of((cell, best), again)
        if tested := ratios.tested(mine, theirs, paired=rounds, noise=found):
            tests.append((cell, tested))
    beaten, among = [], math.comb(len(rates), 2)
    for (cell, tested), p in zip(tests, statistics.holm([tested.p for _, tested in tests], among), strict=True):
        floor = floor_of((cell, best), again)
        if p < SURE and tested.log > 0 and tested.beyond(floor.log if floor else 0.0):
            beaten.append(cell)
    return [best, *(cell for cell in others if cell not in beaten)], ""
