"""Compare the ranks of each cell with each other: which of them is slow by itself, and how long the others wait for it.

With an exchange in each step, every rank takes as long as the slowest. So the times of a usual run do not name it. The
extra `no_gradient_sync` does: there each rank trains alone, beside the others. The matrix product of each rank names it
too. Both are judged together, for all cells of a benchmark as one family (outliers.py).

Ranks that share cores, or a machine with other work, differ in a run by far more than equal devices do, and one of them
is always the slowest. So the repeats have to name the same rank again and again. If ranks are equal, then each of N is
among the k slowest of all n repeats with a probability of (k / N)^n. A verdict needs this to be below 5 % for all ranks
and figures of the cell together. A single repeat can give none.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from throughline import outliers, statistics
from throughline.outliers import Peers, Standing
from throughline.records import CellRecord, RankFigures
from throughline.report.analysis.cells import Cell, Group
from throughline.report.analysis.derived_runs import derived

SOLO, PRODUCT = "solo_step_s", "matmul_flops_per_s"
SURE = 0.05
"""The probability that equal ranks of a cell come in the same place by chance, repeat after repeat."""
NO_SOLO = "only runs without exchange time each rank by itself (extra no_gradient_sync)"
NO_PRODUCT = "the records have no matrix product of each rank"


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


@dataclass(frozen=True)
class _Known:
    """The figures of a cell's ranks, by figure, rank and repeat."""

    cell: Cell
    places: Sequence[RankFigures]
    figures: Mapping[str, Mapping[int, Mapping[int, float]]]

    @property
    def name(self) -> tuple[str, str, str]:
        return self.cell.group.name, self.cell.framework, str(self.cell.topology)


def standings(groups: Iterable[Group], everything: Iterable[Group]) -> list[RankStanding]:
    """Return every rank of every cell with several ranks, if something is known of them by themselves."""
    everything = list(everything)
    measured = [cell for group in groups if group.exchanges for cell in group.measured]
    cells = [known for cell in measured if (known := _known(cell, everything))]
    judged = outliers.judge({
        (known.name, figure): Peers(values, less=figure == SOLO)
        for known in cells
        for figure, values in known.figures.items()
    })  # fmt: skip
    return [
        standing
        for known in cells
        for standing in _of_cell(
            known, {figure: _repeated(known, figure, judged[known.name, figure]) for figure in known.figures}
        )
    ]


def _repeated(known: _Known, figure: str, standings: Mapping[int, Standing]) -> dict[int, Standing]:
    """Return the standings, without the verdicts that equal ranks could get by chance in so few repeats."""
    tests = len(known.places) * len(known.figures)
    values = known.figures[figure]
    return {
        rank: replace(own, slow=own.slow and tests * chance(values, rank, figure == SOLO) < SURE)
        for rank, own in standings.items()
    }


def chance(values: Mapping[int, Mapping[int, float]], rank: int, less: bool) -> float:
    """Return the probability that a rank is always as far behind as it was, if all ranks are equal.

    values: by rank and repeat; less: less is better.
    """
    last, ranks = 1, len(values)
    for repeat, value in values[rank].items():
        others = [own[repeat] for other, own in values.items() if other != rank and repeat in own]
        last = max(last, 1 + sum(other >= value if less else other <= value for other in others))
    return float((last / ranks) ** len(values[rank]))


def unequal_work(group: Group) -> bool:
    """True if ranks compute different numbers of tokens, so that their steps differ by their data."""
    options = group.summary.options
    return options.remove_padding is not False and options.data == "real"


def _known(cell: Cell, everything: Iterable[Group]) -> _Known | None:
    """Return what is known of a cell's ranks, with and without exchange."""
    alone, unlike = derived(cell, "no_gradient_sync", everything)
    records = {SOLO: alone.record} if alone and not unlike else {}
    records[PRODUCT] = cell.record
    figures = {figure: values for figure, record in records.items() if (values := _values(record, figure))}
    places = next((record.ranks for record in records.values() if record.ranks), None)
    return _Known(cell, places, figures) if places and figures else None


def _values(cell: CellRecord, figure: str) -> dict[int, dict[int, float]]:
    """Map each rank to its values by repeat; {} if the cell has none."""
    found = {rank.rank: getattr(rank, figure) for rank in cell.ranks or ()}
    return {
        rank: {repeat: value for repeat, value in enumerate(values, 1) if value is not None}
        for rank, values in found.items()
        if values
    }


def _of_cell(known: _Known, judged: Mapping[str, Mapping[int, Standing]]) -> list[RankStanding]:
    solo = {rank: _plain(own) if unequal_work(known.cell.group) else own for rank, own in judged.get(SOLO, {}).items()}
    product, waits = judged.get(PRODUCT, {}), _waits(known.figures.get(SOLO, {}))
    return [
        RankStanding(
            known.cell,
            place.rank,
            place.node,
            place.device,
            _own(known.figures[SOLO], solo, place.rank, less=True) if solo else None,
            _own(known.figures[PRODUCT], product, place.rank, less=False) if product else None,
            waits.get(place.rank),
        )
        for place in known.places
    ]


def _plain(standing: Standing) -> Standing:
    """Return a standing without a verdict."""
    return replace(standing, p=None, p_holm=None, slow=False)


def _own(values: Mapping[int, Mapping[int, float]], standings: Mapping[int, Standing], rank: int, less: bool) -> Own:
    """Return a rank's standing with the range of its distances: in each repeat from the others that are not slow."""
    others = [other for other in values if other != rank and not standings[other].slow] or list(values)
    distances = []
    for repeat, value in values[rank].items():
        middle = statistics.median([values[other][repeat] for other in others if repeat in values[other]])
        if middle:
            distances.append(middle / value - 1 if less else value / middle - 1)
    several = len(distances) > 1
    ends = (min(distances), max(distances)) if several else None
    return Own(standings[rank], ends, statistics.range_coverage(len(distances)) if several else None)


def _waits(values: Mapping[int, Mapping[int, float]]) -> dict[int, float]:
    """Return the median over the repeats of how much sooner each rank ends its step than the slowest rank."""
    repeats = {repeat for own in values.values() for repeat in own}
    slowest = {repeat: max(own[repeat] for own in values.values() if repeat in own) for repeat in repeats}
    waits = {rank: statistics.median([slowest[k] - value for k, value in own.items()]) for rank, own in values.items()}
    return {rank: wait for rank, wait in waits.items() if wait is not None}
