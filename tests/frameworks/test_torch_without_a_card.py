"""The GPU's branches of the implementations in PyTorch's CPU build: on the device `meta`, and with a group of one
process.

What is launched cannot be seen here (tests/gpu counts that). Shapes, types, compilations and collectives can.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

import training_fixtures
from throughline import workloads
from throughline.frameworks.torch.ddp import TorchDDP
from throughline.spec import RunSpec

META = torch.device("meta")
PRODUCTS = ("mm", "addmm")
"""Of two matrices. Attention, whose products are of several, is another operation on a GPU than here."""
WORLD = 16


class OnMeta(TorchDDP):
    """A rank whose tensors have shapes and types, and no numbers."""

    def device(self) -> None:
        self.at = META

    def building(self) -> AbstractContextManager[Any]:
        return nullcontext()  # there are no numbers to draw

    def data(self, arrays: dict[str, Any]) -> Any:
        return {name: torch.from_numpy(array).to(META) for name, array in arrays.items()}, None


class Operations(TorchDispatchMode):
    """Notes each operation with the type of its first operand."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[tuple[str, torch.dtype | None]] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        operand = next((value.dtype for value in args if isinstance(value, torch.Tensor)), None)
        self.seen[func.overloadpacket.__name__, operand] += 1
        return func(*args, **kwargs or {})

    def count(self, *names: str) -> int:
        return sum(number for (name, _), number in self.seen.items() if name in names)


def spec(model: str, **changes: Any) -> RunSpec:
    options = {"data": "synthetic"} | changes.pop("options", {})
    return training_fixtures.spec(model=model, options=options, **changes)


def built(kind: type[TorchDDP], asked: RunSpec) -> TorchDDP:
    rank = kind(asked, 0, 0, asked.topology.world, "cpu")
    rank.device()
    rank.model(workloads.of(asked.model).facts(None))
    return rank


def batches(rank: TorchDDP, count: int) -> list[Any]:
    workload, rows = workloads.of(rank.spec.model), rank.spec.size.batch_per_replica
    return [rank.deliver(rank.data(workload.synthetic(rows, rank.spec, seed))) for seed in range(count)]


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("model", ["bert-tiny", "gpt2-tiny"])
def test_products_are_in_the_runs_precision_and_gradients_in_that_of_the_weights(
    monkeypatch: pytest.MonkeyPatch, model: str, precision: str
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (9, 0))
    # No device `meta` has autocast, so a CPU shows the types.
    rank = built(OnMeta if precision == "fp32" else TorchDDP, spec(model, precision=precision))
    rank.scaler = torch.amp.GradScaler("cpu", enabled=False)
    with Operations() as operations:
        loss = rank.passes(batches(rank, 1))
    assert loss.shape == () and loss.dtype == torch.float32
    for parameter in rank.parameters:
        assert (parameter.grad.shape, parameter.grad.dtype) == (parameter.shape, torch.float32)
    wanted = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    found = {kind for name, kind in operations.seen if name in PRODUCTS}
    assert found == {wanted}


@pytest.fixture
def nobody() -> Iterator[None]:
    """A group of many ranks that this process is alone in. Its collectives return at once."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=WORLD)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize(
    ("sharding", "gathered"), [("shard_grad_op", 5), ("full_shard", 9)], ids=["once a step", "for each pass"]
)
@pytest.mark.parametrize("optimizer", ["adamw", "lamb"])
def test_a_step_exchanges_each_block_as_often_as_its_sharding_says(
    nobody: None, sharding: str, gathered: int, optimizer: str
) -> None:
    """Of four layers and what lies outside them. LAMB, computed as on a GPU, needs the norms of whole weights and of
    updates as well, and sends them together. (As on a CPU it sends four messages: two for each group of weights.)"""
    asked = spec(
        "gpt2-mini", topology=f"1n{WORLD}g", options={"sharding": sharding}, optimizer={"name": optimizer}, threads=1
    )
    rank = built(TorchDDP, asked)
    rank.optimizer()
    if optimizer == "lamb":
        assert rank.update.fused is False
        rank.update.fused = True
    first, second = batches(rank, 2)
    rank.step([first])
    with Operations() as operations:
        rank.step([second])
    assert operations.count("_allgather_base_", "all_gather_into_tensor", "all_gather_into_tensor_out") == gathered
    assert operations.count("_reduce_scatter_base_", "reduce_scatter_tensor") == 5
    assert operations.count("allreduce_", "all_reduce") == (1 if optimizer == "lamb" else 0)
    whole, here = sum(p.numel() for p in rank.parameters), sum(p.to_local().numel() for p in rank.parameters)
    assert here <= -(-whole // WORLD) * 1.1
