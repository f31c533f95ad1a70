"""An agent removes what a killed agent left in the temporary folder, and nothing else."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

import training_fixtures
from process_helpers import alive
from throughline import processes, temporary
from throughline.launch.supervision import Agents
from throughline.processes import wait_until


def agents(folder: Path, rank: str) -> Agents:
    """Return an agent whose rank is the shell script `rank`. Its folder lies in the system's temporary folder."""
    folder.mkdir()
    python = folder / "python"
    agent = f'exec {shlex.quote(sys.executable)} "$@"'
    python.write_text(f'#!/bin/sh\ncase "$2" in *.worker) {rank} ;; *) {agent} ;; esac\n')
    python.chmod(0o755)
    variables = {"TMPDIR": os.environ["TMPDIR"]}
    plan = training_fixtures.plan(
        "1n1g", "simulated", python=str(python), telemetry=False, variables=variables, hosts=["localhost"]
    )
    return Agents(plan, folder, lambda line: None, ())


@pytest.mark.slow
def test_what_a_killed_agent_left_goes_with_the_next_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))

    def folders() -> set[Path]:
        return {path for path in place.glob(f"{temporary.PREFIX}*") if path.is_dir() and not path.is_symlink()}

    speaks = 'touch "$THROUGHLINE_NODE/began"; exec sleep 600'
    live = agents(tmp_path / "live", speaks)
    killed = agents(tmp_path / "killed", speaks)
    try:
        assert wait_until(lambda: len([*place.glob("*/began")]) == 2, 60)
        started = {pid: processes.command_line(pid) for pid in processes.descendants(os.getpid())}
        # The rank, which comes after the agent, may have these words as well: its shell has not become `sleep` yet.
        agent = next(
            pid for pid, words in started.items() if os.fsencode(tmp_path / "killed" / "launch_plan.json") in words
        )
        everything = [agent, *processes.descendants(agent)]
        os.kill(agent, signal.SIGKILL)
        assert wait_until(lambda: not any(map(alive, everything)), 20)
        assert len(folders()) == 2, "nobody is there to remove it"

        elsewhere, stranger = tmp_path / "elsewhere", place / f"{temporary.PREFIX}stranger"
        for folder in (elsewhere, stranger, place / "throughline-somebody"):
            folder.mkdir()
            (folder / "file").touch()
        (place / f"{temporary.PREFIX}link").symlink_to(elsewhere)
        (place / f"{temporary.PREFIX}file").touch()
        if os.geteuid() == 0:
            os.chown(stranger, 12345, 12345)
        following = agents(tmp_path / "following", "exit 0")
        try:
            assert wait_until(following.are_over, 60)
        finally:
            following.end()
        (left,) = folders() - {stranger}
        assert (left / "began").exists() and live.seen()[2] == []
        assert (stranger / "file").exists() == (os.geteuid() == 0)
        assert (elsewhere / "file").exists() and (place / "throughline-somebody" / "file").exists()
        assert (place / f"{temporary.PREFIX}link").is_symlink() and (place / f"{temporary.PREFIX}file").exists()
    finally:
        killed.end()
        live.end()
    assert folders() <= {stranger}


def test_a_folder_that_is_removed_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders: list[Path] = []

    def make(**how: Any) -> str:
        folders.append(Path(mkdtemp(**how)))
        if len(folders) == 1:
            temporary._remove_stale(tmp_path)
        return str(folders[-1])

    mkdtemp = tempfile.mkdtemp
    monkeypatch.setattr(tempfile, "mkdtemp", make)
    with temporary.folder(tmp_path) as path:
        assert folders == [folders[0], path] and [*tmp_path.iterdir()] == [path]
