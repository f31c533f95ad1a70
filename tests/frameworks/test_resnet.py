"""ResNet in every framework trains on two ranks as the reference does."""

from __future__ import annotations

from typing import Any

import pytest

import training_fixtures
from framework_lab import built, python
from throughline.checks import equivalence

FRAMEWORKS = ("torch", "jax", "mxnet-horovod", "paddle", "tensorflow", "torch-horovod")


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One equivalence check of every framework whose environment is built, so the reference is computed once."""
    pythons = built(FRAMEWORKS)
    parameters = {"model": "resnet-tiny", "image": 33, "classes": 10}
    optimizer = {"name": "sgd", "momentum": 0.875, "weight_decay": 1e-4}
    options = {"data": "synthetic", "gradient_accumulation": 2, "clip": "global_norm"}
    specs = [
        training_fixtures.spec(topology="1n2g", framework=name, optimizer=optimizer, options=options, **parameters)
        for name in pythons
    ]
    folder = tmp_path_factory.mktemp("checked")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(equivalence, "STEPS", 20)  # enough to tell a wrong constant from rounding
        return equivalence.check(specs, None, pythons, folder / "equivalence")["frameworks"]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_training_on_two_devices_is_the_reference(checked: dict[str, Any], framework: str) -> None:
    """Each rank has the statistics of its own pictures; momentum and decay are those of PyTorch's SGD."""
    python(framework)  # skips where its environment is not built
    one = checked[framework]["1n2g"]
    assert one["verdict"] == "equal", one["reason"]
    assert one["largest_difference"] < 1e-5
    assert abs(one["loss"][10] - one["loss"][0]) > 1e-4, "it learns: the batch is the same"
