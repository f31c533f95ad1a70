"""The tables of docs/reference/frameworks.md, and README's table of what is supported.

They are made from frameworks, workloads and pins. `python -m throughline.frameworks.reference` writes both pages.
A test fails if one of them is out of date.
"""

import ast
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
    """Map each page to its places, and each place to the table that belongs there."""
    page = {"overview": _overview(), "features": _features(), "reasons": _reasons(), "facts": _facts()}
    return {PAGE: page, README: {"supported": _supported()}}


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
    """Return the table of which framework trains which workload."""
    rows = []
    for folder in workloads.FOLDERS:
        models = [model for model, home in workloads.models().items() if home == folder]
        cells = ("yes" if frameworks.features(name, models[0]) else "" for name in frameworks.NAMES)
        rows.append([f"[{folder}](docs/reference/workloads.md#{folder})", f"`{models[0]}` ({len(models)})", *cells])
    return table(["workload", "models", *frameworks.NAMES], rows)


def _overview() -> str:
    """Return a row for each framework: version, environment, sources of its models."""
    rows = []
    for name in frameworks.NAMES:
        environment = recipe.read(name)
        library = frameworks.of(name).library
        pins = f"`envs/{environment.framework}.txt`" if environment.python else "the workflow's, `envs/torch.txt`"
        sources = "; ".join(found for folder in ("bert", "gpt2", "resnet") if (found := source(folder, library)))
        rows.append([f"`{name}`", _pins(name), pins, sources])
    return table(["framework", "version", "environment", "source of its models"], rows)


def source(folder: str, library: str) -> str:
    """Return the first paragraph of an implementation's docstring, or "" if the library has no implementation."""
    path = ROOT / "workloads" / folder / f"in_{library}.py"
    words = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) if path.is_file() else None
    return " ".join((words or "").split("\n\n")[0].split()).rstrip(".")


def _features() -> str:
    """Return a row for each feature: with which workloads it is there, and in which frameworks."""
    offered = {name: _by_workload(name) for name in frameworks.NAMES}
    rows = []
    for key, words in FEATURES.items():
        folders = {folder for of_one in offered.values() for folder, has in of_one.items() if key in has}
        if folders:
            there = "all" if len(folders) == len(workloads.FOLDERS) else ", ".join(sorted(folders))
            cells = (_cell(key, frameworks.of(name), of_one, folders) for name, of_one in offered.items())
            rows.append([words, there, *cells])
    return table(["feature", "workloads", *offered], rows)


def _by_workload(name: str) -> dict[str, frozenset[str]]:
    """Map the workloads that a framework trains to its features with their first models."""
    first = {folder: model for model, folder in reversed(workloads.models().items())}
    return {folder: has for folder in workloads.FOLDERS if (has := frameworks.features(name, first[folder]))}


def _cell(key: str, framework: Framework, offered: dict[str, frozenset[str]], folders: set[str]) -> str:
    """Return whether a framework has a feature with those of its workloads that any framework has it with.

    `no`, `yes` (or `on GPUs`), or the names of the workloads if it is some of them.
    """
    asked = [folder for folder in offered if folder in folders]
    there = [folder for folder in asked if key in offered[folder]]
    where = " on GPUs" if key in framework.gpus_only else ""
    if there == asked:
        return where.strip() or "yes" if asked else "no"
    return f"{', '.join(there)}{where}" if there else "no"


def _reasons() -> str:
    """Return the reasons that frameworks give for missing features. An unsupported run states them."""
    given = {name: frameworks.of(name).reasons for name in frameworks.NAMES}
    rows = [[f"`{name}`", FEATURES[key], reason] for name, reasons in given.items() for key, reason in reasons.items()]
    return table(["framework", "feature", "reason"], rows)


def _facts() -> str:
    """Return for each framework its folder, its library, what starts its ranks, and their environment."""
    names = frameworks.NAMES
    environments = [
        f"its own, Python {python}" if (python := recipe.read(name).python) else "the workflow's" for name in names
    ]
    starters = [starter.name if (starter := frameworks.of(name).starter) else "agents" for name in names]
    rows = [
        ["folder", *(f"`{name.replace('-', '_')}/`" for name in names)],
        ["library", *(frameworks.of(name).library for name in names)],
        ["ranks are started by", *starters],
        ["environment", *environments],
    ]
    return table(["", *names], rows)


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
