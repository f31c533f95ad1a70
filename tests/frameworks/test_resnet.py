"""ResNet in every framework: PyTorch's network, and the same training on two ranks."""

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
from framework_lab import built, python
from throughline.checks import equivalence
from throughline.spec import example
from throughline.workloads import resnet
from throughline.workloads.resnet import in_torch

FRAMEWORKS = ("torch", "jax", "mxnet-horovod", "paddle", "tensorflow", "torch-horovod")
HELPER = Path(__file__).with_name("resnet_in_mxnet.py")
HOROVOD_STEP = Path(__file__).with_name("horovod_step.py")
SAME = ("parameters", "normalization", "batch_norm", "label_smoothing", "dropout", "loss")


def wide(expansion: int) -> tuple[resnet.Parameters, Any]:
    """Return the parameters of a small network, and the network in PyTorch with random norms."""
    torch.manual_seed(3)
    given = resnet.Parameters(image=33, classes=7, label_smoothing=0.2)
    own = in_torch.ResNet(resnet.Shape((1, 2), width=8, expansion=expansion), given)
    for name, one in own.named_parameters():  # no norm leaves out what it has to multiply or add
        if name.endswith(("scale", "shift")):
            torch.nn.init.normal_(one, mean=float(name.endswith("scale")), std=0.2)
    return given, own


def test_loss_gradients_and_settings_in_mxnet_are_pytorchs(tmp_path: Path) -> None:
    """With plain blocks and with bottlenecks."""
    networks, pictures = [], []
    for expansion in (1, 4):
        given, own = wide(expansion)
        networks.append(own)
        pictures.append(resnet.WORKLOAD.synthetic(6, example("resnet-tiny", given), 1))
        np.savez(tmp_path / f"weights{len(networks)}.npz", **in_torch.FORM.weights(own))
        np.savez(tmp_path / f"pictures{len(networks)}.npz", **pictures[-1])
    done = subprocess.run(
        [python("mxnet-horovod"), str(HELPER), str(tmp_path), str(len(networks))],
        env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for number, (own, arrays, line) in enumerate(
        zip(networks, pictures, done.stdout.splitlines()[-len(networks) :], strict=True), start=1
    ):
        compare(own, arrays, json.loads(line), dict(np.load(tmp_path / f"found{number}.npz")))


def compare(own: Any, arrays: dict[str, Any], stated: dict[str, Any], found: dict[str, Any]) -> None:
    """Compare MXNet's settings, loss and gradients with those of PyTorch in double precision."""
    assert {name: stated[name] for name in SAME} == {name: in_torch.FORM.settings(own)[name] for name in SAME}
    assert set(resnet.WORKLOAD.settings) < set(stated)
    own.double()
    loss = own(**{name: torch.from_numpy(array) for name, array in arrays.items()})
    loss.backward()
    assert float(found.pop("loss")[0]) == pytest.approx(float(loss.detach()), rel=1e-6)
    expected = {name: one.grad.numpy() for name, one in own.named_parameters() if one.grad is not None}
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        np.testing.assert_allclose(found[name], gradient, rtol=0, atol=1e-5 * np.abs(gradient).max(), err_msg=name)


@pytest.fixture(scope="module")
def proven(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One equivalence check of every framework whose environment is built, so the reference is computed once."""
    pythons = built(FRAMEWORKS)
    parameters = {"model": "resnet-tiny", "image": 33, "classes": 10}
    optimizer = {"name": "sgd", "momentum": 0.875, "weight_decay": 1e-4}
    options = {"data": "synthetic", "gradient_accumulation": 2, "clip": "global_norm"}
    specs = [
        training_fixtures.spec(topology="1n2g", framework=name, optimizer=optimizer, options=options, **parameters)
        for name in pythons
    ]
    folder = tmp_path_factory.mktemp("proven")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("THROUGHLINE_LOCKS", str(folder))
        patched.setattr(equivalence, "STEPS", 20)  # enough to tell a wrong constant from rounding
        return equivalence.prove(specs, None, pythons, folder / "equivalence")["frameworks"]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_training_on_two_devices_is_the_reference(proven: dict[str, Any], framework: str) -> None:
    """Each rank has the statistics of its own pictures; momentum and decay are those of PyTorch's SGD."""
    python(framework)  # skips where its environment is not built
    one = proven[framework]["1n2g"]
    assert one["verdict"] == "equal", one["reason"]
    assert one["largest_difference"] < 1e-5
    assert abs(one["loss"][10] - one["loss"][0]) > 1e-4, "it learns: the batch is the same"


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
