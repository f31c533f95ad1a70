"""Which module may import which: no room imports a room above it, and a rank imports nothing that is missing in old
environments."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from throughline import sources

SOURCES = sources.ROOT
ORDER = [
    {
        "files",
        "statistics",
        "gpus",
        "processes",
        "sources",
        "recipes",
        "memory",
        "messages",
        "temporary",
        "topology",
        "job",
        "schedule",
        "progress",
        "randomness",
    },
    {"workloads"},
    {"study"},
    {"records", "published", "corpus", "images", "faces", "clicks"},
    {"frameworks", "forms"},
    {"rank", "observe"},
    {"launch"},
    {"checks", "report", "console", "imports"},
]
"""The floors of rooms, from the ground up. A room may import from its own floor and from those below. `forms` are the
workloads' files for one library."""
LIBRARIES = {
    "torch": {"torch", "horovod"},
    "mxnet": {"mxnet", "gluonnlp", "horovod"},
    "paddle": {"paddle"},
    "horovod": {"horovod"},
    "jax": {"jax", "jaxlib", "optax"},
    "tensorflow": {"tensorflow"},
    "keras": {"keras", "keras_hub"},
    "transformers": {"torch", "transformers"},
    "hf": {"torch", "transformers", "accelerate"},
}
"""Library -> what a file may import if its name contains the library's name."""
IN_A_RANK = [
    *("rank", "frameworks", "workloads"),
    *("randomness.py", "corpus/reading.py"),
    *("corpus/shards/__init__.py", "corpus/shards/layout.py", "corpus/shards/masks.py"),
    *("images/reading.py", "images/index.py", "clicks/reading.py", "faces/reading.py"),
]


def room(path: Path) -> str:
    parts = path.relative_to(SOURCES).parts
    if parts[0] == "workloads" and parts[-1].startswith("in_"):
        return "forms"
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


@pytest.mark.parametrize("path", rank_files(), ids=lambda path: str(path.relative_to(SOURCES)))
def test_a_rank_imports_only_what_its_environment_has(path: Path) -> None:
    words = [word for part in path.relative_to(SOURCES).with_suffix("").parts for word in part.split("_")]
    neutral = path.name == "__init__.py" and path.parts[-3] in ("workloads", "frameworks")
    libraries = {name for word in words for name in LIBRARIES.get(word, ()) if not neutral}
    allowed = {"throughline", *sys.stdlib_module_names, *libraries} | (set() if neutral else {"numpy", "h5py"})
    assert top_level(path) <= allowed
    rooms = {room(other) for name in sources.imported(path) if (other := sources.module(name))}
    assert not rooms & {"study", "records", "report", "checks", "launch"} or path.name == "reference.py"
