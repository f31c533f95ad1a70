"""Collective operations in PyTorch, over the ranks of the run: gloo on CPUs, NCCL on GPUs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from throughline.spec import RunSpec
from throughline.workloads import Form, Unsupported, Values, in_torch_timed
from throughline.workloads.collectives import Parameters, factor, sizes
from throughline.workloads.in_torch_operations import all_gather_single, reduce_scatter_single

SMALL_BYTES = 4 << 20
"""Operations up to this size are timed in a CUDA graph: larger ones take longer than Python takes to launch them."""
OPERANDS = "random, from a standard normal distribution; zeros for all-reduce, so that sums stay finite"


class Operation(nn.Module):
    """A collective operation. `made` returns the call for a size. Calling the network is a step: one call at the
    largest size."""

    timer = in_torch_timed.TOGETHER
    """How the operations were timed, in words."""

    def __init__(self, spec: RunSpec[Parameters], at: torch.device) -> None:
        super().__init__()
        self.model, self.at, self.dtype = spec.model, at, in_torch_timed.dtype(spec)
        self.sizes, self.min_seconds = sizes(spec, at.type), float(spec.parameters.min_seconds)
        self.ranks = dist.get_world_size()
        self.largest, _ = self.made(self.sizes[-1])

    def made(self, size: int) -> tuple[Callable[[], Any], int]:
        """Return a call of about `size` bytes, and its exact bytes. Ranks have equal parts, of at least one number."""
        each = max(1, round(size / self.dtype.itemsize / self.ranks))
        whole, part = (torch.randn(count, device=self.at).to(self.dtype) for count in (each * self.ranks, each))
        call = {
            "all-reduce": partial(dist.all_reduce, torch.zeros_like(whole)),
            "all-gather": partial(all_gather_single, whole, part),
            "reduce-scatter": partial(reduce_scatter_single, part, whole),
            "all-to-all": partial(dist.all_to_all_single, torch.empty_like(whole), whole),
        }[self.model]
        return call, whole.nbytes

    def seconds(self, call: Callable[[], Any], moved: int) -> float:
        """Return the median seconds of a call. On a GPU, small messages are sent from a CUDA graph."""
        if self.at.type == "cpu" or moved > SMALL_BYTES:
            return in_torch_timed.together(call, self.min_seconds, self.at)
        small = f"up to {SMALL_BYTES >> 20} MiB"
        try:
            calls, count = in_torch_timed.recorded(call, self.at), in_torch_timed.RECORDED
            how = f"{small}, a CUDA graph of {count} calls is replayed"
        except RuntimeError as error:
            calls, count = call, 1
            how = f"{small}, Python launches each call, because no CUDA graph can hold it: {str(error).splitlines()[0]}"
        self.timer = f"{in_torch_timed.TOGETHER}; {how}"
        return in_torch_timed.together(calls, self.min_seconds, self.at) / count

    def forward(self) -> None:
        self.largest()


class CollectivesInTorch(Form[Parameters, Operation]):
    def build(self, spec: RunSpec[Parameters], facts: Values, at: torch.device = in_torch_timed.CPU) -> Operation:
        if not dist.is_initialized():
            raise Unsupported(f"{spec.model} needs several ranks, and this topology has one: choose 1n2g or more")
        if spec.precision == "tf32":
            raise Unsupported(f"{spec.model} has no matrix product, and tf32 is only for matrix products")
        return Operation(spec, at)

    def settings(self, network: Operation) -> dict[str, Any]:
        return {
            "sizes": network.sizes,
            **in_torch_timed.SETTINGS,
            "operands": OPERANDS,
            "timer": network.timer,
        }

    def figures(self, network: Operation) -> list[tuple[str, Any, float | None]]:
        figures: list[tuple[str, Any, float | None]] = []
        for size in network.sizes:
            call, moved = network.made(size)
            rate = moved / 1e9 / network.seconds(call, moved)
            figures.append(("algorithm_bandwidth", size, rate))
            figures.append(("bus_bandwidth", size, rate * factor(network.model, network.ranks)))
        return figures


FORM = CollectivesInTorch()
