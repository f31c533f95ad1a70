"""Read resources/published.csv: training speeds that others have published. Each row names its source.

The file has each figure exactly as its source prints it, even if the figure is wrong. The column `implausible` says
which figures cannot be; `implausible` writes it. Of these results and the imported ones, those that are like a result
of ours stand beside it, with what differs.
"""

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError

from throughline.files import UserError, resource
from throughline.records import Result
from throughline.records.imported import Beside
from throughline.statistics import Range

FILE = resource("published.csv")
WHOLE = ("sequence_length", "nodes", "devices", "batch", "gradient_accumulation", "global_batch")
"""Columns of whole numbers. The column `parameters` is `name=value; name=value`. Every other column is text."""


@cache
def rows() -> tuple[Result, ...]:
    """Return all rows of the file that is part of Throughline."""
    return tuple(read(FILE))


def jobs(model: str) -> list[Result]:
    """Return the rows that are whole jobs of a model."""
    return [row for row in rows() if row.is_job and row.model == model]


def read(path: Path) -> Iterator[Result]:
    """Yield the rows of such a file. Raise a UserError that names the line if a row is wrong."""
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            lines = list(csv.DictReader(stream))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no CSV in UTF-8"
        raise UserError(
            f"{path} cannot be read",
            why=reason,
            next_step="name a CSV file with the columns of resources/published.csv",
        ) from None
    if not lines:
        raise UserError(f"{path} has no rows", next_step="docs/how-to/compare.md describes the columns")
    for number, row in enumerate(lines, start=2):
        try:
            yield Result.model_validate(_values({key: text for key, text in row.items() if text}))
        except (ValidationError, ValueError) as error:
            faults = error.errors() if isinstance(error, ValidationError) else []
            reason = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in faults)
            raise UserError(
                f"{path}, line {number} is no published result",
                why=reason or str(error),
                next_step="correct the line; docs/how-to/compare.md describes the columns",
            ) from None


def _values(row: dict[str, str]) -> dict[str, Any]:
    """Return the fields of a Result from the columns of a line that are not empty."""
    printed = {name: row.pop(name) for name in get_args(Beside) if name in row}
    pairs = (pair.split("=") for pair in row.pop("parameters", "").split("; ") if pair)
    whole = {name: int(row[name]) for name in WHOLE if name in row}
    parameters = {name: int(value) if value.isdigit() else value for name, value in pairs}
    return {**row, **whole, "parameters": parameters, "printed": printed, "origin": "published"}


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


def similar(ours: Result, others: Mapping[tuple[str, int | None], Sequence[Result]]) -> Iterator[SimilarResult]:
    """Yield the results of others that are like one of ours. others: by model and number of devices."""
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
