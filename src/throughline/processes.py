"""Processes that never outlive whoever started them. Standard library only."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def die_with_parent(parent: int, number: int) -> None:
    """Have the kernel send this process signal `number` when process `parent` ends (Linux; elsewhere nothing)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)
        if os.getppid() != parent:  # it ended before the kernel knew
            os.kill(os.getpid(), number)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends (Linux; elsewhere nothing)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class Child:
    """A process in a session of its own: its output goes line by line to `hear`, its input is a lifeline.

    Whoever runs behind it ends when its input does: with this process, however this one ended.
    """

    def __init__(self, command: list[str], environment: dict[str, str], hear: Callable[[str], None]) -> None:
        pipe, joined = subprocess.PIPE, subprocess.STDOUT
        self._process = subprocess.Popen(
            command, env=environment, stdin=pipe, stdout=pipe, stderr=joined, start_new_session=True
        )
        assert self._process.stdin and self._process.stdout
        self._input, self._output = self._process.stdin, self._process.stdout
        self._pump = threading.Thread(target=self._read, args=(hear,), name="output", daemon=True)
        self._pump.start()

    def exit_status(self) -> int | None:
        """None while it runs; negative: the signal that ended it."""
        return self._process.poll()

    def tell(self, text: str) -> None:
        """Write a line to its input."""
        with contextlib.suppress(OSError):
            self._input.write(f"{text}\n".encode())
            self._input.flush()

    def let_go(self) -> None:
        """Cut the lifeline, without waiting for what follows."""
        with contextlib.suppress(OSError):
            self._input.close()

    def end(self, patience_s: float) -> None:
        """Cut the lifeline; kill what is there after `patience_s`; read its output to the end."""
        self.let_go()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(patience_s)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._pump.join(5)

    def _read(self, hear: Callable[[str], None]) -> None:
        for line in self._output:
            hear(line.decode("utf-8", "replace").rstrip())


class Parent:
    """Notices the end of whoever started the launcher: its parent, and a Snakemake behind the parent's shell."""

    def __init__(self) -> None:
        self._parent = os.getppid()
        self._above = _parent_of(self._parent)
        self._is_watched = self._above is not None and b"snakemake" in command_line(self._above)

    def is_gone(self) -> bool:
        return os.getppid() != self._parent or (self._is_watched and _parent_of(self._parent) != self._above)


def wait_until(done: Callable[[], bool], seconds: float, every: float = 0.05) -> bool:
    """Whether `done()` came true within `seconds`."""
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(every)
    return True


def descendants(ancestor: int) -> list[int]:
    """Every process below `ancestor`, zombies left out."""
    below: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := stat(int(entry.name))) and fields[0] not in "ZX":
            below.setdefault(int(fields[1]), []).append(int(entry.name))
    pids = [ancestor]
    for pid in pids:
        pids += below.get(pid, [])
    return pids[1:]


def stat(pid: int) -> list[str] | None:
    """/proc/<pid>/stat from the state on: [0] the state, [1] the parent, [49] the exit status as wait(2) has it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def _parent_of(pid: int) -> int | None:
    fields = stat(pid)
    return int(fields[1]) if fields else None


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
