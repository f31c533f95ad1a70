"""Find results of others that are like a result of ours, and say what differs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from throughline.grouping import grouped
from throughline.records import Result
from throughline.statistics import Range

Size = tuple[str, int | None]
"""The model and the number of devices of a row."""


@dataclass(frozen=True)
class SimilarResult:
    """A result of others that is like a result of ours.

    samples_per_s: their speed. ratio: our median divided by it, with its `range`. differs: what differs between the
    two.
    """

    other: Result
    samples_per_s: float
    ratio: float
    range: Range
    differs: tuple[str, ...]


def by_size(rows: Iterable[Result]) -> Mapping[Size, Sequence[Result]]:
    """Return the rows of each model and number of devices."""
    return grouped(rows, lambda row: (row.model, row.devices))


def similar(ours: Result, others: Mapping[Size, Sequence[Result]]) -> Iterator[SimilarResult]:
    """Yield the results of others that are like one of ours."""
    median = float(ours.value or 0)
    low, high = ours.repeats or (median, median)
    for other in others.get((ours.model, ours.devices), ()):
        speed = other.samples_per_s
        if speed and is_like(ours, other):
            theirs = sum(speed) / 2
            differs = tuple(differences(ours, other))
            yield SimilarResult(other, theirs, median / theirs, (low / speed[1], high / speed[0]), differs)


def is_like(own: Result, other: Result) -> bool:
    """True if two rows train the same model at the same size and precision on as many devices of one kind.

    A value that the other row does not state counts as equal; `differences` names it. A whole job is like none of ours:
    its speed counts evaluations, and that of our cells does not. `published.jobs` has these.
    """
    sizes: list[tuple[Any, Any]] = [
        *((getattr(own, name), getattr(other, name)) for name in ("precision", "sequence_length", "batch")),
        *((own.parameters.get(name), value) for name, value in other.parameters.items()),
    ]
    same = (own.model, own.devices, _kind(own)) == (other.model, other.devices, _kind(other)) and not other.is_job
    return same and all(here == there for here, there in sizes if there is not None)


def _kind(row: Result) -> str | None:
    return row.gpu.kind if row.gpu else row.device


def differences(own: Result, other: Result) -> Iterator[str]:
    """Yield what differs between two rows: their value, and our value too if it is short."""
    for name in (
        "device", "nodes", "precision", "framework", "software", "batch", "gradient_accumulation", "options", "date",
    ):  # fmt: skip
        here, there = getattr(own, name), getattr(other, name)
        if here != there and not (name == "device" and own.gpu and own.gpu is other.gpu):
            ours = "" if name in ("software", "options", "date") else f" (ours {here})"
            yield f"{name.replace('_', ' ')} {there or 'not stated'}{ours}"
    if other.convention:
        yield f"figure: {other.convention}"
