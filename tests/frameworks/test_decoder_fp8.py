"""A decoder whose layers multiply in fp8: its losses and gradients stay close to those in bf16, with both recipes.

On a CPU, PyTorch computes these products slowly but correctly, so the networks are small.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

import training_fixtures
from throughline import frameworks, workloads
from throughline.checks import equivalence
from throughline.spec import RunSpec
from training_fixtures import DECODER

MIXTURE = {**DECODER, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}
STEPS = 10


def specified(
    precision: str, recipe: str = "tensorwise", sizes: Any = DECODER, recompute: Any = False, **given: Any
) -> RunSpec[Any]:
    options = {"fp8_scaling": recipe, "activation_checkpointing": recompute}
    return training_fixtures.decoder_spec(sizes, options, precision=precision, **{"batch": 2, **given})


def network_of(spec: RunSpec[Any]) -> Any:
    torch.manual_seed(1)
    network = workloads.form(spec.model, "torch").build(spec, {})
    network.half_type = torch.bfloat16
    return network


def passed(spec: RunSpec[Any], network: Any, seed: int = 0) -> list[Any]:
    """Return the loss and all gradients of one batch."""
    arrays = workloads.of(spec.model).synthetic(spec.batch, spec, seed)
    loss = network(**{name: torch.from_numpy(array) for name, array in arrays.items()})
    loss.backward()
    return [loss.detach(), *(getattr(p.grad, "full_tensor", lambda p=p: p.grad)() for p in network.parameters())]


def trained(spec: RunSpec[Any]) -> list[float]:
    """Return the losses of some steps with AdamW."""
    network, losses = network_of(spec), []
    update = torch.optim.AdamW(network.parameters(), lr=1e-3, fused=True)
    for step in range(STEPS):
        losses.append(float(passed(spec, network, step % 4)[0]))
        update.step()
        update.zero_grad()
    return losses


@pytest.mark.parametrize("recipe", ["tensorwise", "rowwise"])
def test_in_fp8_it_learns_as_in_bf16(recipe: str) -> None:
    coarse, half = trained(specified("fp8", recipe)), trained(specified("bf16"))
    assert coarse != half and half[-1] < half[0] - 0.2, "it learns"
    assert max(abs(ours / theirs - 1) for ours, theirs in zip(coarse, half, strict=True)) < equivalence.LOWER["fp8"]


@pytest.mark.parametrize("recipe", ["tensorwise", "rowwise"])
def test_gradients_are_close_to_those_in_bf16_and_recomputed_they_are_the_same(recipe: str) -> None:
    spec, half = specified("fp8", recipe), specified("bf16")
    here = passed(spec, network_of(spec))
    for ours, theirs in zip(here, passed(half, network_of(half)), strict=True):
        assert ours.ndim == 0 or 0.97 < torch.cosine_similarity(ours.flatten(), theirs.flatten(), dim=0) < 0.999999
    for recompute in (True, "selective"):
        again = passed(spec, network_of(specified("fp8", recipe, recompute=recompute)))
        assert all(torch.equal(one, other) for one, other in zip(here, again, strict=True))


def test_weights_that_are_gathered_for_each_pass() -> None:
    """FSDP2 frees a layer's weights after its forward pass. What the product keeps has to be there again later."""
    from torch.distributed.fsdp import fully_shard

    spec = specified("fp8", "rowwise")
    expected = passed(spec, network_of(spec))
    with training_fixtures.group_of_one():
        network = network_of(spec)
        for part in (*network.model.layers, network):
            fully_shard(part)
        found = passed(spec, network)
    assert all(torch.equal(one, other) for one, other in zip(expected, found, strict=True))


def test_compiled_it_is_one_graph() -> None:
    """Dynamo traces the product with its backward pass. Generated code could round in other places, so none is made."""
    spec = specified("fp8")
    network = network_of(spec)
    for block in network.model.layers:
        block.compile(fullgraph=True, dynamic=False, backend="aot_eager")
    for one, other in zip(passed(spec, network_of(spec)), passed(spec, network), strict=True):
        assert one.ndim == 0 or torch.cosine_similarity(one.flatten(), other.flatten(), dim=0) > 0.99


def test_its_record_and_what_it_refuses() -> None:
    form = workloads.form("llama-3.1-8b", "torch")
    frameworks.refuse(specified("fp8", "rowwise"))
    assert form.settings(network_of(specified("fp8", "rowwise")))["products"].startswith("fp8, rowwise: e4m3 for all")
    assert "products" not in form.settings(network_of(specified("bf16")))
    for refused, why in (
        (specified("fp8", sizes=MIXTURE), "experts are not written in fp8"),
        (specified("fp8", sequence_length=15, batch=1), "batch x sequence_length = 15"),
        (specified("fp8", sizes={**DECODER, "intermediate_size": 168}), "a feed-forward part of 168"),
    ):
        with pytest.raises(workloads.Unsupported, match=why):
            form.build(refused, {})
    with pytest.raises(workloads.Unsupported, match="autocast, which has no fp8"):
        frameworks.refuse(replace(specified("fp8"), framework="hf-loop"))
