"""Real runs of every framework, and of one more: in a copy of the library, `fake` is a framework as well."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import training_fixtures
from throughline import frameworks, records
from throughline.installation import choose, recipe

ROOT = Path(__file__).parents[1]
REQUIRED = os.environ.get("THROUGHLINE_REQUIRE_SYSTEM") == "1"
"""True in continuous integration, where nothing may be missing."""

NAMES = [*frameworks.NAMES, "fake"]
LIBRARIES = "    libraries = {"
FORM = """    libraries = {
        "numpy": frozenset({"devices", "gradient_accumulation", "clipping", "bf16", "compile"}),"""


def register(root: Path) -> None:
    """Add the framework `fake` to a copy of the library, as docs/contributing/add-a-framework.md says.

    It needs a folder, a list of packages (here only numpy), and the form of a workload in its library, which the
    workload's `libraries` names.
    """
    workload = root / "src/throughline/workloads/bert"
    folder = root / "src/throughline/frameworks/fake"
    shutil.copytree(ROOT / "tests/frameworks/fake", folder, ignore=shutil.ignore_patterns("__pycache__", "in_*.py"))
    (root / "envs/fake.txt").write_text("numpy==2.4.6\n")
    (root / "envs/fake.yaml").write_text("dependencies: [python=3.11, numpy=2.4.6]\n")
    shutil.copy(ROOT / "tests/frameworks/fake/in_numpy.py", workload)
    text = (workload / "__init__.py").read_text()
    assert text.count(LIBRARIES) == 1
    (workload / "__init__.py").write_text(text.replace(LIBRARIES, FORM))


def python(framework: str) -> str:
    """Return a framework's interpreter. Skip the test if the environment is not built; fail where it must be built."""
    marker = choose.ready(framework)
    if marker is None:
        return sys.executable
    if not marker.is_file():
        message = f"the environment of {framework} is not built: make frameworks"
        pytest.fail(message) if REQUIRED else pytest.skip(message)
    return recipe.python_of(recipe.name_of(marker))


def built(names: Iterable[str]) -> dict[str, str]:
    """Map those of these frameworks whose environments are built to their interpreters."""
    markers = {name: choose.ready(name) for name in names}
    return {name: python(name) for name, marker in markers.items() if marker is None or marker.is_file()}


def helped(framework: str, helper: str, *arguments: object, **variables: str) -> list[Any]:
    """Run a program of tests/frameworks in a framework's environment; return each JSON map that it prints."""
    command = [python(framework), str(ROOT / "tests/frameworks" / helper), *map(str, arguments)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"} | variables
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def needs(program: str) -> None:
    """Skip the test if a system program is missing; fail where it must be there."""
    if shutil.which(program) is None:
        pytest.fail(f"{program} is missing") if REQUIRED else pytest.skip(f"{program} is missing")


class Lab:
    """A copy of the sources with the framework `fake`, and a small corpus."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("src", "workflow", "envs"):
            shutil.copytree(ROOT / name, folder / name)
        register(folder)
        self.manifest = training_fixtures.corpus(folder / "data")

    def launch(self, framework: str, *options: str, **changes: Any) -> tuple[subprocess.CompletedProcess[str], Path]:
        """Call run_training.py; return the finished process and the path of its record."""
        variables = changes.pop("variables", {})
        spec = training_fixtures.spec(framework=framework, **changes)
        record = self.folder / spec.record
        record.unlink(missing_ok=True)
        command = [
            *(sys.executable, "src/start.py", "workflow/scripts/run_training.py", "--spec", spec.canonical),
            *("--python", python(framework), "--manifest", str(self.manifest)),
            *("--record", str(record), "--log", str(record.with_suffix(".log")), *options),
        ]
        environment = os.environ | variables | {"THROUGHLINE_LOCKS": str(self.folder)}
        done = subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        return done, record

    def run(self, framework: str, **changes: Any) -> records.RunRecord:
        """Make a run that must succeed, and return its record."""
        done, record = self.launch(framework, **changes)
        log = record.with_suffix(".log")
        assert done.returncode == 0, done.stderr + (log.read_text() if log.exists() else "")
        return records.RunRecord.model_validate(json.loads(record.read_text()))
