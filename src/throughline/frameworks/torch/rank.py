"""What the frameworks on PyTorch share: one rank's device, batches, precision, marks and memory.

How ranks meet and how their gradients are exchanged is the frameworks' own.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import time
import typing
from typing import Any, NamedTuple

import torch
from torch import Tensor

from throughline import gpus, memory, workloads
from throughline.frameworks import MATMUL_SIZE, Spec, Unsupported, matmul_rate
from throughline.frameworks.torch.checkpointing import Checkpointing
from throughline.frameworks.torch.optimizers import CLIP, build, described
from throughline.topology import StepSize

HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}
"""Precisions whose matrix products and activations are of another type than the weights."""
CAPTURED_FLOPS = 10**13
"""Micro-batches of fewer FLOPs take less time on a GPU than their kernels take to launch, or not much more."""

Batch = dict[str, Tensor | None]


class Travelling(NamedTuple):
    """A batch on its way to the device, and the event of its arrival."""

    batch: Batch
    arrived: Any


class TorchRank(Checkpointing):
    """The part of `frameworks.Framework` that does not depend on how ranks talk to each other."""

    def __init__(self, spec: Spec, rank: int, local_rank: int, world: int, kind: str) -> None:
        self.spec, self.options = spec, spec["options"]
        self.rank, self.local_rank, self.world, self.kind = rank, local_rank, world, kind
        self.exchanges = world > 1 and self.options["exchange"]
        self.form = workloads.form(spec["model"], "torch")
        self.at = torch.device(kind, local_rank) if kind == "cuda" else torch.device("cpu")

    def device(self) -> None:
        precision = self.spec["precision"]
        if self.kind == "cuda":
            torch.cuda.set_device(self.at)
            major, _ = torch.cuda.get_device_capability(self.at)
            if precision in ("tf32", "bf16") and major < 8:
                raise Unsupported(f"{torch.cuda.get_device_name(self.at)} has no {precision} units")
            if self.options["unpadded"] and precision == "fp16" and major < 8:
                raise Unsupported(f"PyTorch's attention of several lengths has no {precision} kernel for this GPU")
            torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
            torch.backends.cudnn.allow_tf32 = precision == "tf32"
            self.copies: Any = torch.cuda.Stream(self.at)  # type: ignore[no-untyped-call]
        else:
            if precision == "tf32":
                raise Unsupported("tf32 exists on GPUs only")
            if self.options["unpadded"] and self.options["compile"]:
                raise Unsupported(
                    "on a CPU samples attend by their lengths, in shapes that a compiler would see anew each step"
                )
            torch.set_num_threads(self.spec["threads"])
            keep_freed_memory()
        torch.manual_seed(self.spec["seed"])

    def build(self, facts: dict[str, Any]) -> torch.nn.Module:
        """The network on its device; from here on every rank draws its own dropout."""
        self.facts = facts
        self.bare: Any = self.form.build(self.spec, facts).to(self.at)
        self.parameters = list(self.bare.parameters())
        self.bare.half_type = HALF.get(self.spec["precision"])
        if self.options["compile"]:
            self.bare.compile_parts(dynamic=self.options["unpadded"])
        torch.manual_seed(self.spec["seed"] + 1 + self.rank)
        network: torch.nn.Module = self.bare
        return network

    def load(self, weights: dict[str, Any]) -> None:
        self.form.load(self.bare, weights)

    def data(self, arrays: dict[str, Any]) -> Batch | Travelling:
        batch = {name: None if array is None else torch.from_numpy(array) for name, array in arrays.items()}
        if self.kind == "cpu":
            return batch
        # In the loader's thread, ahead of need, on a stream of its own.
        with torch.cuda.stream(self.copies):
            sent = {
                name: None if tensor is None else tensor.pin_memory().to(self.at, non_blocking=True)
                for name, tensor in batch.items()
            }
            return Travelling(sent, self.copies.record_event())

    def deliver(self, batch: Batch | Travelling) -> Batch:
        if not isinstance(batch, Travelling):
            return batch
        here: Any = torch.cuda.current_stream(self.at)
        here.wait_event(batch.arrived)
        for tensor in batch.batch.values():
            if tensor is not None:
                tensor.record_stream(here)
        return batch.batch

    def optimizer(self) -> None:
        self.update: Any = build(self.spec["optimizer"], self.parameters)
        self.clip = CLIP[self.options["clip"]]
        # The scale never grows within a run, so that its halvings count the skipped steps without a look at any.
        fp16 = self.spec["precision"] == "fp16"
        self.scaler = torch.amp.GradScaler(self.kind, enabled=fp16, growth_interval=2**31 - 1)
        self.first_scale = self.scaler.get_scale()

    def captures(self) -> bool:
        """Whether a compiled step on one GPU is to be captured and replayed (`torch_graph`): one of few FLOPs."""
        options = self.options
        still = not options["checkpointing"] and not options["unpadded"]
        if self.kind != "cuda" or self.world > 1 or not options["compile"] or not still:
            return False
        each = workloads.of(self.spec["model"]).flops_per_sample(self.spec, self.facts, {})
        return not isinstance(each, str) and StepSize.of_spec(self.spec).batch_per_replica * each <= CAPTURED_FLOPS

    def sync(self) -> None:
        if self.kind == "cuda":
            torch.cuda.synchronize(self.at)

    def mark(self) -> Any:
        if self.kind == "cpu":
            return time.monotonic()
        event: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def seconds(self, marks: list[Any]) -> list[float]:
        pairs = itertools.pairwise(marks)
        return [end - start if self.kind == "cpu" else start.elapsed_time(end) / 1000 for start, end in pairs]

    def losses(self, values: list[Tensor]) -> list[float]:
        return [float(value) for value in torch.stack(values).tolist()] if values else []

    def skipped(self) -> int:
        return round(math.log2(self.first_scale / self.scaler.get_scale())) if self.scaler.is_enabled() else 0

    def memory(self) -> dict[str, Any]:
        if self.kind == "cpu":
            return memory.of_process("PyTorch")
        needed, reserved = torch.cuda.max_memory_allocated(self.at), torch.cuda.max_memory_reserved(self.at)
        return {"needed_bytes": needed, "reserved_bytes": reserved, "reasons": {}}

    def figures(self) -> list[tuple[str, Any, float | None]]:
        measured: list[tuple[str, Any, float | None]] = self.form.figures(self.bare)
        return measured

    def matmul(self, seconds: float) -> float:
        size, dtype = MATMUL_SIZE[self.kind], HALF.get(self.spec["precision"], torch.float32)
        left, right, product = (torch.ones(size, size, device=self.at, dtype=dtype) for _ in range(3))

        def timed(times: int) -> float:
            self.sync()
            start = time.monotonic()
            for _ in range(times):
                torch.mm(left, right, out=product)
            self.sync()
            return time.monotonic() - start

        return matmul_rate(size, seconds, timed)

    def settings(self) -> dict[str, Any]:
        return {
            **self.form.settings(self.bare),
            **described(self.spec["optimizer"]["name"], self.update, self.options["clip"]),
            "threads": torch.get_num_threads() if self.kind == "cpu" else None,
        }

    def versions(self) -> dict[str, str | None]:
        cuda, libraries = self.kind == "cuda", typing.cast(Any, torch)  # their version functions have no types
        return {
            "torch": torch.__version__,
            **self.form.versions(),
            "cuda": torch.version.cuda,
            "cudnn": str(libraries.backends.cudnn.version()) if cuda else None,
            "nccl": ".".join(map(str, libraries.cuda.nccl.version())) if cuda else None,
            "gloo": "PyTorch's own",
            "driver": gpus.driver(),
        }

    def is_out_of_memory(self, error: BaseException) -> bool:
        if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
            return True
        return isinstance(error, (RuntimeError, OSError)) and memory.is_refusal(str(error))


def keep_freed_memory() -> None:
    """Have the C library keep what a step frees for the next one, which else gets every page from the kernel again."""
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):  # glibc
        trim_threshold, most_maps = -1, -4
        library.mallopt(trim_threshold, -1)
        library.mallopt(most_maps, 0)
