"""resources/published.csv: training speeds that others have published, a row of a table each, with its source.

Facts alone: what a source prints stands here as it prints it, wrong figures too. The report says which are doubtful.
"""

import csv
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError

from throughline.files import UserError
from throughline.records import Result
from throughline.records.result import Beside

FILE = Path(__file__).parents[2] / "resources" / "published.csv"
WHOLE = ("sequence", "nodes", "devices", "batch_per_device", "accumulate", "global_batch")
"""Columns of whole numbers. `parameters` are `name=value; name=value`; every other column is text."""


@cache
def rows() -> tuple[Result, ...]:
    """Every row of the file that ships with Throughline."""
    return tuple(read(FILE))


def read(path: Path) -> Iterator[Result]:
    """The rows of such a file; UserError that names the line where one is wrong."""
    with path.open(encoding="utf-8", newline="") as stream:
        for number, row in enumerate(csv.DictReader(stream), start=2):
            try:
                yield Result.model_validate(_values({key: text for key, text in row.items() if text}))
            except (ValidationError, ValueError) as error:
                first = error.errors()[0] if isinstance(error, ValidationError) else None
                why = f"{'.'.join(map(str, first['loc']))}: {first['msg']}" if first else str(error)
                raise UserError(
                    f"{path}, line {number} is no published result",
                    why=why,
                    next_step="correct the line; docs/compare.md describes the columns",
                ) from None


def _values(row: dict[str, str]) -> dict[str, Any]:
    """The columns of a line that are not empty, as a Result has them."""
    printed = {name: row.pop(name) for name in get_args(Beside) if name in row}
    pairs = (pair.split("=") for pair in row.pop("parameters", "").split("; ") if pair)
    whole = {name: int(row[name]) for name in WHOLE if name in row}
    parameters = {name: int(value) if value.isdigit() else value for name, value in pairs}
    return {**row, **whole, "parameters": parameters, "printed": printed, "origin": "published"}
