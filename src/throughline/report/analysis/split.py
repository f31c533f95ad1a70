"""Split a step's time into compute, exposed communication and input, from runs that leave one of them out.

    communication = step - step without exchange (extra `noexchange`)
    input         = step - step without reading  (extra `synthetic`)
    compute       = step - communication - input

Differences are taken between repeats of the same number. These ran one after the other, so that a slow hour affects
both. The median of the differences is the figure, and their range is its noise. docs/method-training.md says what this
assumes.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from throughline import statistics
from throughline.numbers import milliseconds
from throughline.records import Cell
from throughline.report.analysis.cells import Group, Row
from throughline.report.analysis.comparisons import Side, differences

EXTRAS = {"communication": "noexchange", "input": "synthetic"}
"""Map a part of the step to the derived runs that leave it out."""


@dataclass(frozen=True)
class Part:
    """One part of a step in seconds: the median of the differences of `n` pairs, and their range.

    control: there is nothing to measure (the exchange of a single rank), so the difference is noise.
    """

    median_s: float
    low_s: float
    high_s: float
    n: int
    control: bool = False

    @property
    def shown_s(self) -> float:
        """The seconds that are shown. They are never negative."""
        return 0.0 if self.control else max(0.0, self.median_s)


@dataclass(frozen=True)
class Split:
    """The split of one framework on one topology. A part without derived runs is None, and belongs to the rest.

    unlike: which derived runs cannot be used, because they ran in another environment or on other data.
    """

    row: Row
    step_s: float
    communication: Part | None
    input: Part | None
    unlike: tuple[str, ...] = ()

    @property
    def parts(self) -> dict[str, Part]:
        """The known parts by their names."""
        return {name: part for name in EXTRAS if (part := getattr(self, name))}

    @property
    def rest_s(self) -> float:
        """The seconds that remain without the known parts."""
        return max(0.0, self.step_s - sum(part.shown_s for part in self.parts.values()))

    @property
    def rest(self) -> str:
        """What the rest consists of."""
        return " and ".join(["compute", *(name for name in EXTRAS if name not in self.parts)])

    @property
    def name(self) -> str:
        return f"{self.row.shown} {self.row.topology}"

    @property
    def notes(self) -> list[str]:
        """Sentences on how sure the parts are."""
        notes = [*self.unlike]
        notes += [doubt for name, part in self.parts.items() if (doubt := _doubt(name, part))]
        if sum(part.shown_s for part in self.parts.values()) > self.step_s:
            notes.append(
                "communication and input together take longer than the step: they overlap, so compute is not known"
            )
        return notes


def _doubt(name: str, part: Part) -> str | None:
    """Return what a reader has to know about one part before believing it."""
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
    """Return the splits of a group's measured rows, from the groups among `derived` that are derived from it."""
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
    """Return how the surroundings of a row's derived runs differ from its own."""
    there = other.row(row.framework, row.topology) if other else None
    if not (other and there and there.cell and there.cell.n_ok):
        return ""
    return "; ".join(differences(Side(group, row), Side(other, there)))


def _part(row: Row, other: Group | None) -> Part | None:
    """Subtract the step of the same row in `other` from the step of `row`, repeat by repeat."""
    there = other.row(row.framework, row.topology) if other else None
    if not (other and there and there.cell and row.cell):
        return None
    with_it, without = _steps(row.cell), _steps(there.cell)
    pairs = [with_it[repeat] - without[repeat] for repeat in sorted(with_it.keys() & without.keys())]
    middle = statistics.median(pairs)
    control = row.topology.world == 1 and not other.exchanges
    return None if middle is None else Part(middle, min(pairs), max(pairs), len(pairs), control)


def _steps(cell: Cell) -> dict[int, float]:
    """Map each repeat to its seconds per optimizer step."""
    return {repeat: cell.global_batch / value for repeat, value in enumerate(cell.values, 1) if value}
