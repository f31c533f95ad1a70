"""Start processes that never outlive the process that started them. Standard library only."""

import contextlib
import ctypes
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

START = Path(__file__).absolute().parents[1] / "start.py"
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def module(python: str, name: str, *words: str) -> list[str]:
    """Return the command that runs one of our modules with any Python: it finds the library of this clone."""
    return [python, str(START), name, *words]


def output(
    *command: str, folder: Path | None = None, variables: Mapping[str, str] | None = None, timeout_s: float = 60
) -> str | None:
    """Return what a program prints, started in `folder` with `variables`; None if it is missing, fails or is slow."""
    try:
        done = subprocess.run(
            command, cwd=folder, env=variables, capture_output=True, text=True, errors="replace", timeout=timeout_s,
            check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout


def die_with_parent(parent: int, number: int) -> None:
    """Make the kernel send signal `number` to this process when process `parent` ends."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:  # it ended before the call above
        os.kill(os.getpid(), number)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def age_s() -> float:
    """Return how many seconds ago the kernel started this process, to a hundredth."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))


class Child:
    """A process in its own session. We pass each line of its output to `hear`.

    Its input is a lifeline: the program must end when its input ends, and the input ends with this process.
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
        """Return the exit status: None while the process runs, negative if a signal ended it.

        The process is not reaped before `end`, so the system gives its number to no other group of processes.
        """
        if self._process.returncode is not None:
            return self._process.returncode
        ended = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status

    def tell(self, text: str) -> None:
        """Write a line to the input of the process, unless it has ended or was let go."""
        with contextlib.suppress(OSError, ValueError):  # ValueError: the input is closed
            self._input.write(f"{text}\n".encode())
            self._input.flush()

    def let_go(self) -> None:
        """Close the input, and do not wait for the process to end."""
        with contextlib.suppress(OSError):
            self._input.close()

    def end(self, patience_s: float) -> None:
        """Close the input, kill what still runs after `patience_s` seconds, and read the output to its end.

        Do not wait long for a process that the system cannot kill, because it hangs in a driver.
        """
        self.let_go()
        wait_until(lambda: self.exit_status() is not None, patience_s)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        self._pump.join(5)

    def _read(self, hear: Callable[[str], None]) -> None:
        for line in self._output:
            hear(line.decode("utf-8", "replace").rstrip())


class Parent:
    """Detects the end of the processes that started the launcher: its parent, and Snakemake if it started the parent.

    Snakemake starts the launcher through a shell, so it is the parent of the parent.
    """

    def __init__(self) -> None:
        self._parent = os.getppid()
        self._above = _parent_of(self._parent)
        self._is_watched = self._above is not None and b"snakemake" in command_line(self._above)

    def is_gone(self) -> bool:
        return os.getppid() != self._parent or (self._is_watched and _parent_of(self._parent) != self._above)


def wait_until(done: Callable[[], bool], seconds: float, every: float = 0.05) -> bool:
    """Wait until `done()` is true, at most `seconds`. Return True if it was."""
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(every)
    return True


def descendants(*ancestors: int) -> list[int]:
    """Return the process ids of all descendants of `ancestors`, without zombies."""
    below: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := stat(int(entry.name))) and fields[0] not in "ZX":
            below.setdefault(int(fields[1]), []).append(int(entry.name))
    pids = list(ancestors)
    for pid in pids:
        pids += below.pop(pid, [])
    return pids[len(ancestors) :]


def interrupt_group() -> None:
    """Send SIGINT to all descendants in the group of this process, as Ctrl-C does and `kill -INT` does not."""
    for pid in descendants(os.getpid()):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.getpgid(pid) == os.getpgrp():
                os.kill(pid, signal.SIGINT)


def stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/<pid>/stat from the state on; None if there is no such process.

    [0] is the state, [1] the parent, and [49] the exit status in the form of wait(2).
    """
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
