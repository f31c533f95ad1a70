"""Find the files of our own that a program runs, by following its import statements.

Cheap rules have these files as inputs. A record's `code` is a digest of them.
"""

import hashlib
import importlib
import pkgutil
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parent
IMPORT = re.compile(
    r"^[ \t]*from (throughline[\w.]*) import (\([^)]*\)|[^\n#]*)|^[ \t]*import (throughline[\w.]*)", re.M
)
EVERY = re.compile(r"^[^#\n]*\bevery_module\(__name__\)", re.M)


def every_module(package: str) -> list[ModuleType]:
    """Import all modules of a package, in the order of their names.

    A package finds its parts with `every_module(__name__)`, and the functions below count all of them as imported.
    """
    folder = importlib.import_module(package).__path__
    return [importlib.import_module(f"{package}.{found.name}") for found in pkgutil.iter_modules(folder)]


@cache
def module(name: str) -> Path | None:
    """Return the file of a module such as `throughline.rank.worker`, or of a package; None if it is not one of ours."""
    path = ROOT.joinpath(*name.split(".")[1:])
    return next((file for file in (path / "__init__.py", path.with_suffix(".py")) if file.is_file()), None)


@cache
def imported(path: Path) -> frozenset[str]:
    """Return the names of our own modules that a file imports, with the imports inside functions."""
    modules: set[str] = set()
    text = path.read_text(encoding="utf-8")
    for parent, names, whole in IMPORT.findall(text):
        parts = (f"{parent}.{name}" for name in re.findall(r"(\w+)(?: as \w+)?", names))
        modules |= {parent or whole, *filter(module, parts)}
    if path.name == "__init__.py" and EVERY.search(text):
        package = ".".join(["throughline", *path.parent.relative_to(ROOT).parts])
        modules |= {f"{package}.{found.name}" for found in pkgutil.iter_modules([str(path.parent)])}
    return frozenset(modules)


def closure(*start: str | Path) -> list[Path]:
    """Return these modules or files, the files that they import, directly or indirectly, and all files in the same
    folders that are not Python, because the code may read them."""
    waiting, seen = list(start), set[Path]()
    while waiting:
        source = waiting.pop()
        path = module(source) if isinstance(source, str) else source
        if path and path not in seen:
            seen.add(path)
            waiting += imported(path)
            if isinstance(source, str):
                waiting.append(source.rpartition(".")[0])  # importing a module also runs its packages
    folders = {path.parent for path in seen if ROOT in path.parents}
    beside = {path for folder in folders for path in folder.iterdir() if path.is_file() and path.suffix != ".py"}
    return sorted(seen | beside)


def digest(paths: Iterable[Path]) -> str:
    """Return a digest of the files' contents: 12 hexadecimal digits."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()[:12]
