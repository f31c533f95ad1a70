"""Every option of the framework `torch` works with real workers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import training_fixtures
from throughline import records
from throughline.frameworks.rank import load
from throughline.launch import launcher
from throughline.launch.request import RunRequest
from throughline.workloads import Unsupported

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return training_fixtures.corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(autouse=True)
def own_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests do not measure anything, so they need not wait for real runs."""
    monkeypatch.setenv("THROUGHLINE_LOCKS", str(tmp_path))


def measure(folder: Path, manifest: Path | None, **changes: Any) -> records.RunRecord:
    """Make a run with the launcher, and read its record in the usual way."""
    spec = training_fixtures.spec(**changes)
    record = folder / spec.record
    launcher.run(RunRequest(spec=spec, record=record, log=record.with_suffix(".log"), manifest=manifest))
    return records.read_run(record)


@pytest.mark.alone
def test_one_rank(tmp_path: Path, manifest: Path) -> None:
    record = measure(tmp_path, manifest)
    assert record.status == "ok"
    assert (record.steps_asked, record.steps_timed, record.warmup_steps) == (4, 4, 2)
    assert len(record.step_seconds) == len(record.loss) == 4
    assert record.window_s is not None and sum(record.step_seconds) == pytest.approx(record.window_s, rel=0.2)
    assert all(loss is not None and 5 < loss < 15 for loss in record.loss)
    assert record.device is not None and record.device.kind == "cpu"
    assert record.data is not None and record.data.rows == 120
    assert record.peak_memory_bytes is not None and record.peak_memory_bytes > 100e6
    assert record.environment["framework"]["torch"]
    assert record.environment["variables"]["OMP_NUM_THREADS"] == "1"
    log = (tmp_path / record.spec.log).read_text().splitlines()
    assert log[0] == f"# again: snakemake --force {record.spec.record}"
    assert "outcome: " in log[-2] and "samples/s" in log[-2]
    assert log[-1].startswith("next: snakemake results/bert/bz4_fp32.json")


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


def test_nothing_learned_in_a_long_window_is_invalid(tmp_path: Path, manifest: Path) -> None:
    still = measure(tmp_path, manifest, steps={"timed": 100}, optimizer={"learning_rate": 1e-12})
    assert still.status == "invalid" and still.reason is not None and "does not fall" in still.reason
    moving = measure(tmp_path, manifest, steps={"timed": 100}, optimizer={"learning_rate": 1e-3})
    assert moving.status == "ok"
