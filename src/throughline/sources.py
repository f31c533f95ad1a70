"""Which of our own files a program runs: the static closure of its imports.

Cheap rules list these files as inputs, a record's `code` is their digest, and a test holds the rooms' order with them.
"""

import hashlib
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent
IMPORT = re.compile(
    r"^[ \t]*from (throughline[\w.]*) import (\([^)]*\)|[^\n#]*)|^[ \t]*import (throughline[\w.]*)", re.M
)


def module(name: str) -> Path | None:
    """`throughline.rank.worker` -> its file, a package's `__init__.py`; None where `name` is no module of ours."""
    place = ROOT.joinpath(*name.split(".")[1:])
    return next((path for path in (place / "__init__.py", place.with_suffix(".py")) if path.is_file()), None)


@cache
def imported(path: Path) -> frozenset[str]:
    """The modules of ours that a file imports, within functions as well."""
    modules: set[str] = set()
    for parent, names, whole in IMPORT.findall(path.read_text(encoding="utf-8")):
        parts = (f"{parent}.{name}" for name in re.findall(r"(\w+)(?: as \w+)?", names))
        modules |= {parent or whole, *filter(module, parts)}
    return frozenset(modules)


def closure(*start: str | Path) -> list[Path]:
    """The files that these modules or files run, themselves included, and what lies beside them that is no Python."""
    waiting, seen = list(start), set[Path]()
    while waiting:
        one = waiting.pop()
        path = module(one) if isinstance(one, str) else one
        if path and path not in seen:
            seen.add(path)
            waiting += imported(path)
            if isinstance(one, str):
                waiting.append(one.rpartition(".")[0])  # a module's packages run as well
    folders = {path.parent for path in seen if ROOT in path.parents}
    beside = {path for folder in folders for path in folder.iterdir() if path.is_file() and path.suffix != ".py"}
    return sorted(seen | beside)


def digest(paths: Iterable[Path]) -> str:
    """12 hexadecimal digits of the files' contents."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()[:12]
