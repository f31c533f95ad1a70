"""A decoder whose layers multiply in fp8: its losses and gradients stay close to those in bf16, with both recipes.

On a CPU, PyTorch computes these products slowly but correctly, so the networks are small.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import training_fixtures
from throughline import frameworks, handover, workloads
from throughline.checks import equivalence
from throughline.spec import RunSpec
from throughline.workloads.hugging_face import configuration

torch = pytest.importorskip("torch")

SIZES = {
    "model_type": "llama", "vocab_size": 512, "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256, "rope_theta": 10000.0,
    "tie_word_embeddings": False,
}  # fmt: skip
STEPS = 10


@pytest.fixture
def specify(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that makes the specification of a small decoder."""

    known: dict[str, str] = {}

    def made(precision: str, recipe: str = "tensorwise", sizes: dict[str, Any] = SIZES, **given: Any) -> RunSpec[Any]:
        file = tmp_path / f"{sizes['model_type']}_{sizes['intermediate_size']}.json"
        file.write_text(json.dumps(sizes))
        model = configuration.of_map({"transformers": str(file), "task": "clm"})
        known[model.sha256] = str(file)
        monkeypatch.setenv(handover.VARIABLE, handover.packed(models=known))
        options = {"data": "synthetic", "fp8_scaling": recipe, **given.pop("options", {})}
        return training_fixtures.spec(
            framework="torch", topology="1n1g", precision=precision, model=str(model), task="clm",
            config_sha256=model.sha256, options=options, **{"sequence_length": 32, "batch": 2, **given},
        )  # fmt: skip

    return made


def network_of(spec: RunSpec[Any]) -> Any:
    torch.manual_seed(1)
    network = workloads.form(spec.model, "torch").build(spec, {})
    network.half_type = None if spec.precision == "fp32" else torch.bfloat16
    return network


def batch_of(spec: RunSpec[Any], seed: int = 0) -> dict[str, Any]:
    arrays = workloads.of(spec.model).synthetic(spec.batch, spec, seed)
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def passed(spec: RunSpec[Any], network: Any = None) -> list[Any]:
    """Return the loss and all gradients of one batch."""
    network = network or network_of(spec)
    loss = network(**batch_of(spec))
    loss.backward()
    return [loss.detach(), *(getattr(p.grad, "full_tensor", lambda p=p: p.grad)() for p in network.parameters())]


def trained(spec: RunSpec[Any]) -> list[float]:
    """Return the losses of some steps with AdamW."""
    network, losses = network_of(spec), []
    update = torch.optim.AdamW(network.parameters(), lr=1e-3, fused=True)
    for step in range(STEPS):
        loss = network(**batch_of(spec, step % 4))
        loss.backward()
        update.step()
        update.zero_grad()
        losses.append(float(loss))
    return losses


@pytest.mark.parametrize("recipe", ["tensorwise", "rowwise"])
def test_in_fp8_it_learns_as_in_bf16(recipe: str, specify: Any) -> None:
    coarse, half = trained(specify("fp8", recipe)), trained(specify("bf16"))
    assert coarse != half and half[-1] < half[0] - 0.2, "it learns"
    assert max(abs(ours / theirs - 1) for ours, theirs in zip(coarse, half, strict=True)) < equivalence.LOWER["fp8"]


@pytest.mark.parametrize("recipe", ["tensorwise", "rowwise"])
@pytest.mark.parametrize("activation_checkpointing", [True, "selective"])
def test_gradients_and_how_they_are_computed(recipe: str, activation_checkpointing: Any, specify: Any) -> None:
    """They are close to those in bf16. Recomputed, they are the same to the last bit."""
    here, half = passed(specify("fp8", recipe)), passed(specify("bf16"))
    for ours, theirs in zip(here, half, strict=True):
        assert ours.ndim == 0 or 0.97 < torch.cosine_similarity(ours.flatten(), theirs.flatten(), dim=0) < 0.999999
    again = passed(specify("fp8", recipe, options={"activation_checkpointing": activation_checkpointing}))
    assert all(torch.equal(one, other) for one, other in zip(here, again, strict=True))


def test_weights_that_are_gathered_for_each_pass(specify: Any) -> None:
    """FSDP2 frees a layer's weights after its forward pass. What the product keeps has to be there again later."""
    from torch.distributed.fsdp import fully_shard

    spec = specify("fp8", "rowwise")
    expected = passed(spec)
    with training_fixtures.group_of_one():
        network = network_of(spec)
        for part in (*network.model.layers, network):
            fully_shard(part)
        found = passed(spec, network)
    assert all(torch.equal(one, other) for one, other in zip(expected, found, strict=True))


def test_compiled_it_is_one_graph(specify: Any) -> None:
    """Dynamo traces the product with its backward pass. Generated code could round in other places, so none is made."""
    spec = specify("fp8")
    expected, network = passed(spec), network_of(spec)
    for block in network.model.layers:
        block.compile(fullgraph=True, dynamic=False, backend="aot_eager")
    for one, other in zip(expected, passed(spec, network), strict=True):
        assert one.ndim == 0 or torch.cosine_similarity(one.flatten(), other.flatten(), dim=0) > 0.99


def test_its_flops_are_those_of_bf16(specify: Any) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    found = []
    for precision in ("bf16", "fp8"):
        spec = specify(precision)
        with FlopCounterMode(display=False) as counter:
            passed(spec)
        found.append(counter.get_total_flops())
    assert found[0] == found[1]


def test_its_record_and_what_it_refuses(specify: Any) -> None:
    spec = specify("fp8", "rowwise")
    form = workloads.form(spec.model, "torch")
    frameworks.refuse(spec)
    assert form.settings(network_of(spec))["products"].startswith("fp8, rowwise: e4m3 for all")
    assert "products" not in form.settings(network_of(specify("bf16")))
    mixture = {**SIZES, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}
    for refused, why in (
        (specify("fp8", sizes=mixture), "experts are not written in fp8"),
        (specify("fp8", sequence_length=15, batch=1), "batch x sequence_length = 15"),
        (specify("fp8", sizes={**SIZES, "intermediate_size": 168}), "a feed-forward part of 168"),
    ):
        with pytest.raises(workloads.Unsupported, match=why):
            form.build(refused, {})
    with pytest.raises(workloads.Unsupported, match="autocast, which has no fp8"):
        frameworks.refuse(replace(specify("fp8"), framework="hf-loop"))
