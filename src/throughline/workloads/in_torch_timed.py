"""What the PyTorch forms share that are timed alone: their operands, their timers, and what they say of them."""

import math
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp8": torch.float8_e4m3fn}
"""Precisions in which operands and weights are kept; fp32 and tf32 keep them in fp32."""
SETTINGS = {
    "operands": "random, from a standard normal distribution",
    "caches": "not flushed: every call has the same operands",
    "timer": "torch.utils.benchmark: the median of blocks that are long against the clock",
}
TOGETHER = "the median of blocks of calls that all ranks make at once; of each block the slowest rank counts"
"""How `together` times."""
BLOCKS = 5


def dtype(spec: dict[str, Any]) -> torch.dtype:
    return DTYPES.get(spec["precision"], torch.float32)


def random(*shape: int, at: torch.device, dtype: torch.dtype) -> Tensor:
    return torch.randn(*shape, device=at).to(dtype)


def product(size: int, at: torch.device, dtype: torch.dtype) -> Callable[[], Any]:
    """What multiplies two random size x size matrices, without waiting."""
    left, right = (random(size, size, at=at, dtype=dtype) for _ in range(2))
    if dtype != DTYPES["fp8"]:
        return partial(torch.mm, left, right, out=torch.empty_like(left))
    scale, result = torch.ones((), device=at), torch.empty(size, size, device=at, dtype=torch.bfloat16)
    call: Any = torch._scaled_mm  # its second matrix lies column by column
    return partial(call, left, right.t(), scale, scale, out_dtype=result.dtype, use_fast_accum=True, out=result)


def seconds(call: Callable[[], Any], at_least_s: float) -> float:
    """Median seconds of a call. The timer waits for the GPU, and warms up while it looks for the length of a block."""
    from torch.utils.benchmark import Timer  # only here: it takes as long as half of PyTorch

    timer = Timer("call()", globals={"call": call}, num_threads=torch.get_num_threads())
    return float(timer.blocked_autorange(min_run_time=at_least_s).median)


def together(call: Callable[[], Any], at_least_s: float, at: torch.device) -> float:
    """Median seconds of a call that needs every rank. All ranks make as many calls, and get the same figure."""

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

    block(1)  # whatever a first one has to set up
    calls = max(1, math.ceil(at_least_s / BLOCKS / block(2)))
    return statistics.median(block(calls) for _ in range(BLOCKS))


def _idle(at: torch.device) -> None:
    if at.type == "cuda":
        torch.cuda.synchronize(at)
