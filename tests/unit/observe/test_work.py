"""Work done: FLOPs and shares of peaks follow from known figures, and nothing is guessed about unknown devices."""

from __future__ import annotations

from typing import Any

import pytest

import training_fixtures
from report_fixture import spec
from throughline import frameworks, gpus
from throughline.observe import work
from throughline.records import Work

A100 = {"kind": "cuda", "name": "NVIDIA A100-SXM4-80GB", "count": 8, "fp16_native": True}
BERT_LARGE = 240.6e9
"""FLOPs of one sample of 128 tokens with 20 predictions."""


def of(
    samples_per_s: float | None, device: dict[str, Any] | None, raw: dict[str, Any] | None = None, **run: Any
) -> Work:
    asked = frameworks.specification(spec(**{"model": "bert-large", "precision": "fp16", **run}))
    return Work(**work.of(asked, samples_per_s, 8, device, raw or {}))


def test_a_known_device() -> None:
    done = of(4800.0, A100, {"matmul_flops_per_s": 250e12, "counted": {"real_token_share": 0.75}})
    assert done.flops_per_sample == pytest.approx(BERT_LARGE, rel=1e-3)
    assert done.flops_per_s == pytest.approx(600 * BERT_LARGE, rel=1e-3)
    assert done.mfu == pytest.approx(600 * BERT_LARGE / 312e12, rel=1e-3)
    assert done.matmul_share == pytest.approx(600 * BERT_LARGE / 250e12, rel=1e-3)
    assert done.real_tokens_per_s == pytest.approx(0.75 * 128 * 4800)
    assert done.reasons == {}
    assert "dense, without sparsity, at fp16" in done.convention["peak"]
    assert {"flops", "attention", "head_positions", "tokens", "recomputation", "matmul"} <= set(done.convention)


@pytest.mark.parametrize(
    ("device", "precision", "why"),
    [
        ({**A100, "name": "NVIDIA A100-SXM4-40GB MIG 1g.5gb"}, "fp16", "does not know"),
        ({**A100, "name": "NVIDIA H99 of nobody"}, "fp16", "we do not guess a peak"),
        ({**A100, "name": "Tesla V100-SXM2-16GB"}, "bf16", "states no bf16 peak for V100"),
        ({"kind": "cpu", "name": "some CPU", "count": 2, "fp16_native": None}, "fp32", "a CPU's peak"),
        (None, "fp32", "no device"),
    ],
)
def test_nothing_is_guessed(device: dict[str, Any] | None, precision: str, why: str) -> None:
    done = of(100.0, device, precision=precision)
    assert (done.mfu, done.datasheet_flops_per_s) == (None, None)
    assert why in done.reasons["mfu"]
    assert done.matmul_share is None and "no matrix product" in done.reasons["matmul_share"]
    assert done.flops_per_s


def test_a_run_without_throughput_says_so() -> None:
    done = of(None, A100, {"counted": {"real_token_share": 0.5}})
    assert (done.flops_per_s, done.mfu, done.real_tokens_per_s) == (None, None, None)
    assert set(done.reasons) >= {"flops_per_s", "mfu", "real_tokens_per_s"}


def test_synthetic_tokens_are_all_real() -> None:
    assert of(10.0, A100, options={"data": "synthetic"}).real_tokens_per_s == 1280.0


def test_without_padding_the_real_tokens_alone_are_counted() -> None:
    left_out, shares = {"remove_padding": True}, {"counted": {"real_token_share": 0.5, "real_pair_share": 0.25}}
    remove_padding, padded = of(10.0, A100, shares, options=left_out), of(10.0, A100, shares)
    assert remove_padding.flops_per_sample == pytest.approx(of(10.0, A100, sequence_length=64).flops_per_sample)
    assert (remove_padding.real_tokens_per_s, padded.real_tokens_per_s) == (640.0, 640.0)
    assert "padding to 128 positions is left out" in remove_padding.convention["tokens"]
    assert "padding included" in padded.convention["tokens"] and "padding included" in padded.convention["attention"]
    uncounted = of(10.0, A100, options=left_out)
    assert uncounted.flops_per_sample is None and "did not count" in uncounted.reasons["mfu"]
    full = of(10.0, A100, options={**left_out, "data": "synthetic"})
    assert full.flops_per_sample == padded.flops_per_sample, "full-length samples have no padding"


def test_a_larger_vocabulary_is_more_work() -> None:
    larger = of(1.0, A100, {"facts": {"vocabulary": 2 * 30528}}).flops_per_sample
    assert larger == pytest.approx((of(1.0, A100).flops_per_sample or 0) + 3 * 20 * 2 * 1024 * 30528)


def test_what_the_ranks_measured() -> None:
    rates, shares, facts = (3e12, 2e12), (0.5, 0.7), {"vocabulary": 30522}
    reports = {
        rank: training_fixtures.report(
            rank, matmul_flops_per_s=rates[rank], counted={"real_token_share": shares[rank]}, facts=facts
        )
        for rank in (0, 1)
    }
    raw = work.measured(reports)
    assert raw["matmul_flops_per_s"] == 2e12
    assert raw["counted"] == pytest.approx({"real_token_share": 0.6}) and raw["facts"] == {"vocabulary": 30522}
    failed = training_fixtures.report(work_reasons={"matmul_flops_per_s": "it failed"})
    assert work.measured({0: failed})["reasons"] == {"matmul_flops_per_s": "it failed"}


@pytest.mark.parametrize(
    "name",
    [
        *("Tesla V100-SXM2-16GB", "NVIDIA GeForce RTX 3090", "NVIDIA H100 80GB HBM3", "A100-PCIE-40GB"),
        *("NVIDIA GH200 480GB", "NVIDIA B200", "NVIDIA GB200", "NVIDIA B300 SXM6 AC", "NVIDIA GB300"),
        *("AMD Instinct MI300X", "AMD Instinct MI325X", "AMD Instinct MI350X", "AMD Instinct MI355X"),
        *("NVIDIA GeForce RTX 5090", "NVIDIA GeForce RTX 5070"),
    ],
)
def test_names_as_drivers_report_them(name: str) -> None:
    gpu = gpus.find(name)
    assert gpu is not None and gpu.source and gpu.peak_flops_per_s["fp32"]


def test_no_peak_counts_sparsity() -> None:
    """Vendors' figures with sparsity are twice the dense ones: 1,979 TFLOPS for H100 SXM."""
    h100, a100 = gpus.find("NVIDIA H100 80GB HBM3"), gpus.find("NVIDIA A100-SXM4-40GB")
    assert h100 and (h100.peak_flops_per_s["bf16"], h100.peak_flops_per_s["fp8"]) == (989.4e12, 1979e12)
    peaks = {"fp32": 19.5e12, "tf32": 156e12, "bf16": 312e12, "fp16": 312e12, "fp8": None, "fp4": None}
    assert a100 and a100.peak_flops_per_s == peaks
    for name in ("B200", "GB200", "MI300X", "MI355X", "RTX 5090"):
        gpu = gpus.find(name)
        assert gpu and gpu.peak_flops_per_s["bf16"] and gpu.peak_flops_per_s["fp8"]
        assert gpu.peak_flops_per_s["fp8"] == pytest.approx(2 * gpu.peak_flops_per_s["bf16"], rel=0.001)
        assert all(rate < (gpu.peak_flops_per_s[at] or 0) for at, rate in gpu.matmul_flops_per_s.items())
