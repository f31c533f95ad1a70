"""The step of `torch` by itself: it waits for no device, reads no value, and leaves what a recorded step needs."""

from __future__ import annotations

import json
from typing import Any

import pytest

import training_fixtures
from throughline.workloads import bert

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from throughline.frameworks import Unsupported  # noqa: E402
from throughline.frameworks.torch.ddp import Replayed, TorchDDP  # noqa: E402

NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


class NoReading(TorchDispatchMode):
    """Fails where a value leaves the device for Python: `.item()`, `float(tensor)`, a branch on a tensor."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function.overloadpacket.__name__
        assert name not in {"_local_scalar_dense", "nonzero", "is_nonzero", "masked_select", "equal"}, name
        return function(*args, **(kwargs or {}))


def framework(kind: str = "cpu", **changes: Any) -> TorchDDP:
    spec = json.loads(training_fixtures.spec(**changes).model_dump_json())
    made = TorchDDP(spec, 0, 0, 1, kind)
    made.join()
    made.device()
    made.model(bert.facts(None))
    made.optimizer()
    return made


def batch(one: TorchDDP, seed: int, masked: bool = False) -> Any:
    arrays = bert.synthetic(4, {"sequence": 32, "predictions": 5}, seed)
    if masked or one.options["unpadded"]:
        lengths = torch.tensor([32, 20, 32, 30])[:, None].numpy()
        arrays["mask"] = (torch.arange(32).numpy() < lengths).astype("int8")
        arrays["positions"][arrays["positions"] >= lengths] = 0
    return one.data(bert.unpadded(arrays) if one.options["unpadded"] else arrays)


STEPS: list[dict[str, Any]] = [
    {},
    {"precision": "bf16", "options": {"clip": "global_norm", "accumulate": 2}},
    {"precision": "fp16", "options": {"clip": "norm"}},
    {"precision": "fp16", "optimizer": {"name": "lamb"}},
    {"optimizer": {"name": "lamb"}, "options": {"clip": "value", "checkpointing": True}},
    {"precision": "bf16", "options": {"unpadded": True, "checkpointing": True}},
]


@pytest.mark.parametrize("changes", STEPS, ids=lambda changes: "-".join(map(str, changes)) or "plain")
@pytest.mark.parametrize("masked", [False, True], ids=["full", "padded"])
def test_a_step_reads_no_value(changes: dict[str, Any], masked: bool) -> None:
    one = framework(**changes)
    losses = []
    with NoReading():
        for step in range(2):
            micro = [batch(one, 10 * step + turn, masked) for turn in range(one.options["accumulate"])]
            losses.append(one.step([one.deliver(each) for each in micro]))
            one.mark()
    assert all(5 < loss < 15 for loss in one.losses(losses))


def test_reading_a_value_is_noticed() -> None:
    with NoReading(), pytest.raises(AssertionError, match="_local_scalar_dense"):
        float(torch.ones(()))


def test_without_padding_a_cpu_compiles_nothing() -> None:
    with pytest.raises(Unsupported, match="samples attend by their lengths"):
        framework(options={"compile": True, "unpadded": True})


def test_only_small_compiled_steps_of_one_gpu_are_recorded() -> None:
    def small(kind: str = "cuda", world: int = 1, **changes: Any) -> bool:
        spec = json.loads(training_fixtures.spec(**changes).model_dump_json())
        one = TorchDDP(spec, 0, 0, world, kind)
        one.facts = bert.facts(None)
        return one.captures()

    base: dict[str, Any] = {"model": "bert-base", "sequence": 128, "predictions": 20, "batch_per_device": 32}
    compiled = {"options": {"compile": True}}
    assert small(**base, **compiled)
    assert not small(**base)
    assert not small(kind="cpu", **base, **compiled)
    assert not small(world=2, **base, **compiled)
    assert not small(**base | {"batch_per_device": 256}, **compiled)
    assert not small(**base, options={"compile": True, "checkpointing": True})
    assert not small(**base, options={"compile": True, "unpadded": True})


def test_gradients_that_stay_in_place_are_written_anew() -> None:
    """What a recorded step relies on: gradients that are dropped before it are written, not added to."""
    one = framework(options={"dropout": 0.0})
    replayed = Replayed(one.passes, one.parameters)
    replayed._drop()
    assert all(parameter.grad is None for parameter in one.parameters)
    one.passes([one.deliver(batch(one, 1))])
    first = [parameter.grad.clone() for parameter in one.parameters]
    replayed._drop()
    one.passes([one.deliver(batch(one, 1))])
    for parameter, before in zip(one.parameters, first, strict=True):
        torch.testing.assert_close(parameter.grad, before, rtol=1e-4, atol=1e-7)


GPU_STEPS: list[dict[str, Any]] = [
    {"precision": precision, "options": {"compile": compiled, "clip": clip}}
    for precision in ("fp32", "tf32", "bf16", "fp16")
    for compiled, clip in ((False, "none"), (True, "global_norm"))
]
GPU_STEPS.append({"precision": "fp16", "optimizer": {"name": "lamb"}})
GPU_STEPS += [{"precision": precision, "options": {"unpadded": True}} for precision in ("fp32", "bf16", "fp16")]
GPU_STEPS.append({"precision": "bf16", "options": {"unpadded": True, "compile": True}})


@NEEDS_GPU
@pytest.mark.parametrize("changes", GPU_STEPS, ids=str)
def test_the_window_never_waits_for_the_gpu(changes: dict[str, Any]) -> None:
    one = framework("cuda", **changes)
    for seed in range(3):
        one.step([one.deliver(batch(one, seed))])
    ready = [batch(one, seed) for seed in range(4)]
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        losses = [one.step([one.deliver(each)]) for each in ready]
        one.mark()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    one.sync()
    assert all(5 < loss < 15 for loss in one.losses(losses))


@NEEDS_GPU
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_a_recorded_step_trains_as_one_that_is_not(precision: str) -> None:
    found = []
    for compiled in (False, True):
        one = framework("cuda", precision=precision, options={"compile": compiled, "dropout": 0.0, "accumulate": 2})
        assert (one.replayed is not None) == compiled
        losses = [one.step([one.deliver(batch(one, 2 * step + turn)) for turn in (0, 1)]) for step in range(6)]
        one.sync()
        found.append(one.losses(losses))
    assert found[1] == pytest.approx(found[0], rel=1e-4 if precision == "fp32" else 5e-3)


@NEEDS_GPU
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_a_gpu_trains_the_same_without_padding(precision: str, compiled: bool) -> None:
    found = []
    for options in ({}, {"unpadded": True, "compile": compiled}):
        one = framework("cuda", precision=precision, options={"dropout": 0.0, **options})
        losses = []
        for seed in range(6):
            arrays = bert.synthetic(4, {"sequence": 32, "predictions": 5}, seed)
            lengths = torch.tensor([32, 20 + seed, 32, 30 - seed])
            arrays["mask"] = (torch.arange(32) < lengths[:, None]).to(torch.int8).numpy()
            arrays["positions"][arrays["positions"] >= lengths.numpy()[:, None]] = 0
            losses.append(one.step([one.deliver(one.data(bert.unpadded(arrays) if options else arrays))]))
        one.sync()
        found.append(one.losses(losses))
    assert found[1] == pytest.approx(found[0], rel=1e-4 if precision == "fp32" else 5e-3)
