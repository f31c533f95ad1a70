"""Plan a whole training: what each topology would take in hours and money, whether it was measured or predicted.

hours = samples of the training / throughput / 3600
money = hours x devices x price of a device hour

Two ways are compared by a step only if their surroundings are alike. Of ways that cannot be distinguished, none is
called the cheapest or the fastest alone.

The range of a measured throughput is that of its mean over repeats: Student's t on logarithms, at the same probability
as the predictions. The range of a ratio of two throughputs takes their errors as independent. Two predictions from the
same measurements err alike, so their ratio is known better than this range says.
"""

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from throughline.prediction import LEVEL
from throughline.records import Cell, Cost, PredictedCell, PredictedSeries
from throughline.report.analysis.best_value import Rated, best_of
from throughline.report.analysis.cells import Group, Row
from throughline.report.analysis.noise import Twice
from throughline.report.analysis.sides import Side, unlike
from throughline.spec import Topology


@dataclass(frozen=True)
class Range:
    """A figure with its ends; without ends nothing is known about its error."""

    middle: float
    low: float | None = None
    high: float | None = None

    def times(self, factor: float) -> "Range":
        ends = [None if end is None else end * factor for end in (self.low, self.high)]
        return Range(self.middle * factor, *ends)

    @property
    def inverse(self) -> "Range":
        return Range(1 / self.middle, self.high and 1 / self.high, self.low and 1 / self.low)

    def over(self, other: "Range") -> "Range":
        """Return the ratio of two figures whose errors are independent."""
        ratio = self.middle / other.middle
        if None in (self.low, self.high, other.low, other.high):
            return Range(ratio)
        assert self.low and self.high and other.low and other.high
        below = math.hypot(math.log(self.middle / self.low), math.log(other.high / other.middle))
        above = math.hypot(math.log(self.high / self.middle), math.log(other.middle / other.low))
        return Range(ratio, ratio * math.exp(-below), ratio * math.exp(above))


@dataclass(frozen=True)
class Way:
    """One way to train: a framework on a topology. predicted: nobody has measured it.

    cost: of a measured cell on devices of this kind, for the price of a device hour and the samples of the training.
    """

    group: Group
    row: Row
    topology: Topology
    speed: Range
    predicted: bool
    cost: Cost

    @property
    def side(self) -> Side:
        """The row it was measured on, or was predicted from."""
        return Side(self.group, self.row)

    @property
    def hours(self) -> Range | None:
        """The hours of the whole training; None if its samples are not known."""
        samples = self.cost.total_samples
        return self.speed.inverse.times(samples / 3600) if samples else None

    @property
    def per_hour(self) -> float | None:
        """The price of an hour on all devices."""
        price = self.cost.price_per_device_hour
        return price * self.topology.world if price else None

    @property
    def money(self) -> Range | None:
        """The price of the whole training."""
        return self.hours.times(self.per_hour) if self.hours and self.per_hour else None

    @property
    def samples_per_money(self) -> Range | None:
        """The samples for one unit of money."""
        return self.speed.times(3600 / self.per_hour) if self.per_hour else None

    def meets(self, deadline_hours: float) -> bool:
        """True if the training takes no longer than the deadline even at the slow end of its range.

        The range holds the throughput with 90 %, so the slow end is passed with less than 10 %.
        """
        return self.hours is not None and self.hours.high is not None and self.hours.high <= deadline_hours


@dataclass(frozen=True)
class Step:
    """From one way to the next larger one: how many times the speed, and how many times the money or device hours."""

    before: Way
    after: Way

    @property
    def speed(self) -> Range:
        return self.after.speed.over(self.before.speed)

    @property
    def paid(self) -> Range:
        """What the same samples cost after the step, divided by what they cost before it."""
        return self.speed.inverse.times(self.after.topology.world / self.before.topology.world)

    @property
    def unlike(self) -> tuple[str, ...]:
        """Why the two must not be compared: they ran on other devices or in other environments."""
        return unlike(self.before.side, self.after.side)


def ways(group: Group, predicted: PredictedSeries) -> list[Way]:
    """Return the ways to train with one framework, batch and precision, from the fewest devices on."""
    rows = [row for row in group.series(predicted.framework) if not row.topology.simulated and not row.unequal]
    measured = [Way(group, row, row.topology, of_repeats(row.cell), False, row.cell.cost) for row in rows if row.cell]
    if not measured:
        return []
    largest = measured[-1]
    foretold = [
        Way(group, largest.row, Topology.parse(cell.topology), _range(cell), True, largest.cost)
        for cell in predicted.predicted
    ]
    return sorted([*measured, *foretold], key=lambda way: (way.topology.world, way.topology))


def _range(cell: PredictedCell) -> Range:
    return Range(cell.samples_per_s, cell.low, cell.high)


def of_repeats(cell: Cell) -> Range:
    """Return a cell's median throughput, with the range of its mean over repeats; without ends for a single repeat."""
    values = [math.log(value) for value in cell.values if value]
    assert cell.median_speed
    if len(values) < 2:
        return Range(cell.median_speed)
    from scipy import special

    far = float(special.stdtrit(len(values) - 1, (1 + LEVEL) / 2))
    half = far * statistics.stdev(values) / math.sqrt(len(values))
    return Range(cell.median_speed, cell.median_speed * math.exp(-half), cell.median_speed * math.exp(half))


def steps(ways: Sequence[Way]) -> Iterator[Step]:
    """Yield the steps to more devices of the same framework, batch and precision."""
    return (Step(*pair) for pair in pairwise(ways) if pair[0].topology.world < pair[1].topology.world)


def cheapest(ways: Sequence[Way], deadline_hours: float, again: Sequence[Twice]) -> list[Way]:
    """Return the cheapest way that meets the deadline, and after it those that cannot be distinguished from it.

    It is the cheapest by money, or by device hours if the prices are not known or not in one currency.
    """
    meeting = [way for way in ways if way.meets(deadline_hours)]
    if in_one_currency(meeting):
        return _least(meeting, lambda way: way.per_hour or 0.0, again)
    return _least(meeting, lambda way: way.topology.world, again)


def in_one_currency(ways: Sequence[Way]) -> bool:
    """True if the price of every way is known, and all prices are in one currency."""
    return all(way.money for way in ways) and len({way.cost.currency for way in ways}) == 1


def fastest(ways: Sequence[Way], again: Sequence[Twice]) -> list[Way]:
    """Return the fastest way, and after it those that cannot be distinguished from it."""
    return _least(ways, lambda way: 1.0, again)


def _least(ways: Sequence[Way], per_hour: Callable[[Way], float], again: Sequence[Twice]) -> list[Way]:
    """Return the way that takes the least for its samples, and after it those that cannot be distinguished from it.

    per_hour: what a way takes in an hour. Two measured ways are told apart by a test, as best values are. A predicted
    one is told apart if the range of the ratio does not reach 1.
    """
    ordered = sorted(ways, key=lambda way: per_hour(way) / way.speed.middle)
    if not ordered:
        return []
    first = ordered[0]
    rated = {id(way): Rated(way.side, per_hour(way)) for way in ways if not way.predicted}
    tested = {id(one) for one in best_of([*rated.values()], again)} if not first.predicted else set()

    def is_open(way: Way) -> bool:
        if not (way.predicted or first.predicted):
            return id(rated[id(way)]) in tested
        ratio = way.speed.over(first.speed).times(per_hour(first) / per_hour(way))
        return ratio.high is None or ratio.high >= 1

    return [first, *(way for way in ordered[1:] if is_open(way))]
