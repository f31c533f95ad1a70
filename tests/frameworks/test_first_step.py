"""GPT-2 and ResNet in every library have PyTorch's loss, gradients, held-out sums, settings and initial weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import training_fixtures
from framework_lab import helped, python
from throughline import workloads
from throughline.checks import equivalence
from throughline.frameworks.rank import load
from throughline.workloads import resnet

GPT2 = {"model": "gpt2-tiny", "sequence_length": 16}
RESNET = {"model": "resnet-tiny", "image": 33, "classes": 7, "label_smoothing": 0.2}
OTHERS = {"gelu": "erf", "residual_init": "plain", "position_init": 0.01}
CASES: dict[str, dict[str, Any]] = {
    "gpt2 compiled": {**GPT2, "options": {"compile": True}},
    "gpt2 recomputed": {**GPT2, **OTHERS, "options": {"activation_checkpointing": True}},
    "gpt2 causal": GPT2,
    "resnet": RESNET,
    "resnet, plain blocks": RESNET,
}
SHAPES = {"resnet": ((1, 1, 2, 1), 8, 4), "resnet, plain blocks": ((1, 2), 8, 1)}
IN_KERAS = ("gpt2 recomputed", "gpt2 causal", "resnet")
TRAINED = {
    "jax": IN_KERAS,
    "tensorflow": IN_KERAS,
    "paddle": ("gpt2 compiled", "gpt2 recomputed", "resnet"),
    "mxnet-horovod": ("resnet", "resnet, plain blocks"),
}
VOCABULARY = 40_000
"""Some tokens are above 32,767, the largest number in a signed type of 16 bits."""
SGD = {"name": "sgd", "learning_rate": 1.0, "momentum": 0.0, "weight_decay": 0.0}
"""With these constants, a step moves every weight by its gradient."""
SAME = ("parameters", "normalization", "batch_norm", "label_smoothing", "dropout", "loss")
"""What all implementations of ResNet state alike."""


def case_of(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Train a case in PyTorch. Write what the helper needs, and return it with what PyTorch says."""
    given = {**CASES[name], "optimizer": SGD}
    given["options"] = {"data": "synthetic", "dropout": 0.0, **given.get("options", {})}
    spec = training_fixtures.spec(**given)
    form, workload = workloads.form(spec.model, "torch"), workloads.of(spec.model)
    if name in SHAPES:
        monkeypatch.setitem(resnet.SHAPES, spec.model, resnet.Shape(*SHAPES[name]))
    facts = {"vocabulary": VOCABULARY} if "gpt2" in name else {}
    torch.manual_seed(3)
    network = form.build(spec, facts)
    deviations = {key: float(array.std()) for key, array in form.weights(network).items()}
    with torch.no_grad():
        for key, one in network.named_parameters():  # so that every bias, norm and gelu affects the loss
            gain = one.ndim == 1 and key.endswith(("norm.weight", "scale"))
            one.copy_((5 * one if "gpt2" in name else one) if one.ndim > 1 else 0.2 * torch.randn_like(one) + gain)
    weights = {key: array.copy() for key, array in form.weights(network).items()}
    batch = workload.synthetic(6, spec, 1)
    if "tokens" in batch:
        batch["tokens"] %= VOCABULARY
    tensors = {key: torch.from_numpy(array) for key, array in batch.items()}
    sums = form.sums(network, tensors)
    loss = network.double()(**tensors)
    loss.backward()
    updates = {key: (-one.grad).float().numpy() for key, one in network.named_parameters()}
    kinds = {"weights": weights, "updates": updates, "batch": batch}
    arrays = {f"{kind} {key}": array for kind, some in kinds.items() for key, array in some.items()}
    np.savez(folder / f"{name}.npz", **arrays)
    own = load("torch")(spec, 0, 0, 1, "cpu")
    own.device()
    own.model(facts)
    own.optimizer()
    asked = {"spec": spec.values(), "facts": facts, "shape": SHAPES.get(name), "causal": "causal" in name}
    said = {"sums": sums, "loss": float(loss.detach()), "settings": own.settings(), "deviations": deviations}
    return {"asked": asked, "said": said}


@pytest.mark.parametrize("framework", TRAINED)
def test_it_is_pytorchs(tmp_path: Path, framework: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = {name: case_of(name, tmp_path, monkeypatch) for name in TRAINED[framework]}
    (tmp_path / "cases.json").write_text(json.dumps({name: case["asked"] for name, case in cases.items()}))
    *trained, seeds = helped(framework, "first_step.py", framework, tmp_path)
    assert [found["case"] for found in trained] == list(cases)
    for found in trained:
        name, said = found["case"], cases[found["case"]]["said"]
        assert found["loss"] == pytest.approx(said["loss"], rel=1e-6), name
        assert found["updates"] and len(found["updates"]) == len(said["deviations"]), name
        largest = max(update for update, _, _ in found["updates"].values())
        for key, (update, difference, weights) in found["updates"].items():
            assert difference <= 2e-5 * update + 2e-7 * (weights + largest), (name, key)
        if "gpt2" in name:
            assert found["sums"] == pytest.approx(said["sums"], rel=1e-5), name
            large = {key: one for key, one in said["deviations"].items() if one == 0 or key.endswith("weight")}
            assert {key: found["deviations"][key] for key in large} == pytest.approx(large, rel=0.05), name
            stated, causal = found["settings"], ", causal" * ("causal" in name)
            assert stated["attention"] and stated["attention"].endswith(causal)
            said["settings"].pop("compiler", None)
            assert {**stated, "attention": ""} == {**said["settings"], "attention": ""}, name
        else:
            assert {key: found["settings"][key] for key in SAME} == {key: said["settings"][key] for key in SAME}
            assert set(resnet.WORKLOAD.settings) < set(found["settings"])
    assert seeds["repeated"] and not seeds["unseeded"], "ranks would begin with different weights"


def test_gpt2_in_paddle_on_two_devices_is_the_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few steps are enough: an exchange can only spoil the gradient of the table that input and output share."""
    monkeypatch.setattr(equivalence, "STEPS", 4)
    options = {"data": "synthetic", "gradient_accumulation": 2, "clip": "global_norm"}
    spec = training_fixtures.spec(framework="paddle", batch=1, topology="1n2g", **GPT2, options=options)
    found = equivalence.check([spec], None, {"paddle": python("paddle")}, tmp_path / "equivalence")
    one = found["frameworks"]["paddle"]["1n2g"]
    assert one["verdict"] == "equal", one["reason"]
    assert one["largest_difference"] < 2e-6
