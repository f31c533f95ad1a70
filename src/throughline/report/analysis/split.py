"""Where a step's time goes: compute, exposed communication, input, from runs that leave one of them out.

    communication = step - step without exchange (extra `noexchange`)
    input         = step - step without reading  (extra `synthetic`)
    compute       = step - communication - input

Differences are taken between repeats of the same number, which ran one after the other, so that a slow hour hits both
sides; their median is the figure and their range its noise. docs/method-training.md says what this assumes.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from throughline import statistics
from throughline.records import Cell
from throughline.report.analysis.cells import Group, Row
from throughline.report.analysis.comparisons import Side, differences
from throughline.report.numbers import milliseconds

EXTRAS = {"communication": "noexchange", "input": "synthetic"}
"""A part of the step -> the derived runs that go without it."""


@dataclass(frozen=True)
class Part:
    """One part of a step in seconds: the median difference, and the range of the differences of `n` pairs.

    `control`: there is nothing to measure (a single rank's exchange), so that the difference is noise.
    """

    median_s: float
    low_s: float
    high_s: float
    n: int
    control: bool = False

    @property
    def shown_s(self) -> float:
        """No part of a step takes less than no time."""
        return 0.0 if self.control else max(0.0, self.median_s)


@dataclass(frozen=True)
class Split:
    """One framework on one topology; a part that no derived runs tell is None, and belongs to the rest.

    `unlike` says which derived runs tell nothing, because they ran in another environment or on other data.
    """

    row: Row
    step_s: float
    communication: Part | None
    input: Part | None
    unlike: tuple[str, ...] = ()

    @property
    def parts(self) -> dict[str, Part]:
        """The parts that derived runs tell, by their names."""
        return {name: part for name in EXTRAS if (part := getattr(self, name))}

    @property
    def rest_s(self) -> float:
        """What is neither communication nor input, as far as these are known."""
        return max(0.0, self.step_s - sum(part.shown_s for part in self.parts.values()))

    @property
    def rest(self) -> str:
        """What the rest is made of."""
        return " and ".join(["compute", *(name for name in EXTRAS if name not in self.parts)])

    @property
    def name(self) -> str:
        return f"{self.row.shown} {self.row.topology}"

    @property
    def notes(self) -> list[str]:
        """How sure the parts are."""
        notes = [*self.unlike]
        notes += [doubt for name, part in self.parts.items() if (doubt := _doubt(name, part))]
        if sum(part.shown_s for part in self.parts.values()) > self.step_s:
            notes.append(
                "communication and input together take longer than the step: they overlap, so compute is not known"
            )
        return notes


def _doubt(name: str, part: Part) -> str | None:
    """What to know about one part before believing it."""
    low, high = milliseconds(part.low_s), milliseconds(part.high_s)
    size = f"{milliseconds(part.median_s)} ms, the {part.n} pairs lie between {low} and {high} ms"
    zero = "" if part.median_s >= 0 else ", shown as 0"
    if part.control:
        return f"a single rank has nobody to exchange with: {name} is 0, and the measured difference is noise ({size})"
    if part.n == 1:
        return f"{name} is {milliseconds(part.median_s)} ms, from one pair of repeats{zero}: its noise is not known"
    if part.low_s <= 0.0 <= part.high_s:
        return f"{name} is within the noise ({size}){zero}"
    if part.median_s < 0:
        return f"{name} is negative beyond the noise ({size}), shown as 0: the runs without it have other costs instead"
    return None


def split(group: Group, derived: Iterable[Group]) -> list[Split]:
    """The splits of a group's measured rows, from its derived groups among `derived`; [] where there are none."""
    named = {(other.benchmark, other.name): other for other in derived}
    others = {name: named.get((f"{group.benchmark}__{extra}", group.name)) for name, extra in EXTRAS.items()}
    splits = []
    for row in group.measured:
        unlike = {name: _unlike(group, row, other) for name, other in others.items()}
        parts = {name: None if unlike[name] else _part(row, other) for name, other in others.items()}
        middle = statistics.median(list(_steps(row.cell).values())) if row.cell else None
        if middle and (any(parts.values()) or any(unlike.values())):
            why = (
                f"{name} is not known, because the runs without it are not comparable: {text}"
                for name, text in unlike.items()
                if text
            )
            splits.append(Split(row, middle, **parts, unlike=tuple(why)))
    return splits


def _unlike(group: Group, row: Row, other: Group | None) -> str:
    """In what the derived runs of a row did not run as it did."""
    there = other.row(row.framework, row.topology) if other else None
    if not (other and there and there.cell and there.cell.n_ok):
        return ""
    return "; ".join(differences(Side(group, row), Side(other, there)))


def _part(row: Row, other: Group | None) -> Part | None:
    """The step of `row` minus that of the same row in `other`, repeat by repeat."""
    there = other.row(row.framework, row.topology) if other else None
    if not (other and there and there.cell and row.cell):
        return None
    with_it, without = _steps(row.cell), _steps(there.cell)
    pairs = [with_it[repeat] - without[repeat] for repeat in sorted(with_it.keys() & without.keys())]
    middle = statistics.median(pairs)
    control = row.topology.world == 1 and not other.exchanges
    return None if middle is None else Part(middle, min(pairs), max(pairs), len(pairs), control)


def _steps(cell: Cell) -> dict[int, float]:
    """Seconds per optimizer step by repeat."""
    return {repeat: cell.global_batch / value for repeat, value in enumerate(cell.values, 1) if value}
