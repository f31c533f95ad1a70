"""`options.cuda_graph: step`: a whole optimizer step is recorded once as a CUDA graph and then replayed with one call.

The recording holds the passes, the exchange of gradients, the loss scaler, clipping and the update.

All batches must have the same shapes, because a graph reads the memory into which each batch is copied. Nothing that is
recorded may depend on a value that the host knows: a graph would keep the value of its recording. So the learning rate
becomes a tensor (`hold_rate_on_device`).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from throughline.frameworks.rank import refuse_if
from throughline.frameworks.torch import sharding
from throughline.spec import Options

Batch = dict[str, Tensor]
Work = Callable[[list[Batch]], Tensor]
"""Takes the micro-batches of a step, and returns their mean loss."""

FIRST = 3
"""Number of passes before the recording, in which libraries and compilers choose their kernels."""
FIRST_OF_SEVERAL = 11
"""The same with DistributedDataParallel, which measures its own parts in its first ten passes. PyTorch asks for 11."""


def refuse(options: Options, kind: str) -> None:
    """Raise Unsupported if a step cannot be recorded with these options."""
    refuse_if(kind != "cuda", "a CUDA graph exists on GPUs only")
    anew = "a recomputation reads the state of the random numbers, which nothing can while a CUDA graph is recorded"
    refuse_if(bool(options.activation_checkpointing), anew)
    refuse_if(options.remove_padding is True, "without padding every batch has another shape, and a CUDA graph has one")
    refuse_if(
        options.sharding in sharding.WEIGHTS,
        "PyTorch documents how a step with DistributedDataParallel is recorded, and not one with FSDP2. With "
        "options.cuda_graph: step, options.sharding can only be `none` or `zero1`",
    )
    refuse_if(
        options.tensor_parallel > 1,
        "options.cuda_graph: step records ranks with whole replicas, without options.tensor_parallel",
    )


class CudaGraph:
    """Work that is recorded as a CUDA graph. Replays overwrite `result`, which is what it returned.

    peak_bytes: the allocator's peak during the recording. A replay allocates nothing, so later peaks do not have it.
    """

    def __init__(self, work: Callable[[], Tensor], aside: Any) -> None:
        graph = torch.cuda.CUDAGraph()
        torch.cuda.reset_peak_memory_stats()
        # `thread_local`, because the loader's thread may allocate memory during the recording.
        with torch.cuda.graph(graph, stream=aside, capture_error_mode="thread_local"):
            self.result = work()
        self.peak_bytes, self.replay = torch.cuda.max_memory_allocated(), graph.replay


class ReplayedStep:
    """The function `step`, a whole optimizer step that drops its gradients at the end.

    The first call makes a step without a graph, so that the optimizer's states exist, and then records the step, which
    computes nothing. The passes before restore the random numbers and the buffers that training changes, so a resumed
    training continues as if it had not been interrupted. Later calls copy the batches in and replay the step.
    """

    graph: Any = None
    """The recording. It has `replay` and `result`."""

    def __init__(
        self,
        step: Work,
        update: Any,
        first: int,
        passes: Work,
        parameters: Sequence[Tensor],
        changing: Sequence[Tensor] = (),
        aside: Any = None,
        record: Callable[[Callable[[], Tensor], Any], Any] = CudaGraph,
    ) -> None:
        """`first`: how many times `passes` runs before the step. `aside`: the stream on which everything before the
        recording runs; None: the current one, on a CPU."""
        self.step, self.update, self.first = step, update, first
        self.passes, self.parameters, self.changing = passes, parameters, changing
        self.aside, self.record = aside, record
        self.peaks_before = (0, 0)

    @property
    def words(self) -> str:
        """The words of a record for what is recorded, and after what."""
        return f"the whole step, after {self.first} passes without an update and one step without a graph"

    def __call__(self, batches: list[Batch]) -> Tensor:
        if self.graph is None:
            return self._record(batches)
        copy_into(self.inputs, batches)
        self.graph.replay()
        loss: Tensor = self.graph.result.clone()
        return loss

    @property
    def peak_bytes(self) -> int:
        """The peak of memory that a replay needs."""
        return self.graph.peak_bytes if self.graph else 0

    def forget(self) -> None:
        """Record anew at the next call, because tensors that the recording uses have been replaced."""
        self.graph = None

    def _record(self, batches: list[Batch]) -> Tensor:
        with beside(self.aside):
            self._warm_up(batches)
            hold_rate_on_device(self.update, self.inputs)
            loss = self.step(self.inputs)
        allow_recording(self.update)
        if self.aside is not None:
            self.peaks_before = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
        self.graph = self.record(lambda: self.step(self.inputs), self.aside)
        return loss

    def _warm_up(self, batches: list[Batch]) -> None:
        self.inputs = [{name: tensor.clone() for name, tensor in batch.items()} for batch in batches]
        at = next(tensor.device for tensor in self.inputs[0].values())
        buffers = [buffer.clone() for buffer in self.changing]
        with torch.random.fork_rng([at] if at.type == "cuda" else []):
            for _ in range(self.first):
                self.passes(self.inputs)
                for parameter in self.parameters:
                    parameter.grad = None
        for buffer, before in zip(self.changing, buffers, strict=True):
            buffer.copy_(before)


@contextmanager
def beside(stream: Any) -> Iterator[None]:
    """Run what follows on another stream; None: on the current one.

    PyTorch adds a gradient on the stream on which its parameter was first used. In a recording it must not be the
    default stream, which waits for all others.
    """
    if stream is None:
        yield
        return
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        yield
    torch.cuda.current_stream().wait_stream(stream)


def copy_into(kept: list[Batch], given: list[Batch]) -> None:
    """Copy the batches into the memory that a recording reads. Raise ValueError if a shape differs."""
    for into, batch in zip(kept, given, strict=True):
        shapes = [{name: tuple(tensor.shape) for name, tensor in each.items()} for each in (into, batch)]
        if shapes[0] != shapes[1]:
            raise ValueError(f"a CUDA graph was recorded for {shapes[0]}, and this batch has {shapes[1]}")
        for name, tensor in batch.items():
            into[name].copy_(tensor)


def hold_rate_on_device(update: Any, like: list[Batch]) -> None:
    """Let an optimizer read its learning rate from a tensor on the device, which all its groups share."""
    at = next(tensor.device for tensor in like[0].values())
    rates: dict[float, Tensor] = {}
    for group in update.param_groups:
        rate = group["lr"]
        if not isinstance(rate, Tensor):
            group["lr"] = rates.setdefault(rate, torch.full((), rate, dtype=torch.float32, device=at))


def allow_recording(update: Any) -> None:
    """Tell Adam and AdamW that they may be recorded. Their fused kernels do the same as before."""
    for group in update.param_groups:
        if "capturable" in group:
            group["capturable"] = group["params"][0].device.type != "cpu"


def set_rate(update: Any, rate: float) -> None:
    """Set the learning rate of an optimizer, in the memory that a recording reads if there is one."""
    tensors = {id(group["lr"]): group["lr"] for group in update.param_groups if isinstance(group["lr"], Tensor)}
    for tensor in tensors.values():
        tensor.fill_(rate)
    for group in update.param_groups:
        if not isinstance(group["lr"], Tensor):
            group["lr"] = rate


def rate_of(group: dict[str, Any]) -> float:
    """Return the learning rate of a group: of a tensor, the shortest decimal number that it stands for."""
    rate = group["lr"]
    return float(str(np.float32(rate.item()))) if isinstance(rate, Tensor) else rate
