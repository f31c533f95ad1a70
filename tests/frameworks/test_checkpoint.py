"""Checkpoints in real runs: every way to divide the states is saved, loaded, and begun again from after a kill."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import training_fixtures
from framework_lab import ran
from throughline import handover
from throughline.frameworks.torch.checkpoint import Checkpoints
from throughline.workloads import Unsupported


@pytest.mark.parametrize(
    ("topology", "sharding", "optimizer"),
    [("1n1g", "none", "adamw"), ("1n2g", "zero1", "lamb"), ("1n2g", "full_shard", "bertadam")],
)
def test_what_is_loaded_is_what_was_saved_also_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topology: str, sharding: str, optimizer: str
) -> None:
    monkeypatch.setenv(handover.VARIABLE, handover.packed(checkpoints={"bert": str(tmp_path / "elsewhere")}))
    options = {"data": "synthetic", "checkpoint": True, "sharding": sharding}
    spec = training_fixtures.spec(topology=topology, options=options, optimizer={"name": optimizer})
    record = ran(spec, tmp_path, hang_after_s=120)
    told = record.checkpoints
    assert record.status == "ok" and told and told.reason is None
    assert told.equal and told.restart_equal and told.restart_s
    assert record.settings and told.bytes
    parameters = record.settings["parameters"]
    assert 12 * parameters < told.bytes < 13 * parameters + 2_000_000, "weights and two moments in fp32"
    assert len(told.save_s) == len(told.async_lost_s) == 3 and len(told.load_cold_s + told.load_warm_s) == 4
    assert all(blocked < written for blocked, written in zip(told.async_blocked_s, told.async_written_s, strict=True))
    assert list((tmp_path / "elsewhere").iterdir()) == [], "no checkpoint is left"
    assert "killed on purpose" in (tmp_path / spec.log).read_text()


def test_parts_that_a_checkpoint_would_mix_are_refused() -> None:
    rank: Any = SimpleNamespace(tensor=object(), experts=None, spread=frozenset())
    with pytest.raises(Unsupported, match="different parts of a tensor under one name"):
        Checkpoints(rank)
