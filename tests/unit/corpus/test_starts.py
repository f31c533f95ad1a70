"""A corpus is made by hundreds of short processes. None of them loads what it does not need."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SINGLE = ["adopt", "cut", "extract", "gather", "manifest", "shard", "tokenize", "verify"]


def loaded(*command: str) -> set[str]:
    """The modules that a Python process imports."""
    command = (sys.executable, "-X", "importtime", *command)
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return {line.rpartition("|")[2].strip() for line in run.stderr.splitlines() if line.startswith("import time:")}


@pytest.mark.parametrize("name", SINGLE)
def test_arguments_are_read_before_anything_large_is_loaded(name: str) -> None:
    found = loaded("-m", "throughline.command", f"corpus.{name}", "--help")
    assert "argparse" in found and not found & {"numpy", "h5py", "pydantic", "http.client"}


def test_cutting_extracting_and_the_manifest_do_without_arrays() -> None:
    found = loaded(
        "-c",
        "from throughline.corpus.source import dumps\n"
        "from throughline.corpus.text import extraction, vocabulary\n"
        "from throughline.corpus import manifest",
    )
    large = {"numpy", "h5py", "pydantic", "http.client", "ssl"}
    assert "throughline.corpus.manifest" in found and not found & large


def test_algebra_has_one_thread() -> None:
    code = (
        "import os, sys; from throughline.files import command_line\n"
        "def main(): import numpy; print(len(os.listdir('/proc/self/task'))); return 3\n"
        "command_line(main, single=True)"
    )
    environment = {name: value for name, value in os.environ.items() if "NUM_THREADS" not in name}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert (run.stdout, run.returncode) == ("1\n", 3)
