"""Helpers that look at processes from outside, for the tests of faults."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from throughline import processes


def workers_below(launcher: int) -> list[int]:
    """Return the ranks among the launcher's descendants. Horovod's launcher also has the worker's name among its
    arguments, but further back."""
    return [
        pid
        for pid in processes.descendants(launcher)
        if b"throughline.rank.worker" in processes.command_line(pid).split(b"\0")[2:4]
    ]


def variable(pid: int, name: str) -> str:
    entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return next(entry.decode().partition("=")[2] for entry in entries if entry.startswith(f"{name}=".encode()))


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def until(done: Callable[[], object], seconds: float = 180, every_s: float = 0.05) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(every_s)


def works(*command: str) -> bool:
    return shutil.which(command[0]) is not None and subprocess.run(command, capture_output=True).returncode == 0


def needs(there: bool, what: str) -> None:
    """Skip the test if the system lacks `what`. Fail it in continuous integration, where nothing may be missing."""
    if not there:
        (pytest.fail if os.environ.get("THROUGHLINE_REQUIRE_SYSTEM") == "1" else pytest.skip)(f"needs {what}")


@contextlib.contextmanager
def mounted(folder: Path, options: str, *there: str) -> Iterator[Path]:
    """Mount a tmpfs at `folder`. `there`: a command that runs `mount` in another place, such as `nsenter`."""
    folder.mkdir(exist_ok=True)
    command = [*there, "mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run([*there, "umount", "--lazy", str(folder)], check=True)


def psutil_that(does: str, folder: Path) -> str:
    """Return a value of PYTHONPATH with which importing psutil, as only the sampler does, first executes `does`."""
    folder.mkdir(parents=True)
    real = "import os, sys; sys.path.remove(os.path.dirname(__file__)); del sys.modules['psutil']; import psutil"
    (folder / "psutil.py").write_text(f"{does}\n{real}\n")
    return str(folder)


def compiled(library: Path, source: str, *words: str) -> Path:
    """Compile a shared library from C; return its path. Skip the test if there is no C compiler."""
    needs(shutil.which("cc") is not None, "a C compiler")
    command = ["cc", "-shared", "-fPIC", "-w", "-x", "c", "-", "-o", str(library), *words]
    subprocess.run(command, input=source, text=True, check=True)
    return library
