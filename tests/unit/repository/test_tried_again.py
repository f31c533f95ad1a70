"""A test that failed at first and then passed is named at the end of the run, with its first error."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TESTS = """
from pathlib import Path

import pytest

TRIED = Path(__file__).with_name("tried")


def test_first_time():
    here = TRIED.exists()
    TRIED.touch()
    assert here, "nobody has\\ncome by"


@pytest.mark.skip(reason="later")
def test_skipped():
    pass
"""


def run(folder: Path, *arguments: str) -> list[str]:
    """The last lines of a run of tests in `folder`, which has our settings."""
    (folder / "tests/faults").mkdir(parents=True)
    shutil.copy(ROOT / "pyproject.toml", folder)
    shutil.copy(ROOT / "tests/conftest.py", folder / "tests")
    (folder / "tests/faults/test_bus.py").write_text(TESTS)
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--tried-again=again.txt", *arguments]
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("workers", ["0", "1"])
def test_it_is_named_at_the_end(tmp_path: Path, workers: str) -> None:
    skipped, section, line, sums = run(tmp_path, "-n", workers)[-4:]
    assert skipped.startswith("SKIPPED") and section.strip("= ") == "tried again"
    assert line == "tried again: tests/faults/test_bus.py::test_first_time: AssertionError: nobody has"
    assert "1 passed, 1 skipped, 1 rerun in" in sums
    assert (tmp_path / "again.txt").read_text() == f"{line}\n"
