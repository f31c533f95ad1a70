"""Compare what an archive states with what was made again from the raw values: JSON, tables, and texts."""

import csv
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from throughline.files import UserError, read_json

ROUNDING, SMALLEST = 1e-9, 1e-12
"""The difference that sums in another order may make: relative, and of numbers near zero."""
FAULTS = (
    UserError, LookupError, TypeError, ValueError, AttributeError, RecursionError, ArithmeticError, OSError, csv.Error
)  # fmt: skip
"""What the values of a stranger may raise when figures are derived from them."""
OF_MACHINE = re.compile(r'<section id="repeat">.*?</section>|<code>.*?</code>', re.S)
"""The commands on a page, which name the files of the machine that made it."""
PLOT = re.compile(r"<svg\b.*?</svg>", re.S)


@dataclass(frozen=True)
class Difference:
    """One thing that is not as it should be. file: where; what: which value of it, if any; text: what is wrong.

    word: True if no figure differs, but a text.
    """

    file: str
    what: str
    text: str
    word: bool = False

    def __str__(self) -> str:
        return f"{self.file}: {self.what + ': ' if self.what else ''}{self.text}"


Differences = Iterator[Difference]
"""What a function of a check yields."""


def safely(folder: Path, name: str, differences: Differences) -> Differences:
    """Yield what is found. If nothing can be derived from the values of a file in `folder`, say so."""
    try:
        yield from differences
    except FAULTS as error:
        yield Difference(name, "", f"it cannot be derived: {reason(error, folder)}")


def reason(error: Exception, folder: Path) -> str:
    """Return why a file of the archive in `folder` cannot be read, or nothing can be derived from it."""
    why = (error.why or error.what) if isinstance(error, UserError) else str(error)
    return (why or type(error).__name__).replace(f"{folder}/", "")


def between(file: str, kept: Any, derived: Any, where: str = "") -> Differences:
    """Yield the differences of two JSON values. A key that is missing counts as None."""
    if isinstance(kept, Mapping) and isinstance(derived, Mapping):
        for key in {**derived, **kept}:
            inner = f"{where}.{key}" if where else str(key)
            yield from between(file, kept.get(key), derived.get(key), inner)
    elif isinstance(kept, list) and isinstance(derived, list) and len(kept) == len(derived):
        for index, (first, second) in enumerate(zip(kept, derived, strict=True)):
            yield from between(file, first, second, f"{where}[{index}]")
    elif _is_number(kept) and _is_number(derived):
        if not math.isclose(kept, derived, rel_tol=ROUNDING, abs_tol=SMALLEST):
            percent = f" ({100 * (kept / derived - 1):+.3g} %)" if derived else ""
            yield Difference(file, where, _text(kept, derived) + percent)
    elif kept != derived:
        yield Difference(file, where, _text(kept, derived), not (_is_number(kept) or _is_number(derived)))


def _text(stated: Any, derived: Any) -> str:
    first, second = (text if len(text := repr(value)) <= 120 else f"{text[:120]}..." for value in (stated, derived))
    return f"it states {first}, and {second} follows from the raw values"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def of_file(name: str, kept: Path, again: Path, with_plots: bool = True) -> Differences:
    """Yield what a file of an archive states otherwise than `again`, the same file made again.

    with_plots: the plots of a page are compared too.
    """
    if not kept.exists() or not again.exists():
        lacks = "the archive lacks this file, which follows from the others"
        why = lacks if again.exists() else "no such file follows from the others"
        yield Difference(name, "", why, word="tables" in kept.parts or kept.suffix != ".json")
    elif kept.suffix == ".json":
        yield from between(name, read_json(kept), read_json(again))
    else:
        texts = [path.read_text(encoding="utf-8", errors="replace") for path in (kept, again)]
        if kept.suffix == ".html":
            texts = [OF_MACHINE.sub("", text) for text in texts]
            texts = texts if with_plots else [PLOT.sub("", text) for text in texts]
        kept_lines, lines = (text.splitlines() for text in texts)
        if kept_lines != lines:
            both = enumerate(zip_longest(kept_lines, lines), start=1)
            line = next(number for number, (first, second) in both if first != second)
            yield Difference(name, f"line {line}", "another line follows from the raw values", word=True)
            if kept.suffix == ".csv":
                yield from _numbers(name, kept, again)


def _numbers(name: str, kept: Path, again: Path) -> Differences:
    """Yield the numbers of a table that stand nowhere in the same column of the table that was made again.

    Other rules may sort the rows otherwise, and may have other columns. They make no other number in a column of the
    same name.
    """
    kept_table, table = (_table(path) for path in (kept, again))
    for column in kept_table.columns.intersection(table.columns):
        values, numbers = kept_table[column].dropna(), np.unique(table[column].dropna())
        at = np.searchsorted(numbers, values)
        near = [numbers[np.clip(at - step, 0, len(numbers) - 1)] if len(numbers) else np.nan for step in (0, 1)]
        follows = np.any([np.isclose(values, number, rtol=ROUNDING, atol=SMALLEST) for number in near], axis=0)
        for row, value in values[~follows].items():
            text = f"it states {value:.17g}, and no row of the table that follows has this number"
            yield Difference(name, f"row {row}, {column}", text)


def _table(path: Path) -> pd.DataFrame:
    """Return the finite numbers of a table by column and line of the file; nan for other cells."""
    table = pd.read_csv(path, dtype=str, keep_default_na=False, index_col=False, encoding_errors="replace")
    table.index += 2  # the header is line 1
    numbers: pd.DataFrame = table.apply(pd.to_numeric, errors="coerce")
    return numbers.replace([np.inf, -np.inf], np.nan)
