"""Build a model on its device with the random weights that a CPU draws.

Runs on a CPU and on a GPU start from equal weights, because the CPU draws them for both. Whole models of all ranks
would fill main memory, so parameters are made on the device, and only the tensor that is drawn is on the CPU.
"""

from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

ATEN = torch.ops.aten
DRAWS = (ATEN.normal_.default, ATEN.uniform_.default, ATEN.bernoulli_.float, ATEN.exponential_.default)
"""The operations that fill a tensor with random numbers, as torch.nn.init calls them."""


class DrawnOnCpu(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within this context a CPU draws the random numbers of tensors on a device of this kind, with its generator."""

    def __init__(self, kind: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kind = kind

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in DRAWS or args[0].device.type != self.kind:
            return func(*args, **(kwargs or {}))
        filled, rest = args[0], args[1:]
        drawn = torch.empty(filled.shape, dtype=filled.dtype, device="cpu")
        func(drawn, *rest, **(kwargs or {}))
        return filled.copy_(drawn)


def on_device(at: torch.device) -> AbstractContextManager[Any]:
    """Return a context in which modules are made on `at`, with the weights that a CPU draws."""
    if at.type == "cpu":
        return nullcontext()
    stack = ExitStack()
    stack.enter_context(at)
    stack.enter_context(DrawnOnCpu(at.type))
    return stack
