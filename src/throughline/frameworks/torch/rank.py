"""What the frameworks on PyTorch share: a rank's device, batches, precision, marks and memory.

How ranks meet and exchange gradients differs from framework to framework.
"""

import ctypes
import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from throughline import gpus, memory
from throughline.frameworks.rank import Rank, optimizer_settings, refuse_if
from throughline.frameworks.torch import products
from throughline.frameworks.torch.building import on_device
from throughline.frameworks.torch.norms import clip, norms_here
from throughline.frameworks.torch.optimizers import build
from throughline.frameworks.torch.parallel import norms_of_whole, share_overflow
from throughline.frameworks.torch.recorded import Batch, ReplayedStep, rate_of, set_rate
from throughline.spec import RunSpec
from throughline.workloads import in_torch_compiler, in_torch_timed
from throughline.workloads.in_torch_tensor_parallel import TensorGroup

HALF = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp8": torch.bfloat16}
"""Map the precisions in which activations have another type than the weights to this type. Only products are in
fp8."""
CHECKPOINTED = {"weights": "network", "optimizer": "update", "scaler": "scaler"}
"""Map each part of a checkpoint to the attribute whose state it holds."""

Travelling = tuple[Batch, Any]
"""A batch on its way to the device, and the event of its arrival. On a CPU the event is None."""


class TorchRank(Rank):
    """The part of a rank that does not depend on how ranks talk to each other."""

    tensor: TensorGroup | None = None
    """The ranks that share this rank's replica, if a replica is split over several ranks."""
    experts: TensorGroup | None = None
    """The ranks that share experts with this one, if each holds a part of them."""
    together: TensorGroup | None = None
    """All ranks, if the implementation exchanges some of the parameters itself."""
    spread: frozenset[str] = frozenset()
    """The names of the parameters that the implementation exchanges itself."""
    shared_by: Callable[..., torch.optim.Optimizer] | None = None
    """A function that makes an optimizer that is divided among the ranks (see `optimizers.build`), or None."""
    recorded: ReplayedStep | None = None
    """What replays whole steps as a CUDA graph, or None."""
    in_parts = False
    """True if this rank has only a part of each weight, and gathers whole ones for a pass."""
    compiler: Callable[[], str] | None = None
    """Returns the words of a record for how the network was compiled; None: it was not, or not by us."""
    before: tuple[int, int] | None = None
    """The peaks of a GPU's memory until the timed window began."""
    takes_from_gpu = True
    keeps_freed_memory = True
    """True if a step on a CPU reuses the memory that the step before has freed (see `keep_freed_memory`)."""

    def __init__(self, spec: RunSpec, rank: int, local_rank: int, world: int, kind: str) -> None:
        super().__init__(spec, rank, local_rank, world, kind)
        self.at = torch.device(kind, local_rank) if kind == "cuda" else torch.device("cpu")

    def device(self) -> None:
        precision = self.spec.precision
        if self.kind == "cuda":
            torch.cuda.set_device(self.at)
            least = {"tf32": (8, 0), "bf16": (8, 0), "fp8": (8, 9)}.get(precision, (0, 0))
            too_old = torch.cuda.get_device_capability(self.at) < least
            refuse_if(too_old, f"{torch.cuda.get_device_name(self.at)} has no {precision} units")
            torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
            torch.backends.cudnn.allow_tf32 = precision == "tf32"
            self.copies: Any = torch.cuda.Stream(self.at)  # type: ignore[no-untyped-call]
        else:
            refuse_if(precision == "tf32", "tf32 exists on GPUs only")
            no_product = "PyTorch has no fast product in fp8 on a CPU; GPUs have it from Ada and Hopper on"
            refuse_if(precision == "fp8", no_product)
            refuse_if(
                self.options.remove_padding is True and bool(self.options.compile),
                "on a CPU, attention without padding has other shapes in every step, and a compiler would compile "
                "each of them",
            )
            torch.set_num_threads(self.spec.threads)
            if self.keeps_freed_memory:
                keep_freed_memory()
            if self.emulates:
                products.compute_in_fp32()
        torch.manual_seed(self.spec.seed)

    @property
    def emulates(self) -> bool:
        """True if the products of a training are computed in fp32 and rounded. Tests of a device use its own."""
        return self.kind == "cpu" and self.trains and products.slow(HALF.get(self.spec.precision))

    def model(self, facts: dict[str, Any]) -> None:
        """Build the model. Afterwards every replica draws its own dropout. A step calls `parallel`: the network, or a
        framework's wrapper around it."""
        self.facts = facts
        network = self.built()
        self.network = self.parallel = network.to(self.at)
        self.parameters: list[Tensor] = list(self.network.parameters())
        parted = self.tensor or self.experts
        self.norms = norms_of_whole(parted, self.network) if parted else norms_here
        buffers = self.network.named_buffers()
        self.changing = {name: buffer for name, buffer in buffers if name.rpartition(".")[2] in self.form.changing}
        self.network.half_type = HALF.get(self.spec.precision)
        if self.options.compile:
            several_lengths = self.options.remove_padding is True or self.network.several_lengths
            self.network.compile_parts(dynamic=several_lengths)
            self.compiler = partial(in_torch_compiler.words, None if several_lengths else False)
        torch.manual_seed(self.spec.seed + 1 + self.replica)

    def built(self) -> Any:
        """Return the network that the implementation builds, with its weights."""
        with nullcontext() if self.tensor or self.together else self.building():  # a split model need not fit whole
            network = self.form.build(self.spec, self.facts, self.at)
        self.divide(network)
        return network

    def divide(self, network: Any) -> None:
        """Leave this rank only its parts of those parameters that ranks share."""
        if self.tensor:
            self.form.split(network, self.tensor)
        if self.experts:
            self.spread = self.form.split_experts(network, self.experts)
        if self.together:
            self.spread = self.form.spread(network, self.together)

    def building(self) -> AbstractContextManager[Any]:
        """Return the context in which the implementation builds the model, so that main memory need not hold it."""
        return nullcontext() if self.form.draws_on_device or not self.trains else on_device(self.at)

    def data(self, arrays: dict[str, Any]) -> Travelling:
        if self.kind == "cpu":
            return {name: torch.from_numpy(array) for name, array in arrays.items()}, None
        # This runs in the loader's thread, before the batch is needed, and uses its own stream. A new thread starts on
        # GPU 0. Pinned memory belongs to the current GPU, and leaving a stream switches back to it. So without
        # `set_device` every rank would create a context on GPU 0 and use memory there.
        torch.cuda.set_device(self.at)
        with torch.cuda.stream(self.copies):
            sent = {name: self._sent(array) for name, array in arrays.items()}
            return sent, self.copies.record_event()

    def _sent(self, array: Any) -> Tensor:
        """Return an array of the host, or a tensor that a decoder has left on this GPU, in PyTorch's memory there.

        The decoder uses its tensor's memory again as soon as nobody holds it, and does not know PyTorch's streams. So
        the copy within the GPU is waited for, here in the loader's thread.
        """
        if isinstance(array, np.ndarray):
            return torch.from_numpy(array).pin_memory().to(self.at, non_blocking=True)
        copy = from_dlpack(array).clone()
        self.copies.synchronize()
        return copy

    def deliver(self, batch: Travelling) -> Batch:
        tensors, arrived = batch
        if arrived is not None:
            here: Any = torch.cuda.current_stream(self.at)
            here.wait_event(arrived)
            for tensor in tensors.values():
                tensor.record_stream(here)
        return tensors

    def optimizer(self) -> None:
        by_rows = self.form.by_rows(self.network)
        self.update: Any = build(self.spec.optimizer, self.parameters, self.norms, self.shared_by, by_rows)
        # The scale never grows within a run, so its halvings count the skipped steps, and no step waits for the device.
        fp16 = self.spec.precision == "fp16"
        self.scaler = torch.amp.GradScaler(self.kind, enabled=fp16, growth_interval=2**31 - 1)
        self.first_scale = self.scaler.get_scale()

    def passes(self, batches: list[Batch]) -> Tensor:
        """Run forward and backward for all micro-batches. Return the mean loss; the gradients are in the parameters."""
        total = torch.zeros((), device=self.at)
        for number, batch in enumerate(batches, 1):
            with self.exchange(number == len(batches)):
                with self.cast():
                    loss = self.parallel(**batch) / len(batches)
                self.scaler.scale(loss).backward()
            total += loss.detach()
        return total

    def cast(self) -> AbstractContextManager[Any]:
        """Return the context of a forward pass. It casts nothing: our networks enter autocast themselves."""
        return nullcontext()

    def exchange(self, last: bool) -> AbstractContextManager[Any]:
        """Return the context of a micro-batch's passes. Gradients are exchanged in the last one."""
        return nullcontext()

    def updating(self) -> AbstractContextManager[Any]:
        """Return the context of the optimizer's step."""
        return nullcontext()

    def set_rate(self, rate: float) -> None:
        set_rate(self.update, rate)

    def step(self, batches: list[Batch]) -> Tensor:
        return (self.recorded or self.whole)(batches)

    def whole(self, batches: list[Batch]) -> Tensor:
        """Make a step. All that it does on the device can be recorded."""
        total = self.passes(batches)
        others = self.tensor or self.experts or self.together  # they hold parts that this rank does not hold
        if self.options.clip != "none" or others:
            self.scaler.unscale_(self.update)
        if others:
            share_overflow(self.scaler, self.update, others)
        if self.options.clip != "none":
            clip(self.options.clip, self.parameters, self.norms)
        with self.updating():
            self.scaler.step(self.update)
        self.scaler.update()
        self.update.zero_grad()  # this drops the gradients
        return total

    def sync(self) -> None:
        if self.kind == "cuda":
            torch.cuda.synchronize(self.at)

    def event(self) -> Any:
        return torch.cuda.Event(enable_timing=True) if self.kind == "cuda" else None  # type: ignore[no-untyped-call]

    def window_opens(self) -> None:
        """Count the peaks anew, without waiting: in the first steps, cuDNN tries convolutions with larger
        workspaces."""
        if self.kind == "cuda":
            self.before = self._peaks()
            torch.cuda.reset_peak_memory_stats(self.at)

    def losses(self, values: list[Tensor]) -> list[float]:
        return [float(value) for value in torch.stack(values).tolist()] if values else []

    def skipped(self) -> int:
        return round(math.log2(self.first_scale / self.scaler.get_scale())) if self.scaler.is_enabled() else 0

    def memory(self) -> dict[str, Any]:
        if self.kind == "cpu":
            return memory.of_process()
        now = self._peaks()
        if self.before is None:
            return {"needed_bytes": now[0], "reserved_bytes": now[1], "reasons": {}}
        needed, reserved = map(max, self.before, now)
        return {"needed_bytes": needed, "reserved_bytes": reserved, "window_needed_bytes": now[0], "reasons": {}}

    def _peaks(self) -> tuple[int, int]:
        """Return the peaks of allocated and reserved bytes since the window opened, or since the start.

        A recorded step needs the memory of its recording, although it allocates nothing.
        """
        needed, reserved = torch.cuda.max_memory_allocated(self.at), torch.cuda.max_memory_reserved(self.at)
        if self.recorded is None:
            return needed, reserved
        earlier = self.recorded.peaks_before if self.before is None else (0, 0)
        return max(needed, self.recorded.peak_bytes, earlier[0]), max(reserved, earlier[1])

    def product(self, size: int) -> Callable[[], Any]:
        return in_torch_timed.product(size, self.at, in_torch_timed.dtype(self.spec))

    def multiplied(self, left: Any, right: Any) -> Any:
        kind = in_torch_timed.dtype(self.spec)
        if kind == in_torch_timed.DTYPES["fp8"]:
            return None
        with torch.no_grad():
            product = torch.mm(*(torch.from_numpy(matrix).to(self.at, kind) for matrix in (left, right)))
        return product.float().cpu().numpy()

    def settings(self) -> dict[str, Any]:
        settings = super().settings()
        if self.compiler:
            settings["compiler"] = self.compiler()
        if self.emulates:
            settings["emulated_products"] = products.words(HALF[self.spec.precision])
        return settings

    def update_settings(self) -> dict[str, Any]:
        matrices, vectors, *_ = self.update.param_groups
        if self.spec.optimizer.name == "sgd":
            constants = {"momentum": matrices["momentum"], "nesterov": matrices["nesterov"]}
        else:
            constants = {"betas": list(matrices["betas"]), "epsilon": matrices["eps"]}
        decays_vectors = vectors["weight_decay"] != 0.0
        return optimizer_settings(rate_of(matrices), matrices["weight_decay"], decays_vectors, **constants)

    def threads(self) -> int:
        return torch.get_num_threads()

    def from_cache(self) -> bool | None:
        if not self.options.compile:
            return None
        from torch._dynamo.utils import counters  # only here, because it takes a second

        seen = counters["inductor"]
        missed = seen["fxgraph_cache_miss"] + seen["fxgraph_cache_bypass"]
        return not missed if seen["fxgraph_cache_hit"] + missed else None

    def versions(self) -> dict[str, str | None]:
        cuda = self.kind == "cuda"
        libraries: Any = torch  # the functions for their versions have no types
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
        return isinstance(error, (RuntimeError, OSError)) and super().is_out_of_memory(error)

    def seed(self, value: int) -> None:
        torch.manual_seed(value)

    def save(self, stream: IO[bytes]) -> None:
        """Write the weights and the states of the optimizer and the loss scaler."""
        torch.save({part: getattr(self, name).state_dict() for part, name in CHECKPOINTED.items()}, stream)

    def restore(self, stream: IO[bytes], weights_alone: bool = False) -> None:
        """Read from a file what `save` has written. Only tensors and plain values are read, so it cannot run code."""
        states = torch.load(stream, map_location=self.at, weights_only=True)
        for part, name in CHECKPOINTED.items():
            if part == "weights" or not weights_alone:
                getattr(self, name).load_state_dict(states[part])
        if self.recorded:
            self.recorded.forget()  # the optimizer's states are other tensors now


def keep_freed_memory() -> None:
    """Let the C library keep the memory that a step frees. Otherwise each step gets all its pages from the kernel."""
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):  # glibc
        trim_threshold, most_maps = -1, -4
        library.mallopt(trim_threshold, -1)
        library.mallopt(most_maps, 0)
