"""Read resources/published.csv: training speeds that others have published. Each row names its source.

The file has each figure exactly as its source prints it, even if the figure is wrong. The column `implausible` says
which figures cannot be; `implausible` writes it.
"""

import csv
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError

from throughline.files import UserError, resource
from throughline.records import Result
from throughline.records.result import Beside

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
