"""ResNet in MXNet, in Paddle and over Horovod: PyTorch's network, and the same training on two ranks."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import training_fixtures
from framework_lab import python
from throughline.checks import equivalence
from throughline.spec import example
from throughline.workloads import resnet
from throughline.workloads.resnet import in_torch

HELPER = Path(__file__).with_name("resnet_in_mxnet.py")
HOROVOD_STEP = Path(__file__).with_name("horovod_step.py")
SAME = ("parameters", "normalization", "batch_norm", "label_smoothing", "dropout", "loss")


@pytest.mark.parametrize("expansion", [1, 4])
def test_loss_gradients_and_settings_in_mxnet_are_pytorchs(tmp_path: Path, expansion: int) -> None:
    torch.manual_seed(3)
    own = in_torch.ResNet(
        resnet.Shape((1, 2), width=8, expansion=expansion),
        given := resnet.Parameters(image=33, classes=7, label_smoothing=0.2),
    )
    for name, one in own.named_parameters():  # no norm leaves out what it has to multiply or add
        if name.endswith(("scale", "shift")):
            torch.nn.init.normal_(one, mean=float(name.endswith("scale")), std=0.2)
    arrays = resnet.WORKLOAD.synthetic(6, example("resnet-tiny", given), 1)
    np.savez(tmp_path / "weights.npz", **in_torch.FORM.weights(own))
    np.savez(tmp_path / "pictures.npz", **arrays)
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    names = "weights", "pictures", "found"
    done = subprocess.run(
        [python("mxnet-horovod"), str(HELPER), *(str(tmp_path / f"{name}.npz") for name in names)],
        env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    stated: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert {name: stated[name] for name in SAME} == {name: in_torch.FORM.settings(own)[name] for name in SAME}
    assert set(resnet.WORKLOAD.settings) < set(stated)
    found = dict(np.load(tmp_path / "found.npz"))
    own.double()
    loss = own(**{name: torch.from_numpy(array) for name, array in arrays.items()})
    loss.backward()
    assert float(found.pop("loss")[0]) == pytest.approx(float(loss.detach()), rel=1e-6)
    expected = {name: one.grad.numpy() for name, one in own.named_parameters() if one.grad is not None}
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        np.testing.assert_allclose(found[name], gradient, rtol=0, atol=1e-5 * np.abs(gradient).max(), err_msg=name)


@pytest.mark.parametrize("framework", ["jax", "mxnet-horovod", "paddle", "tensorflow", "torch-horovod"])
def test_training_on_two_devices_is_the_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, framework: str
) -> None:
    """Each rank has the statistics of its own pictures; momentum and decay are those of PyTorch's SGD."""
    monkeypatch.setenv("THROUGHLINE_LOCKS", str(tmp_path))
    monkeypatch.setattr(equivalence, "STEPS", 20)  # enough to tell a wrong constant from rounding
    parameters = {"model": "resnet-tiny", "image": 33, "classes": 10}
    change = {
        **parameters, "framework": framework, "optimizer": {"name": "sgd", "momentum": 0.875, "weight_decay": 1e-4},
        "options": {"data": "synthetic", "accumulate": 2, "clip": "global_norm"},
    }  # fmt: skip
    spec = training_fixtures.spec(topology="1n2g", **change)
    found = equivalence.prove([spec], None, {framework: python(framework)}, tmp_path / "equivalence")
    one = found["frameworks"][framework]["1n2g"]
    assert one["verdict"] == "equal", one["reason"]
    assert one["largest_difference"] < 1e-5


def test_with_horovod_every_rank_keeps_its_own_statistics() -> None:
    """Horovod's users broadcast nothing in a step."""
    parameters: dict[str, Any] = {"model": "resnet-tiny", "image": 33, "classes": 10, "options": {"data": "synthetic"}}
    spec = training_fixtures.spec(framework="torch-horovod", **parameters)
    done = subprocess.run(
        [python("torch-horovod"), str(HOROVOD_STEP), json.dumps(spec.values())],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["called"] == ["synchronize"] and found["statistics"] > 0
