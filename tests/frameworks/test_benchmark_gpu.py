"""benchmarks/gpu.py runs completely on a CPU. Its figures mean nothing there, but its outcomes do."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("torch")

from benchmarks import harness

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gpu.py"


def test_the_whole_script_runs_and_records_what_fails(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--device", "cpu", "--dry", "--output", str(tmp_path)]
    variables = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    value = json.loads((tmp_path / "gpu.json").read_text())
    assert value["failures"] == []

    checked = {one["what"]: one for one in value["checks"]}
    assert set(checked) == {"fp32", "tf32", "bf16", "fp16", "fp32, without padding", "bf16, without padding"}
    assert all(one["passed"] for one in checked.values())
    assert checked["fp32, without padding"]["largest_difference"] < 1e-5
    assert len(checked["bf16"]["loss"]) == 2 and 0 < checked["bf16"]["largest_difference"] < 1e-2
    assert "unsupported" in checked["tf32"]["reason"]

    row, refused, *others = value["rows"]
    assert row["status"] == "ok" and row["samples_per_s"]["ours"] > 0
    rivals = {"plain", "trainer"} if find_spec("accelerate") else {"plain"}
    assert set(row["ratios"]) == rivals and len(row["rounds"]) >= 2
    losses = [row["loss"][label] for label in ("ours", *rivals)]
    assert losses == pytest.approx([losses[0]] * len(losses), rel=1e-2), "they do not train the same"
    assert row["matmul_share"] > 0 and row["bandwidth_share"] > 0 and row["mfu"] is None
    assert refused["status"] == "failed" and "tf32 exists on GPUs only" in refused["reason"]

    for other, tokens in zip(others, (32, None), strict=True):
        assert other["status"] == "ok" and other["refused"] == {} and other["matmul_share"] > 0
        assert other["loss"]["plain"] == pytest.approx(other["loss"]["ours"], rel=1e-2)
        assert other["tokens_per_s"] == (tokens and pytest.approx(tokens * other["samples_per_s"]["ours"]))

    (real,) = value["real"]
    assert real["status"] == "ok" and 0.8 < real["real_token_share"] < 1
    assert set(real["ratios"]) == {"resident", "full length", "without padding"}
    assert set(real["real_tokens_per_s"]) == {"ours", "resident", "without padding"}

    cells = {(one["precision"], one["activation_checkpointing"], one["batch"]): one for one in value["matrix"]}
    assert cells["bf16", False, 4]["status"] == cells["fp32", True, 2]["status"] == "ok"
    assert cells["bf16", False, 4]["samples_per_s"] > 0 and cells["bf16", False, 4]["peak_memory_bytes"] > 1e8
    assert cells["bf16", False, 1 << 34]["status"] == cells["bf16", False, 1 << 35]["status"] == "out of memory"
    assert cells["tf32", False, 2]["status"] == "unsupported"

    table = (tmp_path / "gpu.md").read_text()
    assert "| bert-tiny, batch 2, bf16 |" in table and "out of memory" in table and "real tokens/s" in table


def test_when_time_is_over_the_rest_is_not_measured(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--device", "cpu", "--dry", "--output", str(tmp_path), "--seconds", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    value = json.loads((tmp_path / "gpu.json").read_text())
    assert done.returncode == 1, "nothing was checked"
    assert {row["status"] for row in value["rows"]} == {cell["status"] for cell in value["matrix"]} == {"not measured"}
    assert {one["status"] for one in value["real"]} == {"not measured"}
    assert "not measured" in (tmp_path / "gpu.md").read_text()


DYING = """
import json, os, sys
for one in json.loads(sys.argv[-1])["work"]:
    if one[0] == "dies":
        sys.exit("no more of this")
    if one[0] == "aborts":
        os.abort()
    if one[0] == "hangs":
        import time; time.sleep(60)
    print(json.dumps({"work": one}), flush=True)
"""


def test_a_process_that_dies_takes_one_piece_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    gpu = importlib.import_module("gpu")
    given = argparse.Namespace(device="cpu", workload="bert", dry=False, seconds=60)
    run = gpu.Run(gpu.PLANS["bert"][True], given, gpu.Results(tmp_path, "cpu", True), tmp_path)
    run.script = tmp_path / "dying.py"
    run.script.write_text(DYING)
    work = [("first",), ("dies",), ("second",), ("aborts",), ("third",), ("hangs",), ("never",)]
    found = [(piece[0], line is not None, why) for piece, line, why in run.pieces("checks", work, 10)]
    assert found == [
        ("first", True, ""), ("dies", False, "no more of this"), ("second", True, ""),
        ("aborts", False, f"exit status {-signal.SIGABRT}"), ("third", True, ""),
        ("hangs", False, "out of time"), ("never", False, "out of time"),
    ]  # fmt: skip
    reasons = [one["reason"] for one in run.value["failures"]]
    assert len(reasons) == 3 and reasons[-1].startswith("stopped after")


def test_a_piece_that_another_way_computes_faster_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    gpu_pieces = importlib.import_module("gpu_pieces")
    tiny = list(gpu_pieces.pieces(gpu_pieces.TINY, "cpu"))
    assert {one["how"] for one in tiny if one["ms"]} >= {
        "flash (ours)", "math", "in chunks (ours)", "whole scores", "fused (ours)", "over lists (ours)",
    }  # fmt: skip
    assert {one["what"] for one in tiny if one["ms"]} >= {"tiny, a mask", "tiny, in a row", "tiny, AdamW", "tiny, LAMB"}
    row = gpu_pieces.TINY.attention[3]
    assert row.lengths == [8, 14, 20, 26] and row.flops == 3.5 * 4 * (64 + 196 + 400 + 676) * 2 * 16
    assert all(one["reason"] for one in tiny if one["ms"] is None)
    found = [
        {"piece": "attention", "what": "GPT-2", "how": how, "ms": ms}
        for how, ms in (("flash", 1.0), ("cudnn (ours)", 1.2), ("math", None))
    ]
    (named,) = gpu_pieces.slower(found)
    assert named.startswith("attention, GPT-2: flash takes 1.000 ms, cudnn (ours) 1.200 ms")
    assert not list(gpu_pieces.slower([*found[:1], found[1] | {"ms": 1.01}]))


@pytest.mark.parametrize(("count", "low", "high"), [(3, 1, 3), (7, 1, 7), (11, 2, 10), (15, 4, 12)])
def test_between_which_rounds_a_median_lies(count: int, low: int, high: int) -> None:
    ratio = harness.ratio([{"slow": 2.0 * number, "fast": 2.0} for number in range(count, 0, -1)], "slow", "fast")
    assert (ratio.low, ratio.high) == (low, high) and ratio.median == (count + 1) / 2


@pytest.mark.parametrize(
    ("card", "speed", "verdict"),
    [
        ("NVIDIA H100 80GB HBM3", 5000.0, "as expected"),
        ("NVIDIA H100 80GB HBM3", 5600.0, "above"),
        ("NVIDIA H100 80GB HBM3", 3600.0, "25% below"),
        ("NVIDIA H200", 5000.0, "12% below"),
        ("NVIDIA H100 NVL", 5000.0, "no expectation"),
        (None, 5000.0, "no expectation"),
    ],
)
def test_what_a_card_should_reach(
    monkeypatch: pytest.MonkeyPatch, card: str | None, speed: float, verdict: str
) -> None:
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    gpu_expected = importlib.import_module("gpu_expected")
    kernels = {"wall": 0.0711, "matrix products": 0.030, "passes": 0.030, "attention": 0.005, "optimizer": 0.001}
    found = gpu_expected.judged(gpu_expected.of(card, "bert-base", 256, "bf16"), speed, kernels)
    assert found["verdict"].startswith(verdict)
    assert [text.partition(" (")[0] for text in found["look_at"]] == {
        "25% below": ["passes"], "12% below": ["matrix products", "passes"]
    }.get(verdict, [])  # fmt: skip
