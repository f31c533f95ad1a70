"""The break-even price: at which price of a device hour one machine is worth as much as another.

Both do the same work on as many devices. Then an hour of a device there is worth as many hours of a device here as its
throughput is times ours. The interval of that ratio is the one of two configurations (see `ratios`).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from throughline import ratios
from throughline.ratios import Tested
from throughline.report.analysis import noise
from throughline.report.analysis.machines import Compared, Option, work
from throughline.report.analysis.noise import Twice


@dataclass(frozen=True)
class BreakEven:
    """Two machines by their fastest options on as many devices. ratio: throughput of `other` over that of `base`.

    tested: the ratio with its interval; None with fewer than three repeats on a side.
    """

    base: Option
    other: Option
    ratio: float
    tested: Tested | None

    @property
    def base_price(self) -> float | None:
        """The price of a device hour of the base, if it is known."""
        return self.base.cell.cost.price_per_device_hour

    @property
    def verdict(self) -> str | None:
        """Whether the other machine's price is below or above its break-even price; None without prices or test."""
        base, other = self.base.cell.cost, self.other.cell.cost
        if not (self.tested and base.currency == other.currency):
            return None
        if not (base.price_per_device_hour and other.price_per_device_hour):
            return None
        paid = other.price_per_device_hour / base.price_per_device_hour
        if paid < self.tested.low:
            return "below"
        return "above" if paid > self.tested.high else "inconclusive"


def break_evens(compared: Sequence[Compared]) -> Iterator[BreakEven]:
    """Yield the break-even of every two machines or devices that do the same work.

    They are compared on the fewest and on the most devices that both were measured on.
    """
    again = compared[0].again if compared else ()
    alike: dict[str, dict[tuple[str, str], list[Option]]] = {}
    for option in (option for same in compared for option in same.options if not option.side.row.unequal):
        group, row = option.side.group, option.side.row
        if device := group.device(row):
            alike.setdefault(work(group, row), {}).setdefault((option.machine, device.name), []).append(option)
    for kinds in alike.values():
        for base, other in combinations(kinds.values(), 2):
            both = sorted({option.cell.world_size for option in base} & {option.cell.world_size for option in other})
            for world in dict.fromkeys([*both[:1], *both[-1:]]):
                yield _between(_fastest(base, world), _fastest(other, world), again)


def _fastest(options: Iterable[Option], world: int) -> Option:
    on_as_many = [option for option in options if option.cell.world_size == world]
    return max(on_as_many, key=lambda option: option.cell.median_speed or 0.0)


def _between(base: Option, other: Option, again: Sequence[Twice]) -> BreakEven:
    before, after = base.side.value, other.side.value
    assert before and after
    found = noise.noise_of((base.side, other.side), again)
    tested = ratios.tested(before.repeats, after.repeats, paired=False, noise=found)
    return BreakEven(base, other, tested.ratio if tested else after.median / before.median, tested)
