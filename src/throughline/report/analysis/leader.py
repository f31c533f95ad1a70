"""Which framework of a benchmark is the fastest, and what its tests do not tell apart from it."""

from collections.abc import Iterable, Sequence

from throughline.report.analysis import advice
from throughline.report.analysis.asked_pairs import best_of_others, fastest, without_figure
from throughline.report.analysis.cells import Cell, Group
from throughline.report.analysis.comparison import Pair


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
    wins = all(
        other.equivalence == "equal" and not advice.other_work(first.settings, other.settings) for other in others
    )
    return first if others and wins and not not_beaten(first, others, pairs, beyond_runs=True) else None


def not_beaten(first: Cell, others: Sequence[Cell], pairs: Sequence[Pair], *, beyond_runs: bool) -> list[str]:
    """Return the frameworks of `others` that no pair finds slower than `first`.

    beyond_runs: a verdict about these runs alone does not count.
    """
    beaten = []
    for pair in pairs:
        if pair.floor or not beyond_runs:
            if pair.other is first and pair.verdict == "faster":
                beaten.append(pair.base)
            if pair.base is first and pair.verdict == "slower":
                beaten.append(pair.other)
    return [other.framework for other in others if other not in beaten]


def usable(cells: Iterable[Cell], pairs: Iterable[Pair]) -> Cell | None:
    """Return the cell with the highest median whose precision gains something; None without a cell.

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

    cells = list(cells)
    return max([cell for cell in cells if pays(cell)] or cells, key=lambda cell: cell.median, default=None)
