"""Read the files of an archive, and derive from them, whatever a stranger has put into them.

What cannot be read or derived becomes a line about the file.
"""

import csv
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from throughline import records
from throughline.archive import accepted
from throughline.archive.differences import Difference, Found
from throughline.archive.opening import as_json
from throughline.files import UserError
from throughline.records import Summary

FAULTS = (*accepted.FAULTS, ArithmeticError, OSError, csv.Error)
"""What the values of a stranger may raise when figures are derived from them."""
PLAIN = re.compile(r"(?!\.)[\w.@+-]+")
"""The name of a framework, a benchmark, a precision or a topology. We use it as a part of a file's name."""


def read(folder: Path, path: Path, reader: Callable[[Path], Any]) -> tuple[Any, list[Difference]]:
    """Return what `reader` returns, or the reason why it cannot read a file of the archive in `folder`."""
    name = path.relative_to(folder).as_posix()
    try:
        as_json(path)  # the reader would not survive deep nesting
        return reader(path), []
    except (UserError, ValueError, OSError, RecursionError) as error:
        return None, [Difference(name, "", _why(error, folder))]


def read_summary(folder: Path, name: str) -> tuple[Summary | None, list[Difference]]:
    """Return a summary, or why it cannot be used: tables are written to files with the names in it."""
    summary, faults = read(folder, folder / name, records.read_summary)
    names = [*summary.frameworks, summary.benchmark, summary.precision] if summary else []
    if odd := [text for text in names if not PLAIN.fullmatch(text)]:
        return None, [Difference(name, "", f"{odd[0][:80]!r} is no name")]
    return summary, faults


def safely(folder: Path, name: str, found: Found) -> Found:
    """Yield what is found. If nothing can be derived from the values in a file, say so."""
    try:
        yield from found
    except FAULTS as error:
        yield Difference(name, "", f"it cannot be derived: {_why(error, folder)}")


def _why(error: Exception, folder: Path) -> str:
    why = (error.why or error.what) if isinstance(error, UserError) else str(error)
    return (why or type(error).__name__).replace(f"{folder}/", "")
