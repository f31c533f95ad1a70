"""The sides of a comparison, what differs between their surroundings, and whether their repeats ran in rounds."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from throughline.report.analysis import advice
from throughline.report.analysis.cells import Group, Row
from throughline.report.analysis.values import Value, of_cell

OF_FRAMEWORK = tuple(
    f"environment.{name}" for name in ("framework", "packages.", "python", "code", "variables.", "mpi")
)
"""Parts of an environment that differ between frameworks for good reasons."""
NO_SPEED = ("environment.commit", "environment.variables.CUDA_VISIBLE_DEVICES")
"""Parts that differ without any effect on speed. Whether the measured code has changed is told by `code`."""
OF_PRECISION = "environment.variables.NVIDIA_TF32_OVERRIDE"
"""The variable that every precision but tf32 sets for its ranks on a GPU. Records before it have none."""
NAMED, LONG = 3, 80
"""How many differences between two environments are named; how many characters a printed value has at most."""


@dataclass(frozen=True)
class Side:
    """One side of a comparison: a measured row and its group."""

    group: Group
    row: Row

    @property
    def value(self) -> Value | None:
        return of_cell(self.row.shown, self.row.cell)

    @property
    def workload(self) -> tuple[str, Mapping[str, Any]] | None:
        summary = self.group.summary
        return (summary.model, summary.parameters) if summary else None


def in_rounds(sides: Iterable[Side]) -> bool:
    """True if repeat k of all sides ran before repeat k + 1 of any, and all sides have the same valid repeats.

    This is the design of the repeats. It asks when they ran and whether they are valid, and never how fast they were.
    Summaries that are too old to tell the start of each repeat have no rounds.
    """
    starts: dict[int, list[str]] = {}
    valid = set()
    for side in sides:
        cell = side.row.cell
        begun = {number: start for number, start in enumerate(cell.starts, start=1) if start} if cell else {}
        valid.add(tuple(begun))
        for number, start in begun.items():
            starts.setdefault(number, []).append(start)
    if len(valid) != 1 or not starts:
        return False
    return all(max(starts[before]) <= min(starts[after]) for before, after in pairwise(sorted(starts)))


def differences(first: Side, second: Side) -> list[str]:
    """Return which parts of device, environment and data are known of both sides, differ, and may decide the speed."""
    a, b = first.group.facts(first.row), second.group.facts(second.row)
    left_out: tuple[str, ...] = NO_SPEED
    if first.row.framework != second.row.framework:
        left_out += OF_FRAMEWORK
    if first.group.precision != second.group.precision:
        left_out += (OF_PRECISION,)
    if first.row.topology != second.row.topology:
        left_out += (*advice.BY_TOPOLOGY, *advice.CORES)
    return [
        _said(key, a.get(key), b.get(key))
        for key in dict.fromkeys([*a, *b])
        if not key.startswith(left_out) and _differs(key, a.get(key), b.get(key))
    ]


def _differs(key: str, first: Any, second: Any) -> bool:
    """True if two facts differ. An unknown fact does not differ, but an unknown variable counts as not set."""
    if None in (first, second):
        return first != second and key.startswith("environment.variables.")
    return bool(first != second) and not advice.close(key, [first, second])


def _said(key: str, *values: Any) -> str:
    """Return a difference in words, such as `torch is 2.12.0 and 2.13.0`."""
    part, _, rest = key.partition(".")
    if part == "data":
        return f"the data differ (content {' and '.join(str(value)[:12] for value in values)})"
    name = "device" if part == "device" else rest.removeprefix("framework.").removeprefix("packages.")
    texts = ["not set" if value is None else str(value) for value in values]
    is_long = any(isinstance(value, list) or len(text) > LONG for value, text in zip(values, texts, strict=True))
    return f"{name} differs" if is_long else f"{name.removeprefix('variables.')} is {' and '.join(texts)}"


def unlike(first: Side, second: Side) -> tuple[str, ...]:
    """Return why two sides must not be compared: a failed equivalence check, or different surroundings."""
    if first.row.framework != second.row.framework:
        barred = dict.fromkeys(f"{side.row.framework} {side.row.doubt}" for side in (first, second) if side.row.unequal)
        if barred:
            return tuple(f"{text} (equivalence.json)" for text in barred)
    differing = differences(first, second)
    more = [f"{len(differing) - NAMED} more differences"] if len(differing) > NAMED else []
    return (*differing[:NAMED], *more)
