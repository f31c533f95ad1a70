"""Synthetic programs: shell scripts in a folder that is first in PATH."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Program = Callable[[str, str], str]


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    """A function that writes a shell script under a name, and returns its path."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    def write(name: str, body: str = "") -> str:
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
        return str(tmp_path / name)

    return write
