"""A child process ends with all that it has started, and its number belongs to nobody else until then."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from process_helpers import alive
from throughline.processes import Child, wait_until


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_the_group_is_killed_before_its_leader_is_reaped(monkeypatch: pytest.MonkeyPatch) -> None:
    """After that, the system may give the leader's number to another group of processes."""
    program = "import subprocess; print(subprocess.Popen(['sleep', '60']).pid, flush=True); raise SystemExit(3)"
    said: list[str] = []
    child = Child([sys.executable, "-c", program], dict(os.environ), said.append)
    assert wait_until(lambda: child.exit_status() is not None, 20) and child.exit_status() == 3
    states: list[str] = []

    def kill_group(leader: int, number: int) -> None:
        states.append(state(leader))
        os.kill(int(said[0]), number)

    monkeypatch.setattr(os, "killpg", kill_group)
    child.end(5.0)
    assert states == ["Z"] and child.exit_status() == 3
    assert wait_until(lambda: not alive(int(said[0])), 10)


def test_what_does_not_end_by_itself_is_killed() -> None:
    child = Child(["sleep", "60"], dict(os.environ), print)
    assert child.exit_status() is None
    child.end(0.1)
    assert child.exit_status() == -signal.SIGKILL
