"""Compare the ranks of each cell with each other: which of them is slow by itself, and how long the others wait for it.

With an exchange in each step, every rank takes as long as the slowest. So the times of a usual run do not name it. The
extra `no_gradient_sync` does: there each rank trains alone, beside the others. The matrix product of each rank names it
too. Both are judged together, for all cells of a benchmark as one family (outliers.py).

Ranks that share cores, or a machine with other work, differ in a run by far more than equal devices do, and one of them
is always the slowest. So the repeats have to name the same rank again and again. If ranks are equal, then each of N is
among the k slowest of all n repeats with a probability of (k / N)^n. A verdict needs this to be below 5 % for all ranks
and figures of the cell together. A single repeat can give none.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from throughline import outliers, statistics
from throughline.outliers import Peers, Standing
from throughline.records import RankFigures
from throughline.report.analysis.cells import Cell, Group
from throughline.report.analysis.differences import derived

SOLO, PRODUCT = "solo_step_s", "matmul_flops_per_s"
SURE = 0.05
"""The probability that equal ranks of a cell come in the same place by chance, repeat after repeat."""


@dataclass(frozen=True)
class Own:
    """One figure of one rank: how it stands, and the range of its distances from the others over the repeats.

    coverage: the probability that the range has the true median distance; None with a single repeat.
    """

    standing: Standing
    distances: tuple[float, float] | None
    coverage: float | None


@dataclass(frozen=True)
class RankStanding:
    """One rank of a cell. solo, product: its step without exchange and its matrix product, if they are known.

    waits_s: how long it would wait in each step for the slowest rank, from the steps without exchange.
    """

    cell: Cell
    rank: int
    node: int
    device: int
    solo: Own | None
    product: Own | None
    waits_s: float | None

    @property
    def slow(self) -> list[str]:
        """The figures in which the rank stands out."""
        figures = {"step": self.solo, "matrix product": self.product}
        return [name for name, own in figures.items() if own and own.standing.slow]

    @property
    def distance(self) -> float:
        """The worst of its distances from the others; 0 if none is known."""
        known = [own.standing.distance for own in (self.solo, self.product) if own]
        return min((distance for distance in known if distance is not None), default=0.0)


Frames = dict[str, pd.DataFrame]
"""Each known figure of the ranks of a cell, with a row for each rank and a column for each repeat."""


def standings(groups: Iterable[Group], everything: Sequence[Group]) -> list[RankStanding]:
    """Return every rank of every cell with several ranks, if something is known of them by themselves."""
    cells = [cell for group in groups if group.exchanges for cell in group.measured]
    known = {cell: found for cell in cells if (found := _known(cell, everything))[1]}
    peers = {
        (cell, figure): Peers(_by_rank(frame), less=figure == SOLO)
        for cell, (_, frames) in known.items()
        for figure, frame in frames.items()
    }
    judged = outliers.judge(peers)
    return [standing for cell, (ranks, frames) in known.items() for standing in _of_cell(cell, ranks, frames, judged)]


def _by_rank(frame: pd.DataFrame) -> dict[int, dict[int, float]]:
    """Map each rank to its values by repeat."""
    return {int(str(rank)): {int(str(k)): v for k, v in row.dropna().items()} for rank, row in frame.iterrows()}


def _known(cell: Cell, everything: Sequence[Group]) -> tuple[Sequence[RankFigures], Frames]:
    """Return a cell's ranks, and what is known of them with and without exchange."""
    alone, unlike = derived(cell, "no_gradient_sync", everything)
    records = {SOLO: alone.record} if alone and not unlike else {}
    records[PRODUCT] = cell.record
    frames: Frames = {}
    for figure, record in records.items():
        values = {rank.rank: known for rank in record.ranks or () if (known := getattr(rank, figure))}
        if values:
            frames[figure] = pd.DataFrame(values, index=range(1, record.n + 1), dtype=float).T
    return next((record.ranks for record in records.values() if record.ranks), ()), frames


def _of_cell(
    cell: Cell, ranks: Sequence[RankFigures], frames: Frames, judged: dict[tuple[Cell, str], dict[int, Standing]]
) -> Iterator[RankStanding]:
    owns = dict[str, dict[int, Own]]()
    for figure, frame in frames.items():
        less, places = figure == SOLO, dict(judged[cell, figure])
        for number, place in places.items():
            if less and unequal_work(cell.group):
                place = replace(place, p=None, p_holm=None, slow=False)
            by_chance = len(ranks) * len(frames) * chance(frame, number, less)
            places[number] = replace(place, slow=place.slow and by_chance < SURE)
        slow = [number for number, place in places.items() if place.slow]
        owns[figure] = {number: _own(frame, place, number, slow, less) for number, place in places.items()}
    waits = (frames[SOLO].max() - frames[SOLO]).median(axis=1).to_dict() if SOLO in frames else {}
    for rank in ranks:
        solo, product = (owns.get(figure, {}).get(rank.rank) for figure in (SOLO, PRODUCT))
        yield RankStanding(cell, rank.rank, rank.node, rank.device, solo, product, waits.get(rank.rank))


def chance(values: pd.DataFrame, rank: int, less: bool) -> float:
    """Return the probability that a rank is always as far behind as it was, if all ranks are equal.

    values: a row for each rank, a column for each repeat; less: less is better.
    """
    speeds = -values if less else values
    own = speeds.loc[rank].dropna()
    last = int(speeds[own.index].le(own).sum().to_numpy().max())  # with the rank itself
    return float((last / len(values)) ** len(own))


def unequal_work(group: Group) -> bool:
    """True if ranks compute different numbers of tokens, so that their steps differ by their data."""
    options = group.summary.options
    return options.remove_padding is not False and options.data == "real"


def _own(values: pd.DataFrame, standing: Standing, rank: int, slow: list[int], less: bool) -> Own:
    """Return a rank's standing with the range of its distances: in each repeat from the others that are not slow."""
    others = [other for other in values.index if other != rank and other not in slow] or list(values.index)
    middle, own = values.loc[others].median(), values.loc[rank]
    distances = ((middle / own if less else own / middle) - 1)[middle > 0].dropna().to_numpy()
    if len(distances) < 2:
        return Own(standing, None, None)
    return Own(standing, (float(distances.min()), float(distances.max())), statistics.range_coverage(len(distances)))
