"""Which framework of a benchmark is the fastest, and which cells are the best value, as far as the tests tell."""

import math
from collections.abc import Iterable, Mapping, Sequence

from throughline import ratios
from throughline.records import Cost
from throughline.report.analysis import advice
from throughline.report.analysis.cells import Cell, Group, in_rounds, real
from throughline.report.analysis.comparison import Comparison, Pair, adjusted
from throughline.report.analysis.judged_pairs import best_of_others, fastest, floor_of, noise_of, without_figure


def leader(groups: Sequence[Group], pairs: Sequence[Pair]) -> Cell | None:
    """Return the cell with the highest median, if its framework is the fastest of the benchmark; else None.

    That takes a test for every other framework, at that framework's own best place, which finds it slower beyond the
    A/A runs. All of them have to be proven equal, and their settings have to be those of the same work. They need a
    figure on its topology in its precision, too: fewer devices are slower for other reasons. A benchmark with a single
    framework has no leader.
    """
    first = fastest(groups)
    if first is None or first.equivalence != "equal" or without_figure(groups, first):
        return None
    others = best_of_others(groups, first)
    alike = all(one.equivalence == "equal" and not advice.other_work(first.settings, one.settings) for one in others)
    return first if others and alike and not not_beaten(first, others, pairs, beyond_runs=True) else None


def not_beaten(first: Cell, others: Sequence[Cell], pairs: Sequence[Pair], *, beyond_runs: bool) -> list[str]:
    """Return the frameworks of `others` that no pair finds slower than `first`.

    beyond_runs: a verdict about these runs alone does not count.
    """
    counted = [pair for pair in pairs if pair.floor or not beyond_runs]
    beaten = [pair.base for pair in counted if pair.other is first and pair.verdict == "faster"]
    beaten += [pair.other for pair in counted if pair.base is first and pair.verdict == "slower"]
    return [other.framework for other in others if other not in beaten]


def usable(cells: Iterable[Cell], pairs: Iterable[Pair]) -> Cell | None:
    """Return the cell with the highest median whose precision gains something; None without a cell.

    Simulated nodes count only where there are no others.
    A lower precision gains nothing where its comparison with fp32 says so. Where the device only emulates it, the
    comparison has to find it faster. If no precision is left, the highest median of all counts.
    """
    gains = {
        (pair.other.framework, str(pair.other.topology), pair.other.group.precision): pair.gains
        for pair in pairs
        if pair.kind == "precisions"
    }

    def pays(cell: Cell) -> bool:
        gain = gains.get((cell.framework, str(cell.topology), cell.group.precision))
        emulated = cell.group.precision == "fp16" and cell.device is not None and cell.device.fp16_native is False
        return gain is True or (gain is None and not (emulated or cell.settings.get("emulated_products")))

    cells = real(cells)
    return max([cell for cell in cells if pays(cell)] or cells, key=lambda cell: cell.median, default=None)


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
    rounds, pairs = in_rounds(rates), []
    for cell in others:
        mine, theirs = ([speed / rates[one] for speed in one.repeats] for one in (cell, best))
        tested = ratios.tested(mine, theirs, paired=rounds, noise=noise_of((cell, best), again))
        floor, among = floor_of((cell, best), again), math.comb(len(rates), 2)
        pairs.append(Comparison(before=mine, after=theirs, tested=tested, floor=floor, among=among))
    verdicts = [pair.verdict for pair in adjusted(pairs)]
    return [best, *(cell for cell, verdict in zip(others, verdicts, strict=True) if verdict != "faster")], ""
