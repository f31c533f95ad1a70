"""The framework `torch` with real workers: without padding, compiled, and checkpoints of every way to divide the states."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import training_fixtures
from framework_lab import ran
from throughline import handover, records
from throughline.frameworks.rank import load
from throughline.frameworks.torch.checkpoint import Checkpoints
from throughline.workloads import Unsupported


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return training_fixtures.corpus(tmp_path_factory.mktemp("corpus"))


def measure(folder: Path, manifest: Path | None, **changes: Any) -> records.RunRecord:
    return ran(training_fixtures.spec(**changes), folder, manifest)


def test_without_padding_a_run_learns_the_same_from_real_tokens_alone(tmp_path: Path, manifest: Path) -> None:
    padded, packed = (
        measure(tmp_path / str(left_out), manifest, options={"dropout": 0.0, "remove_padding": left_out})
        for left_out in (False, True)
    )
    assert packed.loss == pytest.approx(padded.loss, rel=1e-5)
    assert padded.work is not None and packed.work is not None
    assert packed.work.real_token_share == padded.work.real_token_share
    assert packed.work.real_token_share is not None and 0.5 < packed.work.real_token_share < 1
    assert packed.work.flops_per_sample is not None and padded.work.flops_per_sample is not None
    assert packed.work.real_token_share < packed.work.flops_per_sample / padded.work.flops_per_sample < 1
    assert "left out" in packed.work.convention["tokens"] and "included" in padded.work.convention["tokens"]


@pytest.mark.alone
def test_compiled(tmp_path: Path, manifest: Path) -> None:
    # As in test_equivalence.py, so that Inductor finds these kernels in its cache.
    options = {"compile": True, "activation_checkpointing": True, "dropout": 0.0}
    record = measure(tmp_path, manifest, options=options, steps={"warmup": 2, "timed": 2})
    assert record.status == "ok"
    log = (tmp_path / record.spec.record).with_suffix(".log").read_text()
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
