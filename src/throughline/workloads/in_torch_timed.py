"""What the PyTorch forms share that are timed alone: their precision, their timer, and what they say of both."""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.benchmark import Timer

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
"""Precisions in which operands and weights are kept; fp32 and tf32 keep them in fp32."""
SETTINGS = {
    "operands": "random, from a standard normal distribution",
    "caches": "not flushed: every call has the same operands",
    "timer": "torch.utils.benchmark: the median of blocks that are long against the clock",
}


def dtype(spec: dict[str, Any]) -> torch.dtype:
    return DTYPES.get(spec["precision"], torch.float32)


def seconds(call: Callable[[], Any], at_least_s: float) -> float:
    """Median seconds of a call. The timer waits for the GPU, and warms up while it looks for the length of a block."""
    timer = Timer("call()", globals={"call": call}, num_threads=torch.get_num_threads())
    return float(timer.blocked_autorange(min_run_time=at_least_s).median)
