"""Which module may import which: no room imports a room above it, and a rank imports nothing that is missing in old
environments."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

from throughline import frameworks, sources
from throughline.installation import recipe

SOURCES = sources.ROOT
ORDER = [
    {
        "files", "command", "statistics", "outliers", "ratios", "gpus", "processes", "sources", "versions", "memory",
        "disk", "numbers", "grouping", "messages", "temporary", "text_files", "spec", "progress",
        "randomness", "handover", "spelling", "variables", "log_kinds", "programs",
    },
    {"workloads"},
    {"frameworks", "installation"},
    {"study"},
    {"datasets"},
    {"records", "comparables", "corpus", "images", "clicks"},
    {"forms", "mechanics", "prediction"},
    {"rank", "observe"},
    {"launch"},
    {"checks", "report", "console", "acceptance"},
    {"archive"},
    {"workflow", "snakemake_command", "bench", "commands", "reference_pages"},
]  # fmt: skip
"""The floors of rooms, from the ground up. A room may import from its own floor and from those below. `forms` are the
workloads' files for one library, and `mechanics` the frameworks' files for ranks. The rooms `workloads` and
`frameworks` are their neutral files, from which the configuration takes parameters and options."""
SHOWN = {
    "workloads": "workloads/<name>/__init__.py",
    "frameworks": "frameworks/<name>/__init__.py",
    "forms": "workloads/<name>/in_<library>.py",
    "mechanics": "frameworks/<name>/rank.py",
}
"""How docs/contributing/architecture.md calls rooms that are not one folder or file."""
IN_A_RANK = [
    "rank", "frameworks", "workloads", "randomness.py", "corpus/reading.py", "corpus/bpe/__init__.py",
    "datasets/hdf5.py", "datasets/shards.py", "corpus/shards/__init__.py", "corpus/shards/layout.py",
    "corpus/shards/masks.py", "images/reading.py", "images/layout.py", "clicks/reading.py",
]  # fmt: skip


def room(path: Path) -> str:
    parts = path.relative_to(SOURCES).parts
    if parts[0] == "workloads" and parts[-1].startswith("in_"):
        return "forms"
    if parts[0] == "frameworks" and len(parts) == 3 and parts[-1] != "__init__.py":
        return "mechanics"
    return parts[0].removesuffix(".py")


def floor(name: str) -> int:
    return next(number for number, rooms in enumerate(ORDER) if name in rooms)


@pytest.mark.parametrize("path", sorted(SOURCES.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCES)))
def test_nothing_looks_upwards(path: Path) -> None:
    own = room(path)
    for name in sources.imported(path):
        other = sources.module(name)
        if other is None or other == SOURCES / "__init__.py" or own == "__init__":
            continue
        assert floor(room(other)) <= floor(own), f"{own} imports {name}"


def test_the_page_of_the_architecture_has_every_room_on_its_floor() -> None:
    text = (SOURCES.parents[1] / "docs/contributing/architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| ([^|]+) \|", text, re.MULTILINE)
    shown = {name.removesuffix("/"): int(number) for number, names in rows for name in re.findall("`([^`]+)`", names)}
    assert shown == {SHOWN.get(name, name): number for number, rooms in enumerate(ORDER, 1) for name in rooms}


def test_data_rooms_share_datasets_alone() -> None:
    rooms = {"corpus", "images", "clicks"}
    for own in rooms:
        for path in (SOURCES / own).rglob("*.py"):
            others = {room(other) for name in sources.imported(path) if (other := sources.module(name))}
            assert not others & (rooms - {own}), path


def test_data_rooms_have_no_circles() -> None:
    paths = [path for own in ("datasets", "corpus", "images", "clicks") for path in (SOURCES / own).rglob("*.py")]
    needs = {
        path: {other for name in sources.imported(path) if (other := sources.module(name)) in paths} for path in paths
    }
    while free := {path for path, others in needs.items() if path.name == "__init__.py" or not others}:
        needs = {path: others - free for path, others in needs.items() if path not in free}
    assert not needs


def test_analysis_computes_and_does_not_draw() -> None:
    for path in (SOURCES / "report/analysis").glob("*.py"):
        assert not {name for name in sources.imported(path) if name.startswith("throughline.report.render")}, path


def rank_files() -> list[Path]:
    places = [SOURCES / entry for entry in IN_A_RANK]
    return sorted(path for place in places for path in ([place] if place.suffix else place.rglob("*.py")))


def top_level(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return {name.split(".")[0] for name in found}


def trained_by(path: Path) -> list[str]:
    """Return the frameworks whose ranks execute a file, if not those of all frameworks do."""
    parts = path.relative_to(SOURCES).parts
    if room(path) == "mechanics":
        return [parts[1].replace("_", "-")]
    library = re.match(r"in_([a-z]+)", parts[-1])
    return [name for name in frameworks.NAMES if library and frameworks.of(name).library == library[1]]


def modules(framework: str) -> set[str]:
    """Return the modules that are certain to be in a framework's environment, because its pins name them."""
    environment = recipe.read(framework)
    pinned = {recipe.package(line).replace("-", "_") for line in environment.pinned}
    return pinned | {module.split(".")[0] for module in environment.check}


@pytest.mark.parametrize("path", rank_files(), ids=lambda path: str(path.relative_to(SOURCES)))
def test_a_rank_imports_only_what_its_environment_has(path: Path) -> None:
    neutral = path.name == "__init__.py" and path.parts[-3] in ("workloads", "frameworks")
    libraries = set.intersection(*found) if (found := [modules(name) for name in trained_by(path)]) else set()
    allowed = {"throughline", *sys.stdlib_module_names, *libraries} | (set() if neutral else {"numpy", "h5py"})
    assert top_level(path) <= allowed
    rooms = {room(other) for name in sources.imported(path) if (other := sources.module(name))}
    assert not rooms & {"study", "records", "report", "checks", "launch"} or path.name == "reference.py"
