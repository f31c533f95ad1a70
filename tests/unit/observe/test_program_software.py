"""What decides whether repeats of a program are pooled: its commit, its changes, further files, and its packages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import training_fixtures
from throughline.messages import ProgramPlan
from throughline.observe import program_software

COMMAND = ("python", "train.py", "--lr=1", "x" * 5000)
"""A word of a command may be a long program for a shell."""


def state(folder: Path, *patterns: str) -> str:
    return program_software.code(folder, list(patterns), COMMAND)


def git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", str(folder), *who, *words], check=True, capture_output=True)


def test_without_git_the_files_of_the_command_count(tmp_path: Path) -> None:
    assert state(tmp_path) == "unknown: no git checkout, and no files are named"
    (tmp_path / "train.py").write_text("a")
    before = state(tmp_path)
    (tmp_path / "other.py").write_text("a")
    assert before.startswith("files ") and state(tmp_path) == before != state(tmp_path, "*.py")
    (tmp_path / "train.py").write_text("b")
    assert state(tmp_path) != before


def test_with_git_the_commit_and_what_it_lacks_count(tmp_path: Path) -> None:
    git(tmp_path, "init")
    (tmp_path / "model.py").write_text("a")
    git(tmp_path, "add", "model.py")
    git(tmp_path, "commit", "-m", "first")
    (commit,) = state(tmp_path).split(", ")
    assert commit.startswith("commit ") and len(commit.split()[1]) == 12
    (tmp_path / "model.py").write_text("b")
    assert state(tmp_path).startswith(f"{commit}, changes ")
    (tmp_path / "model.py").write_text("a")
    (tmp_path / "train.py").write_text("a")  # git does not have it
    assert state(tmp_path).startswith(f"{commit}, files ")


@pytest.mark.parametrize(("python", "has_packages"), [(None, False), (sys.executable, True), ("/no/python", False)])
def test_the_packages_of_a_python(tmp_path: Path, python: str | None, has_packages: bool) -> None:
    plan = ProgramPlan(str(tmp_path), [], python, silent_for=600.0, timeout=None, min_window_seconds=0.0)
    found = program_software.of(training_fixtures.program_spec({}), plan)
    assert ("numpy" in found.packages) == has_packages
    assert list(found.versions) == ["own"] and str(tmp_path) not in str(found)
