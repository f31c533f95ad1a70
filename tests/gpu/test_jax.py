"""What JAX's CUDA build is asked to compute in a step: cuDNN's attention, with all states in place."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import training_fixtures

HELPER = Path(__file__).with_name("jax_step.py")
SOURCE = Path(__file__).parents[2] / "src"
JAX = os.environ.get("GPU_DRY_JAX", "")
"""The interpreter of an environment with JAX's CUDA build."""

pytestmark = pytest.mark.skipif(not JAX, reason="GPU_DRY_JAX names no environment with JAX's CUDA build")
PLAIN, BACKWARD = "fmhaSoftmax", "fmhaSoftmaxBackward"


@pytest.mark.parametrize(
    ("model", "dropout", "calls"),
    [
        ("gpt2-tiny", 0.0, {PLAIN: 2, BACKWARD: 2}),  # without a mask: causal
        ("gpt2-tiny", 0.1, {}),  # Keras has no attention with dropout
        ("bert-tiny", 0.0, {PLAIN: 2, BACKWARD: 2}),
    ],
)
def test_attention_is_cudnns_where_keras_has_it(model: str, dropout: float, calls: dict[str, int]) -> None:
    given: dict[str, Any] = {"sequence_length": 128} if model.startswith("gpt2") else {}
    options = {"data": "synthetic", "dropout": dropout}
    spec = training_fixtures.spec(framework="jax", model=model, precision="bf16", options=options, **given)
    done = subprocess.run(
        [JAX, str(HELPER), json.dumps(spec.values()), "50257" if given else "30522"],
        env=os.environ | {"PYTHONPATH": str(SOURCE), "JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["calls"] == calls
    assert found["kept"] == found["states"]
