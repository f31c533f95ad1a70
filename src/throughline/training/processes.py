"""Worker processes that never outlive their launcher, and whose output is a log. Standard library only."""

from __future__ import annotations

import collections
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

PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int, number: int) -> None:
    """Have the kernel send this process signal `number` when process `parent` ends (Linux; elsewhere nothing)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)
        if os.getppid() != parent:  # it ended before the kernel knew
            os.kill(os.getpid(), number)


class Worker:
    """One rank: a process in a session of its own, whose output goes line by line to `write`."""

    def __init__(
        self, rank: int, command: list[str], environment: dict[str, str], write: Callable[[str], None]
    ) -> None:
        self.rank = rank
        self.last_words: collections.deque[str] = collections.deque(maxlen=20)
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._pump = threading.Thread(target=self._read, args=(write,), name=f"output {rank}", daemon=True)
        self._pump.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def exit_status(self) -> int | None:
        """None while it runs; negative: the signal that ended it."""
        return self._process.poll()

    def signal(self, number: int) -> None:
        """Send a signal to the worker alone."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    def end(self) -> None:
        """Kill the worker and all that it started, and read its output to the end."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._pump.join(5)

    def _read(self, write: Callable[[str], None]) -> None:
        stream = self._process.stdout
        assert stream is not None
        for line in stream:
            text = line.decode("utf-8", "replace").rstrip()
            self.last_words.append(text)
            write(f"[rank {self.rank}] {text}")


class Parent:
    """Notices the end of whoever started the launcher: its parent, and a Snakemake behind the parent's shell."""

    def __init__(self) -> None:
        self._parent = os.getppid()
        self._above = _parent_of(self._parent)
        if not (self._above and b"snakemake" in _command_line(self._above)):
            self._above = None

    def is_gone(self) -> bool:
        if os.getppid() != self._parent:
            return True
        return self._above is not None and _parent_of(self._parent) != self._above


def wait_until(done: Callable[[], bool], seconds: float, every: float = 0.05) -> bool:
    """Whether `done()` came true within `seconds`."""
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(every)
    return True


def _parent_of(pid: int) -> int | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[1])


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
