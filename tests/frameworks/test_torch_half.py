"""The copy of weights in a 16-bit type, which a step on GPUs makes once: it changes no number, to the last bit."""

from __future__ import annotations

from typing import Any

import pytest

import training_fixtures
from throughline import workloads

torch = pytest.importorskip("torch")

import torch_again  # noqa: E402

from throughline.frameworks.torch.ddp import TorchDDP  # noqa: E402

STEPS = 3
CASES: dict[str, dict[str, Any]] = {
    "bert, several passes": {"precision": "bf16",
        "options": {"gradient_accumulation": 2, "clip": "global_norm", "dropout": 0.1}},
    "bert, without padding": {"precision": "bf16", "options": {"remove_padding": True}},
    "bert, recomputed": {"precision": "bf16", "options": {"activation_checkpointing": True, "dropout": 0.1}},
    "bert, scaled": {"precision": "fp16", "optimizer": {"name": "lamb"}, "options": {"clip": "norm"}},
    "resnet, several passes": {"model": "resnet-tiny", "image": 32, "precision": "bf16",
        "options": {"gradient_accumulation": 2}},
    "resnet, scaled, channels first": {
        "model": "resnet-tiny", "image": 32, "precision": "fp16", "optimizer": {"name": "sgd"}, "channels_last": False,
    },
}  # fmt: skip


def rank_of(changes: dict[str, Any], copies: bool, world: int = 1, compiled: bool = False) -> TorchDDP:
    options = {"dropout": 0.0, **changes.get("options", {})}
    rank = TorchDDP(training_fixtures.spec(**{**changes, "options": options}), 0, 0, world, "cpu")
    rank.copies_weights_on = ("cpu",) if copies else ()
    rank.device()
    rank.model(workloads.of(rank.spec.model).facts(None))
    if compiled:
        rank.network.compile_parts(dynamic=False, backend="aot_eager")
    rank.optimizer()
    return rank


def train(rank: TorchDDP, steps: range = range(STEPS)) -> list[float]:
    """Make these steps with their batches; return the losses."""
    workload, each, losses = workloads.of(rank.spec.model), rank.options.gradient_accumulation, []
    torch.manual_seed(5)
    for step in steps:
        made = [workload.synthetic(2, rank.spec, each * step + turn) for turn in range(each)]
        losses.append(rank.step([rank.deliver(rank.data(arrays)) for arrays in made]))
    return rank.losses(losses)


def same(one: TorchDDP, other: TorchDDP) -> None:
    """Both train the same, and end with the same weights: to the last bit."""
    assert train(one) == train(other)
    for (name, left), right in zip(one.network.named_parameters(), other.network.parameters(), strict=True):
        torch.testing.assert_close(left, right, rtol=0, atol=0, msg=name)


@pytest.mark.parametrize("case", CASES)
def test_a_copy_changes_no_number(case: str) -> None:
    plain, copied = (rank_of(CASES[case], copies) for copies in (False, True))
    same(plain, copied)
    assert plain.copied is None and "half_copy" not in plain.settings()
    assert copied.settings()["half_copy"].endswith("gradients go to the fp32 weights")


@pytest.mark.parametrize("sharding", ["none", "zero1"])
def test_replicas_exchange_the_same_gradients(sharding: str) -> None:
    changes = {"precision": "bf16", "topology": "1n2g", "options": {"gradient_accumulation": 2, "sharding": sharding}}
    with training_fixtures.group_of_one():
        same(*(rank_of(changes, copies, world=2) for copies in (False, True)))


def test_ranks_that_gather_their_weights_copy_nothing() -> None:
    """FSDP2 gathers the weights of a block in the 16-bit type already."""
    with training_fixtures.group_of_one():
        rank = rank_of({"precision": "bf16", "topology": "1n2g", "options": {"sharding": "full_shard"}}, True, world=2)
        assert rank.copied is None
        assert "half_copy" not in rank.settings()


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_a_recorded_step_makes_its_copy_anew(precision: str) -> None:
    """The recording makes the copy, so each replay reads the weights that the last one has written."""
    changes = {"precision": precision, "options": {"gradient_accumulation": 2}}
    plain, copied = (rank_of(changes, copies) for copies in (False, True))
    for rank in (plain, copied):
        torch_again.whole_step(rank)
    same(plain, copied)


def test_weights_that_are_loaded_are_read_by_the_next_step() -> None:
    changes = {"precision": "bf16"}
    plain, copied = (rank_of(changes, copies) for copies in (False, True))
    train(copied)
    copied.form.load(copied.network, plain.form.weights(plain.network))
    assert train(copied, range(1)) == train(plain, range(1))


def test_pictures_are_looked_at_with_the_weights_themselves() -> None:
    """Sums over held-out pictures are computed in fp32, and no copy stands in for a weight there."""
    changes = {"model": "resnet-tiny", "image": 32, "precision": "bf16"}
    plain, copied = (rank_of(changes, copies) for copies in (False, True))
    same(plain, copied)
    batch = workloads.of("resnet-tiny").synthetic(2, plain.spec, 9)
    found = [rank.form.sums(rank.network, rank.deliver(rank.data(batch))) for rank in (plain, copied)]
    assert found[0] == found[1]


@pytest.mark.parametrize("model", ["bert-tiny", "resnet-tiny"])
def test_every_product_of_a_pass_reads_the_copy(model: str) -> None:
    """No pass casts a weight: whoever adds a weight to a network also copies it."""
    casts, size = {}, {"image": 32} if model == "resnet-tiny" else {}
    for copies in (False, True):
        rank = rank_of({"model": model, "precision": "bf16", **size}, copies)
        with Casts({parameter.data_ptr() for parameter in rank.parameters}) as casts[copies]:
            train(rank, range(1))
    assert len(casts[False].found) > 10
    assert casts[True].found == []


class Casts(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[misc]
    """Finds weights that are cast. `found`: their shapes."""

    def __init__(self, weights: set[int]) -> None:
        super().__init__()
        self.weights, self.found = weights, list[Any]()

    def __torch_dispatch__(self, call: Any, types: Any, given: Any = (), more: Any = None) -> Any:
        if call is torch.ops.aten._to_copy.default and given[0].data_ptr() in self.weights:
            self.found.append(tuple(given[0].shape))
        return call(*given, **more or {})
