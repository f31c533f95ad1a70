"""The noise of a machine: by how much A/A runs differ, which measure one configuration twice (the extra `aa`).

They judge only runs of their own environment, workload and day.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from throughline import ratios
from throughline.numbers import percent
from throughline.ratios import Noise, Tested
from throughline.report.analysis.cells import Group
from throughline.report.analysis.sides import Side, differences, in_rounds

AA = "__aa"
NEAR = timedelta(days=1)
"""An A/A run judges only runs within this time of it."""


@dataclass(frozen=True)
class Floor:
    """The limit below which no difference is reported: the widest of `compared` A/A ratios of `what`.

    `log` is the size of its logarithm, so the limit is the same in both directions: 1.25 times and 0.8 times.
    """

    what: str
    log: float
    compared: int

    @property
    def share(self) -> float:
        """The limit as a share: 0.25 for 1.25 times and 0.8 times."""
        return math.expm1(self.log)

    @property
    def text(self) -> str:
        """The limit, and how sure it is: after k like differences, the next one is the largest with 1 in k + 1."""
        return (
            f"A/A runs of {self.what} measure the same configuration twice: the two differ by up to "
            f"{percent(self.share, 1)} here ({self.compared} compared; by chance, one new pair in {self.compared + 1} "
            "differs by more). The interval of a difference has to lie beyond this"
        )


@dataclass(frozen=True)
class Twice:
    """A configuration that was measured twice, and the ratio of the two; `tested` is None without three repeats."""

    origin: Side
    again: Side
    tested: Tested | None

    @property
    def log(self) -> float:
        """The logarithm of the tested ratio, or else of the medians' ratio."""
        before, after = self.origin.value, self.again.value
        assert before and after
        return self.tested.log if self.tested else math.log(after.median / before.median)

    def belongs(self, side: Side, *, to_any: bool = False) -> bool:
        """True if it was measured in the environment, with the workload and within a day of `side`.

        It has to be of the same framework too, unless `to_any` framework will do.
        """
        return all(
            (to_any or member.row.framework == side.row.framework)
            and member.workload == side.workload
            and _near(member, side)
            and not differences(member, side)
            for member in (self.origin, self.again)
        )


def measured_twice(groups: Sequence[Group]) -> Iterator[Twice]:
    """Yield the configurations that were measured twice, in the same environment and within a day."""
    first = {
        (g.benchmark, g.name, row.framework, str(row.topology)): Side(g, row) for g in groups for row in g.measured
    }
    for group in groups:
        for row in group.measured if group.benchmark.endswith(AA) else ():
            origin = first.get((group.benchmark.removesuffix(AA), group.name, row.framework, str(row.topology)))
            side = Side(group, row)
            if origin and not differences(origin, side) and _near(origin, side):
                before, after = origin.value, side.value
                if before and after:
                    rounds = in_rounds((origin, side))
                    yield Twice(origin, side, ratios.tested(before.repeats, after.repeats, paired=rounds))


def floor_of(sides: Iterable[Side], again: Sequence[Twice]) -> Floor | None:
    """Return the widest A/A ratio that belongs to one of two sides, with the framework of that side."""
    sides = list(sides)
    own = [twice for twice in again if any(twice.belongs(side) for side in sides)]
    names = dict.fromkeys(twice.origin.row.framework for twice in own)
    return Floor(" and ".join(names), max(abs(twice.log) for twice in own), len(own)) if own else None


def noise_of(sides: Iterable[Side], again: Sequence[Twice]) -> Noise | None:
    """Return by how much whole measurements differ beyond their repeats, from the A/A runs of all frameworks."""
    sides = list(sides)
    return ratios.between_measurements(
        [twice.tested for twice in again if twice.tested and any(twice.belongs(side, to_any=True) for side in sides)]
    )


def _near(first: Side, second: Side) -> bool:
    """True if at most a day lies between two measurements; False if a summary does not tell when they took place."""
    cells = first.row.cell, second.row.cell
    try:
        starts = [datetime.fromisoformat(cell.started) for cell in cells if cell and cell.started]
        ends = [datetime.fromisoformat(cell.ended) for cell in cells if cell and cell.ended]
        return len(starts) == len(ends) == 2 and max(starts) - min(ends) <= NEAR
    except (ValueError, TypeError):
        return False
