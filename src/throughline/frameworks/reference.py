"""The tables of docs/reference/frameworks.md, and README's table of what is supported.

They are made from frameworks, workloads and pins. `python -m throughline.frameworks.reference` writes both pages.
A test fails if one of them is out of date.
"""

import ast
import textwrap
from collections.abc import Iterable
from pathlib import Path

from throughline import frameworks, workloads
from throughline.files import write_text
from throughline.frameworks.description import FEATURES, Framework
from throughline.installation import recipe

ROOT = Path(__file__).parents[1]
PAGE = ROOT.parents[1] / "docs" / "reference" / "frameworks.md"
README = ROOT.parents[1] / "README.md"


def tables() -> dict[Path, dict[str, str]]:
    """Map each page to its places, and each place to the text that belongs there."""
    return {
        PAGE: {"overview": _overview(), "features": _features()},
        README: {"supported": _supported()},
    }


def filled(page: Path, places: dict[str, str]) -> str:
    """Return a page's text with these tables, each between `<!-- name -->` and the next `<!-- end -->`."""
    text = page.read_text(encoding="utf-8")
    for name, content in places.items():
        before, begin, rest = text.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition("<!-- end -->\n")
        assert begin and end, f"{page.name} has no place for {name}"
        text = f"{before}{begin}\n{content}\n{end}{after}"
    return text


def _supported() -> str:
    """Return the frameworks, and the workloads with their numbers of models."""
    homes = list(workloads.models().values())
    models = (f"[{name}](docs/reference/workloads.md#{name}) ({homes.count(name)})" for name in workloads.FOLDERS)
    names = ", ".join(map("`{}`".format, frameworks.NAMES))
    return _wrapped(f"* Frameworks: {names}") + _wrapped(f"* Workloads: {', '.join(models)}")


def _wrapped(line: str) -> str:
    """Return a line of a list in the width of a page."""
    return textwrap.fill(line, 98, subsequent_indent="  ", break_on_hyphens=False) + "\n"


def _overview() -> str:
    """Return a row for each framework: version, environment, and what starts its ranks."""
    rows = []
    for name in frameworks.NAMES:
        environment, starter = recipe.read(name), frameworks.of(name).starter
        pins = f"`envs/{environment.framework}.txt`" if environment.python else "the workflow's, `envs/torch.txt`"
        rows.append([f"`{name}`", _pins(name), pins, starter.name if starter else "agents"])
    return table(["framework", "version", "environment", "ranks are started by"], rows)


def source(folder: str, library: str) -> str:
    """Return the first paragraph of an implementation's docstring, or "" if the library has no implementation."""
    path = ROOT / "workloads" / folder / f"in_{library}.py"
    words = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) if path.is_file() else None
    return " ".join((words or "").split("\n\n")[0].split()).rstrip(".")


def _features() -> str:
    """Return a line for each feature: with which workloads it is there, and in which frameworks."""
    first = {folder: model for model, folder in reversed(workloads.models().items())}
    offered = {
        name: {folder: has for folder in workloads.FOLDERS if (has := frameworks.features(name, first[folder]))}
        for name in frameworks.NAMES
    }
    lines = []
    for key, words in FEATURES.items():
        if folders := {folder for by_folder in offered.values() for folder, has in by_folder.items() if key in has}:
            there = "all" if len(folders) == len(workloads.FOLDERS) else ", ".join(sorted(folders))
            cells = {name: _cell(key, frameworks.of(name), by_folder, folders) for name, by_folder in offered.items()}
            having = ", ".join(f"`{name}`{cell}" for name, cell in cells.items() if cell is not None)
            having = "all" if set(cells.values()) == {""} else having
            lines.append(_wrapped(f"* **{words}** ({there}): {having}"))
    return "".join(lines)


def _cell(key: str, framework: Framework, offered: dict[str, frozenset[str]], folders: set[str]) -> str | None:
    """Return with which of its workloads a framework has a feature that any framework has with these, and where.

    "" means all of them, None that it does not have the feature.
    """
    asked = [folder for folder in offered if folder in folders]
    there = [folder for folder in asked if key in offered[folder]]
    if not there:
        return None
    words = [*(there if there != asked else []), *(["on GPUs"] if key in framework.gpus_only else [])]
    return f" ({', '.join(words)})" if words else ""


def _pins(name: str) -> str:
    """Return the pinned versions of a framework's packages, and of numpy."""
    shown = (*frameworks.of(name).packages, "numpy")
    pins = (line.split()[0] for line in recipe.read(name).pinned)
    return ", ".join(pin.replace("==", " ") for pin in pins if pin.partition("==")[0] in shown)


def table(header: list[str], rows: Iterable[list[str]]) -> str:
    return "".join(f"| {' | '.join(line)} |\n" for line in (header, ["---"] * len(header), *rows))


if __name__ == "__main__":
    for page, places in tables().items():
        write_text(page, filled(page, places))
