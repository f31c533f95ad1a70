"""A model is made on its device with the weights that a CPU draws, and main memory holds one tensor at a time."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest
import torch

import training_fixtures
from throughline import workloads
from throughline.frameworks.torch import building

SPECS: list[dict[str, Any]] = [
    {"model": "bert-tiny"},
    {"model": "gpt2-tiny"},
    {"model": "resnet-tiny", "image": 64, "optimizer": {"name": "sgd"}},
]


def built(changes: dict[str, Any], device: str, drawn: bool = False) -> tuple[Any, Any]:
    """Return the network, and the state of the CPU's generator after it was built."""
    spec = training_fixtures.spec(options={"data": "synthetic"}, **changes)
    torch.manual_seed(spec.seed)
    with ExitStack() as stack:
        stack.enter_context(building.on_device(torch.device(device)))
        if drawn:
            stack.enter_context(building.DrawnOnCpu(device))
        form = workloads.form(spec.model, "torch")
        network = form.build(spec, workloads.of(spec.model).facts(None), torch.device("cpu"))
    return network, torch.get_rng_state()


@pytest.mark.parametrize("changes", SPECS, ids=lambda changes: str(changes["model"]))
def test_the_weights_of_every_device_are_those_of_a_cpu(changes: dict[str, Any]) -> None:
    network, state = built(changes, "cpu")
    same, _ = built(changes, "cpu", drawn=True)
    for (name, weight), (_, other) in zip(network.named_parameters(), same.named_parameters(), strict=True):
        assert torch.equal(weight, other), name
    far, drawn = built(changes, "meta")
    assert {parameter.device.type for parameter in far.parameters()} == {"meta"}
    assert torch.equal(state, drawn), "the CPU has drawn other numbers, or another device has drawn some"


def test_one_tensor_at_a_time_is_in_main_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[int] = []
    empty = torch.empty

    def counted(*shape: Any, **given: Any) -> Any:
        made = empty(*shape, **given)
        if made.device.type == "cpu":
            held.append(made.nbytes)
        return made

    monkeypatch.setattr(torch, "empty", counted)
    network, _ = built({"model": "gpt2-tiny"}, "meta")
    largest = max(parameter.nbytes for parameter in network.parameters())
    assert held and max(held) == largest < sum(parameter.nbytes for parameter in network.parameters())
