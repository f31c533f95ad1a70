"""A doubt about a row, and what several rules ask of rows: quotients, ranges that meet, rows of one kind."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from throughline.records import Result

FORMULA = 0.01
"""Two counts of the same FLOPs may differ by this share: in how a vocabulary is padded, or whether norms count."""
FASTER = 1.5
"""Devices whose peaks differ by more than this should not be equally fast."""
ARITHMETIC = "its own arithmetic"
"""The name of a rule."""

Rows = Sequence[Result]


@dataclass(frozen=True)
class Doubt:
    """What is wrong with a row, and how that was derived."""

    rule: str
    row: Result
    text: str


def quotient(row: Result, base: Result) -> tuple[float, float] | None:
    """Return how many times as fast a row is as another one, at least and at most."""
    speed, slower = row.samples_per_s, base.samples_per_s
    return (speed[0] / slower[1], speed[1] / slower[0]) if speed and slower else None


def meet(one: tuple[float, float], other: tuple[float, float], share: float = 1e-9) -> bool:
    """True if two ranges have a value in common, or lie within a share of each other."""
    return one[0] <= other[1] * (1 + share) and other[0] * (1 - share) <= one[1]


def peak(row: Result) -> float | None:
    """Return the dense peak of the row's device at its precision, in FLOP/s; None if it is not known."""
    return row.gpu.peak_flops_per_s.get(row.precision or "") if row.gpu else None


def configuration(row: Result, *, options: bool = True, device: bool = True) -> tuple[Any, ...]:
    """Return everything that decides a row's speed, as far as the row states it."""
    own = row.source, row.framework, row.software, row.model, tuple(row.parameters.items()), row.sequence_length
    size = row.nodes, row.devices, row.batch, row.gradient_accumulation, row.global_batch
    return *own, row.precision, *size, row.options if options else "", row.device if device else ""


def grouped(rows: Rows, key: Callable[[Result], Any], at_least: int = 2) -> list[list[Result]]:
    """Return the groups of rows that have the same key, if they have so many rows."""
    groups: defaultdict[Any, list[Result]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return [group for group in groups.values() if len(group) >= at_least]
