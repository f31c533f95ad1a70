"""Frameworks: one file each, line-for-line parallels of each other. This page is what such a file has to offer.

Order of a file, and of a run: join, device, model, data, optimizer, step, sync, memory, close.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from throughline.files import UserError

Spec = dict[str, Any]
"""The run specification, as parsed JSON."""


class Unsupported(Exception):
    """What this framework cannot do on this device: the run's record says so."""


class Framework(Protocol):
    """One rank's side of a framework. A *mark* is a point on the device's time line, read only after the window."""

    def __init__(self, spec: Spec, rank: int, local_rank: int, world: int, kind: str) -> None:
        """`kind` is `cpu` or `cuda`. Imports the libraries, and sets attributes; no memory limit holds yet."""

    def join(self) -> None:
        """Meet the other ranks."""

    def device(self) -> None:
        """Take the device, set threads, seeds and precision. Raises Unsupported."""

    def model(self, facts: dict[str, Any]) -> None:
        """Have the workload's form build the model, with random weights, the same on every rank. `facts`: what the
        form has to know of the data (`Workload.facts`)."""

    def load(self, weights: dict[str, Any]) -> None:
        """Replace the weights by these (numpy arrays by the names of the model's PyTorch form)."""

    def data(self, arrays: dict[str, Any]) -> Any:
        """numpy arrays -> a batch that is ready to travel (called in the loader's thread)."""

    def deliver(self, batch: Any) -> Any:
        """The batch on the device, without waiting for it."""

    def optimizer(self) -> None:
        """Build the optimizer."""

    def step(self, batches: list[Any]) -> Any:
        """One optimizer step over delivered micro-batches; the mean loss as the device holds it."""

    def sync(self) -> None:
        """Wait until the device is idle."""

    def barrier(self) -> None:
        """Wait for every rank."""

    def broadcast(self, value: int) -> int:
        """Rank 0's value, on every rank."""

    def mark(self) -> Any:
        """A mark at the present end of the device's work."""

    def seconds(self, marks: list[Any]) -> list[float]:
        """Seconds between consecutive marks (after `sync`)."""

    def losses(self, values: list[Any]) -> list[float]:
        """What `step` returned, as numbers (after `sync`)."""

    def skipped(self) -> int:
        """Steps that the loss scaler has skipped up to now (outside the window: it waits for the device)."""

    def memory(self) -> dict[str, Any]:
        """Peaks since the start: {needed_bytes, reserved_bytes, reasons}, of a GPU, or of the process on a CPU."""

    def matmul(self, seconds: float) -> float:
        """FLOP/s of a large matrix product at the run's precision, over about `seconds`; may be left out."""

    def settings(self) -> dict[str, Any]:
        """What decides whether two frameworks do the same work, as it is set up: the keys of SETTINGS (at the end)."""

    def versions(self) -> dict[str, str | None]:
        """Versions of the framework and what it runs on."""

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Whether the allocator refused."""

    def close(self) -> None:
        """Part from the other ranks."""


TORCH_GPUS = (
    "import json, torch; n = torch.cuda.device_count() if torch.cuda.is_available() else 0; "
    "print(json.dumps({'count': n, 'name': torch.cuda.get_device_name(0) if n else None, "
    "'fp16': n > 0 and torch.cuda.get_device_capability(0) >= (6, 0)}))"
)
MXNET_GPUS = (
    "import json, mxnet; n = mxnet.context.num_gpus(); "
    "print(json.dumps({'count': n, 'name': 'GPU' if n else None, 'fp16': None}))"
)

FEATURES = {
    "devices": "several devices",
    "nodes": "several nodes",
    "amp": "mixed precision with fp16 (AMP)",
    "bf16": "mixed precision with bf16",
    "compile": "compiled model",
    "accumulation": "gradient accumulation",
    "clipping": "gradient clipping",
    "checkpointing": "recomputed activations",
    "unpadded": "padding left out",
    "sharding": "sharded optimizer states",
    "tensor": "several devices for one replica (tensor parallelism)",
    "convergence": "convergence check with checkpoints",
}
"""What the feature matrix asks of every framework, and in words."""


@dataclass(frozen=True)
class Entry:
    """A framework: its file in this folder and its class, who starts its ranks, and what it can do.

    `gpus` is a line of Python for the framework's environment that prints {count, name, fp16} of the GPUs it sees.
    """

    file: str
    name: str
    starter: str
    gpus: str
    features: frozenset[str]


TABLE = {
    "torch": Entry(
        "torch_ddp", "TorchDDP", "torchrun", TORCH_GPUS, frozenset(FEATURES) - {"sharding", "tensor"},
    ),
    "torch-horovod": Entry(
        "torch_horovod", "TorchHorovod", "horovod", TORCH_GPUS, frozenset(FEATURES) - {"sharding", "tensor"},
    ),
    "mxnet-horovod": Entry(
        "mxnet_horovod", "MXNetHorovod", "horovod", MXNET_GPUS,
        frozenset({"devices", "nodes", "amp", "accumulation", "clipping", "convergence"}),
    ),
}  # fmt: skip
"""A framework's name in config.yaml -> all that the rest has to know of it."""

SETTINGS = (
    "parameters",
    "dropout",
    "loss",
    "optimizer",
    "learning_rate",
    "betas",
    "epsilon",
    "epsilon_is_added_to",
    "weight_decay",
    "decays",
    "clip",
    "clip_at",
    "threads",
)
"""What every framework states of itself (`settings`), as it is built and not as it was asked for, beside what the
workload's form states (`Workload.SETTINGS`)."""


MATMUL_SIZE = {"cpu": 1024, "cuda": 8192}
"""Rows and columns of the matrices that `matmul` multiplies: large enough for the device's best rate."""


def matmul_rate(size: int, seconds: float, timed: Callable[[int], float]) -> float:
    """FLOP/s over about `seconds`, from timed(times) -> seconds for so many products of two size x size matrices."""
    timed(1)  # whatever a first one has to set up
    times = max(1, int(seconds / timed(1)))
    return 2 * size**3 * times / timed(times)


def refuse(spec: Spec) -> None:
    """Unsupported where a run asks for a layout that its framework does not have."""
    options, features = spec["options"], TABLE[spec["framework"]].features
    for feature, wanted in {"sharding": options["sharding"] != "none", "tensor": options["tensor"] > 1}.items():
        if wanted and feature not in features:
            raise Unsupported(f"{spec['framework']} has no {FEATURES[feature]}")


def load(name: str) -> type[Framework]:
    """The class behind a framework's name; imports the framework. UserError where there is none of that name."""
    if name not in TABLE:
        raise UserError(f"there is no framework {name!r}", next_step="choose one of " + ", ".join(TABLE))
    entry = TABLE[name]
    loaded: type[Framework] = getattr(importlib.import_module(f"{__name__}.{entry.file}"), entry.name)
    return loaded
