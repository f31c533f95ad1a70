"""Checkpoints in real runs: every way to divide the states is saved, loaded, and begun again from after a kill."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import training_fixtures
from throughline import handover
from throughline.frameworks.torch.checkpoint import Checkpoints
from throughline.launch import launcher
from throughline.launch.request import RunRequest
from throughline.records import RunRecord
from throughline.workloads import Unsupported


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THROUGHLINE_LOCKS", str(tmp_path / "locks"))


def measured(root: Path, topology: str, **changes: Any) -> RunRecord:
    options = {"data": "synthetic", "checkpoint": True, **changes.pop("options", {})}
    spec = training_fixtures.spec(topology=topology, options=options, **changes)
    request = RunRequest(spec, root / "run1.json", root / "run1.log", hang_after_s=120)
    return RunRecord.model_validate(launcher.run(request))


@pytest.mark.parametrize(
    ("topology", "sharding", "optimizer"),
    [("1n1g", "none", "adamw"), ("1n2g", "zero1", "lamb"), ("1n2g", "full_shard", "bertadam")],
)
def test_what_is_loaded_is_what_was_saved_also_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topology: str, sharding: str, optimizer: str
) -> None:
    monkeypatch.setenv(handover.VARIABLE, handover.packed(checkpoints={"bert": str(tmp_path / "elsewhere")}))
    record = measured(tmp_path, topology, options={"sharding": sharding}, optimizer={"name": optimizer})
    told = record.checkpoints
    assert record.status == "ok" and told and told.reason is None
    assert told.equal and told.restart_equal and told.restart_s
    assert record.settings and told.bytes
    parameters = record.settings["parameters"]
    assert 12 * parameters < told.bytes < 13 * parameters + 2_000_000, "weights and two moments in fp32"
    assert len(told.save_s) == len(told.async_lost_s) == 3 and len(told.load_cold_s + told.load_warm_s) == 4
    assert all(blocked < written for blocked, written in zip(told.async_blocked_s, told.async_written_s, strict=True))
    assert list((tmp_path / "elsewhere").iterdir()) == [], "no checkpoint is left"
    assert "killed on purpose" in (tmp_path / "run1.log").read_text()


def test_parts_that_a_checkpoint_would_mix_are_refused() -> None:
    rank: Any = SimpleNamespace(tensor=object(), experts=None, spread=frozenset())
    with pytest.raises(Unsupported, match="different parts of a tensor under one name"):
        Checkpoints(rank)
