"""Every option of the framework `torch` works with real workers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import training_fixtures
from framework_lab import ran
from throughline import records
from throughline.frameworks.rank import load
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
