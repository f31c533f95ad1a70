"""benchmarks/gpu.py runs completely on PyTorch's CUDA build: a row, its verdict and its table. Figures mean nothing."""

import json
import subprocess
from pathlib import Path
from typing import Any

import lane


def results(workload: str, folder: Path) -> dict[str, Any]:
    """Run the program on the fake driver, and return its results. No part may fail."""
    command = [lane.python(), lane.ROOT / "benchmarks/gpu.py", "--workload", workload, "--dry", "--output", folder]
    done = subprocess.run(
        command, env=lane.variables(NULL_CUDA_DEVICES="1"), capture_output=True, text=True, timeout=900, check=False
    )
    value: dict[str, Any] = json.loads((folder / f"gpu-{workload}.json").read_text())
    assert value["failures"] == [], done.stdout + done.stderr
    return value


def test_the_whole_program_runs_on_a_gpu(tmp_path: Path) -> None:
    value = results("gpt2", tmp_path)
    assert value["card"]["name"] == "NVIDIA H100 80GB HBM3" and value["card"]["bandwidth_bytes_per_s"] > 0
    (row,), (cell,) = value["rows"], value["matrix"]
    assert row["status"] == cell["status"] == "ok" and row["verdict"].startswith("no expectation")
    assert row["peak_memory_bytes"]["ours"] > 0 and row["kernels"]["wall"] > 0
    assert all(check["recorded"] is False and len(check["loss"]) == 2 for check in value["checks"])


def test_the_parts_of_a_step_have_a_table(tmp_path: Path) -> None:
    value = results("parts", tmp_path)
    ours = {(one["what"], one["how"]) for one in value["pieces"] if one["how"].endswith("(ours)") and one["ms"]}
    assert ours == {
        ("tiny", "cudnn (ours)"), ("tiny, causal", "cudnn (ours)"), ("tiny, a mask", "cudnn (ours)"),
        ("tiny, in a row", "flash (ours)"), ("tiny", "in chunks (ours)"), ("tiny, AdamW", "fused (ours)"),
        ("tiny, LAMB", "over lists (ours)"),
    }  # fmt: skip
    (row,) = value["rows"]
    assert row["status"] == "ok" and {"eager", "recorded", "lamb"} <= {*row["ratios"], *row["refused"]}
    table = (tmp_path / "gpu-parts.md").read_text()
    assert "## Pieces of a step alone" in table and "whole scores" in table
    assert "This ran on" in table  # the fake driver says what it is
