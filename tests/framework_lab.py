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

import training_fixtures
from process_helpers import needs
from throughline import frameworks, records
from throughline.installation import choose, recipe
from throughline.launch import launcher
from throughline.launch.request import RunRequest
from throughline.spec import RunSpec

ROOT = Path(__file__).parents[1]
RUN_TRAINING = [sys.executable, str(ROOT / "src/start.py"), str(ROOT / "workflow/scripts/run_training.py")]
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
    needs(marker.is_file(), f"the environment of {framework}: make frameworks")
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


def arguments(spec: RunSpec[Any], folder: Path, manifest: Path | None = None) -> list[str]:
    """Return the arguments of run_training.py for a run whose record and log come into `folder`."""
    words = ["--spec", spec.canonical, "--record", str(folder / spec.record), "--log", str(folder / spec.log)]
    return words + (["--manifest", str(manifest)] if manifest else [])


def ran(spec: RunSpec[Any], folder: Path, manifest: Path | None = None, **request: Any) -> records.RunRecord:
    """Make a run whose launcher is this process; return its record, which lies in `folder`."""
    record = folder / spec.record
    launcher.run(RunRequest(spec=spec, record=record, log=folder / spec.log, manifest=manifest, **request))
    return records.read_run(record)


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
        words = [*arguments(spec, self.folder, self.manifest), "--python", python(framework), *options]
        return self.script("run_training", *words, **variables), record

    def script(self, name: str, *words: object, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a script of the copy's workflow."""
        command = [sys.executable, "src/start.py", f"workflow/scripts/{name}.py", *map(str, words)]
        environment = os.environ | variables
        return subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=300, check=False
        )

    def run(self, framework: str, **changes: Any) -> records.RunRecord:
        """Make a run that must succeed, and return its record."""
        done, record = self.launch(framework, **changes)
        log = record.with_suffix(".log")
        assert done.returncode == 0, done.stderr + (log.read_text() if log.exists() else "")
        return records.RunRecord.model_validate(json.loads(record.read_text()))
