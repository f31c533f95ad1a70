"""The framework `torch` with real workers: without padding, compiled, and checkpoints of all that is split."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import training_fixtures
from framework_lab import ran
from throughline import handover
from throughline.frameworks.rank import load
from throughline.frameworks.torch.checkpoint import Checkpoints
from throughline.workloads import Unsupported


def test_without_padding_a_run_learns_the_same_from_real_tokens_alone(tmp_path: Path) -> None:
    manifest, every = training_fixtures.corpus(tmp_path / "data"), []
    for left_out in (False, True):
        spec = training_fixtures.spec(options={"dropout": 0.0, "remove_padding": left_out})
        every.append(ran(spec, tmp_path / str(left_out), manifest))
    padded, packed = every
    assert packed.loss == pytest.approx(padded.loss, rel=1e-5)
    assert packed.work.real_token_share == padded.work.real_token_share
    assert 0.5 < packed.work.real_token_share < 1
    assert packed.work.real_token_share < packed.work.flops_per_sample / padded.work.flops_per_sample < 1
    assert "left out" in packed.work.convention["tokens"] and "included" in padded.work.convention["tokens"]


@pytest.mark.alone
def test_compiled(tmp_path: Path) -> None:
    # As in test_equivalence.py, so that Inductor finds these kernels in its cache.
    options = {"compile": True, "activation_checkpointing": True, "dropout": 0.0}
    spec = training_fixtures.spec(options=options, steps={"warmup": 2, "timed": 2})
    record = ran(spec, tmp_path, training_fixtures.corpus(tmp_path / "data"))
    assert record.status == "ok"
    log = (tmp_path / spec.log).read_text()
    phases = {name: float(taken) for name, taken in re.findall(r"([a-z-]+) (\d+\.\d+)(?:,|$)", log, re.MULTILINE)}
    assert phases["training"] < phases["warm-up"], "compiled within the window"


def test_tf32_on_a_cpu_is_unsupported() -> None:
    with pytest.raises(Unsupported, match="tf32 exists on GPUs only"):
        load("torch")(training_fixtures.spec(precision="tf32"), 0, 0, 1, "cpu").device()


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
