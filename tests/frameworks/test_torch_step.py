"""A single step of `torch` never waits for the device, reads no value from it, and keeps what a recorded step needs."""

from __future__ import annotations

import json
import threading
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch_reading import Reading

import training_fixtures
from framework_lab import helped
from throughline import workloads
from throughline.frameworks.torch.ddp import TorchDDP
from throughline.rank.data import Loader
from throughline.workloads import Unsupported, bert, in_torch_attention

KERNELS = ("flash", "mem_efficient", "math", "cudnn")


def kernels() -> set[str]:
    """Return the kernels of attention that PyTorch may use."""
    return {name for name in KERNELS if getattr(torch.backends.cuda, f"{name}_sdp_enabled")()}


def framework(**changes: Any) -> TorchDDP:
    made = TorchDDP(training_fixtures.spec(**changes), 0, 0, 1, "cpu")
    made.join()
    made.device()
    made.model(workloads.of(made.spec.model).facts(None))
    made.optimizer()
    return made


def batch(rank: TorchDDP, seed: int, masked: bool = False) -> Any:
    arrays = workloads.of(rank.spec.model).synthetic(4, rank.spec, seed)
    if "input_ids" in arrays and (masked or rank.options.remove_padding):
        lengths = torch.tensor([32, 20, 32, 30])[:, None].numpy()
        arrays["mask"] = (torch.arange(32).numpy() < lengths).astype("int8")
        arrays["positions"][arrays["positions"] >= lengths] = 0
    return rank.data(bert.without_padding(arrays) if rank.options.remove_padding else arrays)


STEPS: list[dict[str, Any]] = [
    {},
    {"precision": "bf16", "options": {"clip": "global_norm", "gradient_accumulation": 2}},
    {"precision": "fp16", "options": {"clip": "norm"}},
    {"precision": "fp16", "optimizer": {"name": "lamb"}},
    {"optimizer": {"name": "lamb"}, "options": {"clip": "value", "activation_checkpointing": True}},
    {"precision": "bf16", "options": {"remove_padding": True, "activation_checkpointing": True}},
    {"model": "gpt2-tiny", "precision": "bf16", "options": {"clip": "global_norm"}},
]


@pytest.mark.parametrize("changes", STEPS, ids=lambda changes: "-".join(map(str, changes)) or "plain")
@pytest.mark.parametrize("masked", [False, True], ids=["full", "padded"])
def test_a_step_reads_no_value(changes: dict[str, Any], masked: bool) -> None:
    rank = framework(**changes)
    losses = []
    with Reading() as reading:
        for step in range(2):
            micro = [batch(rank, 10 * step + turn, masked) for turn in range(rank.options.gradient_accumulation)]
            losses.append(rank.step([rank.deliver(each) for each in micro]))
            rank.mark()
    assert not reading.found
    assert all(5 < loss < 15 for loss in rank.losses(losses))


def test_reading_a_value_is_noticed() -> None:
    with Reading() as reading:
        float(torch.ones(()))
    assert reading.found == ["_local_scalar_dense"]


def test_a_loss_scaler_over_horovod_reads_no_value() -> None:
    """Horovod builds a new optimizer from the groups of ours. The scaler must still leave overflows to it."""
    specs = [
        training_fixtures.spec(
            framework="torch-horovod", topology="1n2g", precision="fp16", optimizer={"name": name}
        ).values()
        for name in ("adamw", "adam", "lamb")
    ]
    (every,) = helped("torch-horovod", "torch_reading.py", json.dumps(specs))
    for found in every.values():
        sent: list[Any] = [0, []]  # no buffer, not even one that changes
        assert found == {"read": [], "moved": True, "kept": True, "skipped": 1, "sent": sent}


def test_without_padding_a_cpu_compiles_nothing() -> None:
    with pytest.raises(Unsupported, match="attention without padding has other shapes"):
        framework(options={"compile": True, "remove_padding": True})


@pytest.mark.parametrize("batch_size", [1, 4096])
@pytest.mark.parametrize("cuda_graph", ["none", "step"])
def test_the_option_alone_decides_whether_steps_are_recorded(
    monkeypatch: pytest.MonkeyPatch, batch_size: int, cuda_graph: str
) -> None:
    """The work of a step and the number of devices do not decide it. So all runs of a series run the same program."""
    monkeypatch.setattr(TorchDDP, "device", lambda self: None)
    spec = training_fixtures.spec(batch=batch_size, options={"compile": True, "cuda_graph": cuda_graph})
    rank = TorchDDP(spec, 0, 0, 1, "cpu")
    rank.model(bert.WORKLOAD.facts(None))
    rank.optimizer()
    assert (rank.recorded is not None) == (cuda_graph == "step")
    assert rank.settings()["cuda_graph"] == cuda_graph


@pytest.mark.parametrize("data", ["real", "synthetic"])
@pytest.mark.parametrize(
    ("precision", "changes", "kernel"),
    [
        ("fp16", {}, "mem_efficient"),
        ("tf32", {}, "mem_efficient"),
        ("fp32", {"options": {"remove_padding": True}}, "mem_efficient"),
        ("bf16", {"options": {"remove_padding": True}}, "flash"),
        ("bf16", {"model": "gpt2-tiny", "options": {"dropout": 0.0}}, "cudnn"),
    ],
)
def test_attention_has_one_kernel(
    monkeypatch: pytest.MonkeyPatch, precision: str, changes: dict[str, Any], kernel: str, data: str
) -> None:
    """The data must not change the kernel: if a mask chose another one, its cost would count as a cost of the input."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda at: (9, 0))
    monkeypatch.setattr(in_torch_attention, "cudnn_takes", lambda asked, at: True)
    given = {"precision": precision, **changes, "options": {**changes.get("options", {}), "data": data}}
    spec = training_fixtures.spec(**given)
    form, workload = workloads.form(spec.model, "torch"), workloads.of(spec.model)
    network = form.build(spec, workload.facts(None), torch.device("cuda", 0))
    assert kernels() == {kernel} == {network.attention.name}
    assert form.settings(network)["attention"] == network.attention.words


def test_several_ranks_compile_the_same_program_as_one() -> None:
    """PyTorch would cut a part that it compiles for DistributedDataParallel, at the borders of the buckets."""
    import torch._dynamo
    from torch._dynamo.testing import CompileCounterWithBackend

    spec = training_fixtures.spec(model="bert-mini")
    made = [bert.WORKLOAD.synthetic(2, spec, 1) for _ in range(2)]
    found = []
    config: Any = torch._dynamo.config
    with training_fixtures.group_of_one():
        for several in (False, True):
            config.optimize_ddp = True
            torch._dynamo.reset()
            counter = CompileCounterWithBackend("eager")
            network: Any = workloads.form(spec.model, "torch").build(spec, bert.WORKLOAD.facts(None))
            network.compile_parts(dynamic=False, backend=counter)
            if several:
                network = torch.nn.parallel.DistributedDataParallel(network, bucket_cap_mb=1)
            for arrays in made:
                network(**{name: torch.from_numpy(array) for name, array in arrays.items()}).backward()
            found.append((counter.frame_count, counter.op_count))
    assert found[0] == found[1]


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_batches_with_and_without_a_mask_take_the_same_kernel(precision: str) -> None:
    rank = framework(precision=precision, options={"dropout": 0.0})
    called = []
    for masked in (False, True):
        given = rank.deliver(batch(rank, 1, masked))
        with Reading() as reading:
            rank.step([given])
        called.append({name for name in reading.every if "attention" in name})
    ours = "_scaled_dot_product_flash_attention_for_cpu"
    assert called == [{ours, f"{ours}_backward"}] * 2
    assert rank.settings()["attention"].startswith("PyTorch's flash")


def test_a_step_leaves_no_gradients() -> None:
    """A recording relies on this: every replay writes the gradients, and adds to none of the step before."""
    rank = framework()
    rank.step([rank.deliver(batch(rank, 1))])
    assert all(parameter.grad is None for parameter in rank.parameters)


def test_the_loaders_thread_is_on_its_ranks_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every thread has its own current GPU, which is 0 until somebody sets another."""
    here, asked = threading.local(), []

    def ask(given: Any) -> Any:
        asked.append(getattr(here, "gpu", 0))
        return given

    monkeypatch.setattr(torch.cuda, "set_device", lambda at: setattr(here, "gpu", at.index))
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: ask(nullcontext()))
    monkeypatch.setattr(torch.Tensor, "pin_memory", ask)
    monkeypatch.setattr(torch.Tensor, "to", lambda tensor, *given, **more: tensor)
    rank = TorchDDP(training_fixtures.spec(), 1, 1, 2, "cuda")
    rank.copies = SimpleNamespace(record_event=lambda: None)
    loader = Loader(iter([{"input_ids": np.zeros((2, 3), "i4")}]), rank.data)
    loader.next()
    loader.close()
    assert asked == [1, 1]


def test_the_window_has_a_peak_of_memory_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    peaks = {"allocated": 900, "reserved": 1000}
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda at: peaks["allocated"])
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda at: peaks["reserved"])
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda at: peaks.update(allocated=100, reserved=1000))
    rank = TorchDDP(training_fixtures.spec(), 0, 0, 1, "cuda")
    assert rank.memory() == {"needed_bytes": 900, "reserved_bytes": 1000, "reasons": {}}
    rank.window_opens()
    peaks["allocated"] = 700
    assert rank.memory() == {
        "needed_bytes": 900, "reserved_bytes": 1000, "window_needed_bytes": 700, "reasons": {}
    }  # fmt: skip
    peaks["allocated"] = 950
    assert rank.memory()["needed_bytes"] == rank.memory()["window_needed_bytes"] == 950
