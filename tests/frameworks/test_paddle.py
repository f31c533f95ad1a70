"""GPT-2 in Paddle has PyTorch's loss, gradients and step, and trains the same on two devices."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import training_fixtures
from framework_lab import python
from throughline.checks import equivalence

torch = pytest.importorskip("torch")

from throughline.frameworks.torch import optimizers  # noqa: E402
from throughline.workloads.gpt2 import in_torch  # noqa: E402

HELPER = Path(__file__).with_name("gpt2_in_paddle.py")
VOCABULARY = 40_000
OPTIMIZER = {"name": "adamw", "learning_rate": 0.01, "epsilon": 1e-3, "weight_decay": 1.0}
CASES: list[dict[str, Any]] = [
    {"options": {"compile": True}},
    {"gelu": "erf", "residual_init": "plain", "position_init": 0.01, "options": {"activation_checkpointing": True}},
]


def test_loss_gradients_step_and_settings_of_gpt2_are_pytorchs(tmp_path: Path) -> None:
    """The weights are larger than initial weights, so that every part of the model has a visible effect. Some tokens
    are above 32,767."""
    tokens = np.random.default_rng(3).integers(0, VOCABULARY, (3, 13)).astype(np.uint16)
    np.save(tmp_path / "tokens.npy", tokens)
    networks, scatter, specs = [], [], []
    for number, case in enumerate(CASES):
        changes = {"optimizer": OPTIMIZER, **case, "options": {"data": "synthetic", "dropout": 0.0, **case["options"]}}
        spec = training_fixtures.spec(framework="paddle", model="gpt2-tiny", sequence_length=12, **changes)
        specs.append(spec)
        torch.manual_seed(number)
        networks.append(in_torch.FORM.build(specs[-1], {"vocabulary": VOCABULARY}))
        scatter.append({name: float(np.std(array)) for name, array in in_torch.FORM.weights(networks[-1]).items()})
        for parameter in networks[-1].parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        np.savez(tmp_path / f"weights{number}.npz", **in_torch.FORM.weights(networks[-1]))
    (tmp_path / "specs.json").write_text(json.dumps([spec.values() for spec in specs]))
    done = subprocess.run(
        [python("paddle"), str(HELPER), str(tmp_path), str(VOCABULARY)],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for number, found in enumerate(json.loads((tmp_path / "found.json").read_text())):
        assert found["scatter"] == pytest.approx(scatter[number], rel=0.05)
        gradients = dict(np.load(tmp_path / f"gradients{number}.npz"))
        update = optimizers.build(specs[number].optimizer, list(networks[number].parameters()))
        compare(networks[number], update, torch.from_numpy(tokens), found, gradients)


def compare(network: Any, update: Any, tokens: Any, found: dict[str, Any], gradients: dict[str, Any]) -> None:
    """Compare Paddle's results with those of PyTorch."""
    stated = in_torch.FORM.settings(network)
    assert found["settings"].pop("attention") and stated.keys() == {"attention", *found["settings"]}
    assert found["settings"] == {name: stated[name] for name in found["settings"]}
    assert found["sums"] == pytest.approx(in_torch.FORM.sums(network, {"tokens": tokens}), rel=1e-5)
    loss = network(tokens)
    loss.backward()
    before = float(loss.detach())
    assert found["loss"] == pytest.approx(before, rel=1e-5)
    linear = {f"{name}.weight" for name, one in network.named_modules() if isinstance(one, torch.nn.Linear)}
    parameters = dict(network.named_parameters())
    assert gradients.keys() == parameters.keys()
    largest = max(float(one.grad.abs().max()) for one in parameters.values())
    for name, one in parameters.items():
        own = one.grad.T if name in linear else one.grad
        np.testing.assert_allclose(gradients[name], own, rtol=1e-3, atol=1e-5 * largest, err_msg=name)
    update.step()
    after = float(network(tokens).detach())
    assert found["after"] == pytest.approx(after, rel=1e-5) and abs(after - before) > 0.1


def test_gpt2_on_two_devices_is_the_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few steps are enough: an exchange can only spoil the gradient of the table that input and output share."""
    monkeypatch.setenv("THROUGHLINE_LOCKS", str(tmp_path))
    monkeypatch.setattr(equivalence, "STEPS", 4)
    options = {"data": "synthetic", "gradient_accumulation": 2, "clip": "global_norm"}
    spec = training_fixtures.spec(
        framework="paddle", model="gpt2-tiny", sequence_length=8, batch=1, topology="1n2g", options=options
    )
    found = equivalence.prove([spec], None, {"paddle": python("paddle")}, tmp_path / "equivalence")
    one = found["frameworks"]["paddle"]["1n2g"]
    assert one["verdict"] == "equal", one["reason"]
    assert one["largest_difference"] < 2e-6
