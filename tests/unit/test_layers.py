"""Who may know whom: no room imports one above it, and the workers import nothing that old environments lack."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "src" / "throughline"
# From the ground up; a room may import its own floor and those below.
FLOORS = [
    {"files"},
    {"config", "config_errors"},
    {"runs"},
    {"records", "statistics", "gpus", "config_reference"},
    {"corpus", "training", "report", "plan", "features_reference"},
]
FRAMEWORK_LIBRARIES = {
    "torch_ddp": {"torch"},
    "torch_rank": {"torch"},
    "torch_graph": {"torch"},
    "torch_horovod": {"torch", "horovod"},
    "mxnet_horovod": {"mxnet", "horovod", "gluonnlp"},
    "mxnet_optimizers": {"mxnet"},
    "mxnet_convergence": {"mxnet"},
    "torch_optimizers": {"torch"},
    "torch_convergence": {"torch"},
    "bert_torch_evaluation": {"torch"},
    "bert_torch": {"torch", "transformers"},
    "bert_mxnet": {"mxnet", "gluonnlp"},
}
WORKER_SIDE = [
    *("training/worker.py", "training/convergence.py", "training/data.py", "corpus/shards.py"),
    *("corpus/masks.py", "corpus/randomness.py"),
    *("training/frameworks", "training/models"),
]


def room(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def imports(path: Path, *, everywhere: bool = True) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = ast.walk(tree) if everywhere else iter(tree.body)
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {
                f"{node.module}.{alias.name}" if node.module == "throughline" else node.module for alias in node.names
            }
    return found


def floor(name: str) -> int:
    return next(number for number, rooms in enumerate(FLOORS) if name in rooms)


@pytest.mark.parametrize("path", sorted(SOURCES.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCES)))
def test_nothing_looks_upwards(path: Path) -> None:
    own = path.relative_to(SOURCES).parts[0].removesuffix(".py")
    if own == "__init__":
        return
    for module in imports(path):
        if module.split(".")[0] == "throughline" and room(module):
            assert floor(room(module)) <= floor(own), f"{own} imports {module}"


def worker_files() -> list[Path]:
    return sorted(
        path
        for entry in WORKER_SIDE
        for path in ([SOURCES / entry] if entry.endswith(".py") else (SOURCES / entry).glob("*.py"))
    )


@pytest.mark.parametrize("path", worker_files(), ids=lambda path: str(path.relative_to(SOURCES)))
def test_workers_import_only_what_their_environment_has(path: Path) -> None:
    allowed = {"numpy", "h5py", "throughline", *FRAMEWORK_LIBRARIES.get(path.stem, set())} | set(
        sys.stdlib_module_names
    )
    top = {module.split(".")[0] for module in imports(path, everywhere=False)}
    assert top <= allowed
    ours = {module for module in imports(path) if module.startswith("throughline")}
    assert not {module for module in ours if room(module) in {"config", "runs", "records", "report", "statistics"}}
