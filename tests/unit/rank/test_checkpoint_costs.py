"""What a rank makes of its checkpoints: how often it saves, what they cost its steps, and whether loads are right."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from throughline.rank import checkpoint_costs
from throughline.rank.checkpoint_costs import measure

STEP_S, BLOCKED_S, WRITE_S = 0.01, 0.02, 0.06


class Framework:
    """A framework with one number as its state. Its saves in the background make each step twice as long."""

    def __init__(self, forgets: bool = False, full: bool = False) -> None:
        self.state, self.forgets, self.full = 0, forgets, full
        self.pool, self.saving = ThreadPoolExecutor(1), 0
        self.sync = self.barrier = lambda: None
        self.broadcast = int

    def checkpoints(self) -> Framework:
        return self

    def step(self) -> None:
        time.sleep(STEP_S * (2 if self.saving else 1))
        self.state += 1

    def digest(self) -> str:
        return str(self.state)

    def spoil(self) -> None:
        self.state = -1

    def save(self, folder: Path) -> None:
        if self.full:
            raise OSError(28, "No space left on device")
        self._write(folder, self.state)

    def _write(self, folder: Path, state: int) -> None:
        time.sleep(WRITE_S)
        folder.mkdir()
        (folder / "state").write_text(str(state))
        self.saving = 0

    def save_async(self, folder: Path) -> Future[None]:
        time.sleep(BLOCKED_S)
        self.saving = 1
        return self.pool.submit(self._write, folder, self.state)

    def load(self, folder: Path) -> None:
        self.state = 0 if self.forgets else int((folder / "state").read_text())


def run_of(folder: Path | None, framework: Framework) -> Any:
    heart = SimpleNamespace(phase=lambda name: None, step=lambda done: None)
    plan = SimpleNamespace(checkpoints=folder and str(folder))
    return SimpleNamespace(plan=plan, framework=framework, heart=heart, rank=0, step=framework.step)


def test_each_way_is_measured_and_what_was_loaded_is_what_was_saved(tmp_path: Path) -> None:
    told = measure(run_of(tmp_path, Framework()), checkpoint_costs.LOOK_S)  # the ranks ask after each step
    assert told and told.reason is None and told.equal and told.bytes
    assert len(told.save_s) == len(told.async_lost_s) == checkpoint_costs.TIMES
    assert min(told.save_s) >= WRITE_S and min(told.async_blocked_s) >= BLOCKED_S
    assert min(told.async_written_s) >= BLOCKED_S + WRITE_S
    assert max(told.async_lost_s) > BLOCKED_S, "it holds the steps up, and slows the others down"
    assert len(told.load_cold_s + told.load_warm_s) == 4 and told.digest


def test_a_load_that_brings_something_else_back_is_seen(tmp_path: Path) -> None:
    told = measure(run_of(tmp_path, Framework(forgets=True)), STEP_S)
    assert told and told.reason is None and told.equal is False


def test_a_full_disk_is_a_reason_and_a_run_without_the_option_measures_nothing(tmp_path: Path) -> None:
    told = measure(run_of(tmp_path, Framework(full=True)), STEP_S)
    assert told and told.reason and "No space left" in told.reason
    assert measure(run_of(None, Framework()), STEP_S) is None


def test_a_long_save_is_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_costs, "LONG_S", WRITE_S / 2)
    told = measure(run_of(tmp_path, Framework()), STEP_S)
    assert told and len(told.save_s) == len(told.async_written_s) == 1
