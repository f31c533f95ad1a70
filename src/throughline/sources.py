"""Which of our own files a program runs: the static closure of its imports.

Cheap rules list these files as inputs, a record's `code` is their digest, and a test holds the rooms' order with them.
"""

from __future__ import annotations

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
        if whole:
            modules.add(whole)
            continue
        modules.add(parent)
        for name in re.findall(r"(\w+)(?: as \w+)?", names):
            if module(f"{parent}.{name}"):
                modules.add(f"{parent}.{name}")
    return frozenset(modules)


def closure(*start: str | Path) -> list[Path]:
    """The files that these modules or files run, themselves included, and what lies beside them that is no Python."""
    open_, seen = list(start), set[Path]()
    while open_:
        one = open_.pop()
        path = module(one) if isinstance(one, str) else one
        if path is None or path in seen:
            continue
        seen.add(path)
        open_ += imported(path)
        if isinstance(one, str):  # a module's packages run as well
            open_ += [one.rpartition(".")[0]] if "." in one else []
    beside = {
        other
        for folder in {path.parent for path in seen if ROOT in path.parents}
        for other in folder.iterdir()
        if other.is_file() and other.suffix != ".py"
    }
    return sorted(seen | beside)


def digest(paths: Iterable[Path]) -> str:
    """12 hexadecimal digits of the files' contents."""
    contents = hashlib.sha256()
    for path in paths:
        contents.update(path.read_bytes())
    return contents.hexdigest()[:12]
