"""Find results of others that are like our cells, and say what differs."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from throughline.comparables import published
from throughline.comparables.measured import Measured
from throughline.comparables.plausibility import Doubt
from throughline.records import Result
from throughline.statistics import Range


@dataclass(frozen=True)
class SimilarResult:
    """One of our cells, and a result of others that is like it.

    samples_per_s: their speed. ratio: our median divided by it, with its `range`. differs: what differs between the
    two. doubts: what is implausible about their result.
    """

    ours: Measured
    other: Result
    samples_per_s: float
    ratio: float
    range: Range
    differs: tuple[str, ...]
    doubts: tuple[str, ...]


def similar(cells: Iterable[Measured], imported: Sequence[Result], doubts: Sequence[Doubt]) -> Iterator[SimilarResult]:
    """Yield every cell with each result of others that is like it. `doubts` are those about imported results."""
    others: defaultdict[tuple[str, int | None], list[Result]] = defaultdict(list)
    for other in (*imported, *published.rows()):
        others[_size(other)].append(other)
    for ours in cells:
        for other in others[_size(ours.result)]:
            speed, median = other.samples_per_s, ours.cell.median_speed
            if speed and median and is_like(ours.result, other):
                values = [value for value in ours.cell.values if value is not None]
                yield SimilarResult(
                    ours,
                    other,
                    samples_per_s=sum(speed) / 2,
                    ratio=median / (sum(speed) / 2),
                    range=(min(values) / speed[1], max(values) / speed[0]),
                    differs=tuple(differences(ours.result, other)),
                    doubts=(
                        *filter(None, [other.implausible]),
                        *(doubt.text for doubt in doubts if doubt.row is other),
                    ),
                )


def is_like(own: Result, other: Result) -> bool:
    """True if two rows train the same model at the same size and precision on as many devices of one kind.

    A value that the other row does not state counts as equal; `differences` names it. A whole job is like none of ours:
    its speed counts evaluations, and that of our cells does not. `published.jobs` has these.
    """
    sizes: list[tuple[Any, Any]] = [
        (own.precision, other.precision),
        (own.sequence_length, other.sequence_length),
        (own.batch, other.batch),
    ]
    sizes += [(own.parameters.get(name), value) for name, value in other.parameters.items()]
    if other.is_job:
        return False
    same = _size(own) == _size(other) and _kind(own) == _kind(other)
    return same and all(here == there for here, there in sizes if there is not None)


def _size(row: Result) -> tuple[str, int | None]:
    return row.model, row.devices


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


def _kind(row: Result) -> str | None:
    return row.gpu.kind if row.gpu else row.device
