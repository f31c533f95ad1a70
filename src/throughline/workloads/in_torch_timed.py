"""Operands and timers for operations in PyTorch that are timed alone, and the settings that they state."""

import math
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from throughline.spec import RunSpec

CPU = torch.device("cpu")
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp8": torch.float8_e4m3fn}
"""The type of operands and weights by precision. For fp32 and tf32 it is fp32."""
SETTINGS = {
    "operands": "random, from a standard normal distribution",
    "caches": "not flushed: every call has the same operands",
    "timer": "torch.utils.benchmark: the median of blocks that are long compared with the clock's resolution, and on a "
    "CPU with time slices",
}
TOGETHER = "the median of blocks of calls that all ranks make together; each block counts with its slowest rank"
"""The timer of `together`, in words."""
RECORDED = 20
"""How many calls `recorded` puts into one CUDA graph."""
BLOCKS = 5


def dtype(spec: RunSpec[Any]) -> torch.dtype:
    return DTYPES.get(spec.precision, torch.float32)


def random(*shape: int, at: torch.device, dtype: torch.dtype) -> Tensor:
    return torch.randn(*shape, device=at).to(dtype)


def product(size: int, at: torch.device, dtype: torch.dtype) -> Callable[[], Any]:
    """Return a function that multiplies two random size x size matrices and does not wait for the device."""
    left, right = (random(size, size, at=at, dtype=dtype) for _ in range(2))
    if dtype != DTYPES["fp8"]:
        return partial(torch.mm, left, right, out=torch.empty_like(left))
    scale, result = torch.ones((), device=at), torch.empty(size, size, device=at, dtype=torch.bfloat16)
    call: Any = torch._scaled_mm  # it wants the second matrix in column-major order
    return partial(call, left, right.t(), scale, scale, out_dtype=result.dtype, use_fast_accum=True, out=result)


def seconds(call: Callable[[], Any], min_seconds: float, at: torch.device) -> float:
    """Return the median seconds of a call. The timer waits for the GPU, and warms up while it looks for a block's
    length.

    On a CPU, other processes and quotas take time away in pieces of some milliseconds, which the median of shorter
    blocks would not see. So there a block is a fifth of `min_seconds`, except where a single call is longer.
    """
    from torch.utils.benchmark import Timer  # only here: importing it takes half as long as importing PyTorch

    timer, block_s = Timer("call()", globals={"call": call}, num_threads=torch.get_num_threads()), min_seconds / BLOCKS
    calls = math.ceil(block_s / timer.blocked_autorange(min_run_time=block_s).mean) if at.type == "cpu" else 1
    if calls > 1:
        return statistics.median(timer.timeit(calls).mean for _ in range(BLOCKS))
    return float(timer.blocked_autorange(min_run_time=min_seconds).median)


def together(call: Callable[[], Any], min_seconds: float, at: torch.device) -> float:
    """Return the median seconds of a call that needs every rank. All ranks make the same number of calls, and get the
    same figure."""

    def block(calls: int) -> float:
        _idle(at)
        dist.barrier()
        start = time.monotonic()
        for _ in range(calls):
            call()
        _idle(at)
        slowest = torch.tensor((time.monotonic() - start) / calls, dtype=torch.float64, device=at)
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        return float(slowest)

    block(1)  # a first call may have to set up something
    calls = max(1, math.ceil(min_seconds / BLOCKS / block(2)))
    return statistics.median(block(calls) for _ in range(BLOCKS))


def recorded(call: Callable[[], Any], at: torch.device) -> Callable[[], Any]:
    """Return a function that replays RECORDED calls as one CUDA graph. RuntimeError if a library cannot be recorded.

    Python takes longer to launch a small message than a GPU to send it. A replay launches all calls at once.
    """
    graph = torch.cuda.CUDAGraph()
    call()  # the first call may set up something that cannot be recorded
    _idle(at)
    # `thread_local`, because a thread of PyTorch's own looks at the state of earlier messages meanwhile.
    aside: Any = torch.cuda.Stream(at)  # type: ignore[no-untyped-call]
    with torch.cuda.graph(graph, stream=aside, capture_error_mode="thread_local"):
        for _ in range(RECORDED):
            call()
    return graph.replay


def _idle(at: torch.device) -> None:
    if at.type == "cuda":
        torch.cuda.synchronize(at)
