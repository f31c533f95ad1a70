"""GPT-2 in Keras' backends has PyTorch's loss, gradients, training and initial weights."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from framework_steps import built
from gpt2_in_keras import trained

import training_fixtures
from framework_lab import python
from throughline.frameworks.rank import load
from throughline.spec import RunSpec
from throughline.workloads import gpt2
from throughline.workloads.gpt2 import in_torch

HELPER = Path(__file__).with_name("gpt2_in_keras.py")
DEVIATIONS = {"positions": 0.01, "layers.0.mix": 0.01, "layers.1.down": 0.01, "layers.0.up": 0.02, "tokens": 0.02}


def spec(**changes: Any) -> RunSpec:
    options = {"data": "synthetic", "dropout": 0.0, **changes.pop("options", {})}
    return training_fixtures.spec(model="gpt2-tiny", sequence_length=16, position_init=0.01, options=options, **changes)


PLAIN = spec(optimizer={"name": "sgd", "learning_rate": 1.0, "momentum": 0.0, "weight_decay": 0.0})
"""With these constants, one step moves every weight by its gradient."""
OPTIONED = spec(
    optimizer={"name": "adamw", "learning_rate": 1e-3, "weight_decay": 0.1},
    options={"clip": "global_norm", "gradient_accumulation": 2, "activation_checkpointing": True},
    gelu="erf",
)


@pytest.mark.parametrize("framework", ["jax", "tensorflow"])
def test_gpt2_in_keras_is_pytorchs(tmp_path: Path, framework: str) -> None:
    torch.manual_seed(3)
    own = in_torch.FORM.build(PLAIN, {"vocabulary": 1000})
    with torch.no_grad():
        for name, one in own.named_parameters():  # so that every bias, norm and gelu affects the loss
            one.copy_(5 * one if one.ndim > 1 else 0.2 * torch.randn_like(one) + float("norm.weight" in name))
    weights = {name: array.copy() for name, array in in_torch.FORM.weights(own).items()}
    drawn = gpt2.WORKLOAD.synthetic(16, PLAIN, 1)["tokens"] % 1000
    tokens = {"plain": drawn[None, None, :4], "optioned": drawn[4:].reshape(3, 2, 2, 17)}
    (tmp_path / "specs.json").write_text(json.dumps([PLAIN.values(), OPTIONED.values()]))
    np.savez(tmp_path / "weights.npz", **weights)
    np.savez(tmp_path / "tokens.npz", **tokens)
    variables = os.environ | {"OMP_NUM_THREADS": "1"}
    variables["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"  # compiles faster
    command = [python(framework), str(HELPER), framework, str(tmp_path)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=1500, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])

    batch = {"tokens": torch.from_numpy(tokens["plain"][0, 0])}
    assert found["sums"] == pytest.approx(in_torch.FORM.sums(own, batch), rel=1e-6)
    loss = own.double()(**batch)
    loss.backward()
    assert found["plain"] == pytest.approx([float(loss.detach())], rel=1e-6)
    moved = dict(np.load(tmp_path / "moved.npz"))
    for name, parameter in own.named_parameters():
        gradient = parameter.grad.numpy()
        np.testing.assert_allclose(
            weights[name] - moved[name], gradient, rtol=0, atol=1e-5 * np.abs(gradient).max() + 1e-7, err_msg=name
        )

    reference = built(load("torch"), OPTIONED, weights)
    assert found["optioned"] == pytest.approx(trained(reference, tokens["optioned"]), rel=2e-6)
    assert found["causal"] == pytest.approx(found["optioned"], rel=2e-6), "a causal kernel sees other tokens"
    assert found["causal_settings"]["attention"] == f"{found['settings']['attention']}, causal"
    assert {**found["settings"], "attention": ""} == {**reference.settings(), "attention": ""}
    assert found["recomputed"] == pytest.approx(found["dropped"], rel=2e-6), "dropout differs in what is recomputed"
    assert found["repeated"] and not found["without_seed"], "ranks would begin with different weights"
    for name, deviation in DEVIATIONS.items():
        assert found["deviations"][f"{name}.weight"] == pytest.approx(deviation, rel=0.03), name
