"""Micro-benchmarks in PyTorch."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from throughline import disk
from throughline.spec import RunSpec
from throughline.workloads import Form, Unsupported, Values, in_torch_timed
from throughline.workloads.in_torch_timed import CPU, random
from throughline.workloads.micro import DISK, Parameters, flops, sizes

Call = Callable[[], Any]
Value = tuple[str, Any, float | None]
Made = dict[str, tuple[Call, float]]
"""Map a figure to a call, and to the TFLOP or GB of one call. Two figures may share a call."""

FACTOR = 1.2
"""The number by which `vector` multiplies."""


class Test(nn.Module):
    """A micro-benchmark. `tests` returns the calls for a size. Calling the network is a step: all calls at the largest
    size."""

    def __init__(self, spec: RunSpec[Parameters], at: torch.device) -> None:
        super().__init__()
        self.sizes, self.min_seconds, self.at = sizes(spec), float(spec.parameters.min_seconds), at
        make = {"matmul": matmul, "vector": vector, "copies": copies}[spec.model]
        self.tests: Callable[[int], Made] = partial(make, at=at, dtype=in_torch_timed.dtype(spec))
        self.largest = dict.fromkeys(call for call, _ in self.tests(self.sizes[-1]).values())
        self.stated: dict[str, Any] = {"sizes": self.sizes, **in_torch_timed.SETTINGS}

    def forward(self) -> None:
        for call in self.largest:
            call()

    def figures(self, size: int) -> Iterator[Value]:
        seconds: dict[Call, float] = {}
        for name, (call, amount) in self.tests(size).items():
            seconds[call] = seconds.get(call) or in_torch_timed.seconds(call, self.min_seconds, self.at)
            yield name, size, amount / seconds[call]


class Disk(nn.Module):
    """The disk of a node. Calling the network is a step: the largest file is written and read once."""

    def __init__(self, sizes: Sequence[int], min_seconds: float, folder: str) -> None:
        super().__init__()
        self.sizes, self.min_seconds, self.folder = sizes, min_seconds, Path(folder or tempfile.gettempdir())
        self.stated = {
            "sizes": sizes,
            "operands": "random bytes",
            "caches": "the file is dropped from the page cache before it is read; without a figure, it stayed there",
            "timer": f"time.monotonic, with syncs of up to {disk.MOST >> 20} MiB; none begins after {disk.LONG_S:g} s",
            "file_system": disk.file_system(self.folder),
        }

    def forward(self) -> None:
        disk.write_and_read(self.folder, self.sizes[-1])

    def figures(self, size: int) -> Iterator[Value]:
        for figure, rate in zip(DISK, disk.rates(self.folder, size, self.min_seconds), strict=True):
            yield figure.name, size, rate


def matmul(size: int, at: torch.device, dtype: torch.dtype) -> Made:
    return {"matmul": (in_torch_timed.product(size, at, dtype), flops("matmul", size) / 1e12)}


def vector(size: int, at: torch.device, dtype: torch.dtype) -> Made:
    factors, products = (random(size, at=at, dtype=dtype) for _ in range(2))
    call = partial(torch.mul, factors, FACTOR, out=products)
    moved = factors.nbytes + products.nbytes
    return {"vector": (call, flops("vector", size) / 1e12), "vector_memory": (call, moved / 1e9)}


def copies(size: int, at: torch.device, dtype: torch.dtype) -> Made:
    """Return the copies of `size` bytes, whatever the precision. A CPU only copies within its memory."""
    here, there = (random(-(-size // 4), at=at, dtype=torch.float32) for _ in range(2))
    calls: Made = {"within_device": (partial(there.copy_, here), 2 * here.nbytes / 1e9)}
    if at.type == "cpu":
        return calls
    host = here.cpu().pin_memory()
    return {
        "host_to_device": (partial(here.copy_, host, non_blocking=True), host.nbytes / 1e9),
        "device_to_host": (partial(host.copy_, there, non_blocking=True), host.nbytes / 1e9),
        **calls,
    }


class MicroInTorch(Form[Parameters, Test | Disk]):
    def build(self, spec: RunSpec[Parameters], facts: Values, at: torch.device = CPU) -> Test | Disk:
        precision, model = spec.precision, spec.model
        if precision in ("tf32", "fp8") and model != "matmul":
            raise Unsupported(f"{model} has no matrix product, and {precision} is only for matrix products")
        if odd := [size for size in sizes(spec) if precision == "fp8" and size % 16]:
            raise Unsupported(f"a product in fp8 has rows and columns in multiples of 16, and sizes has {odd[0]}")
        asked = spec.parameters
        return Disk(sizes(spec), asked.min_seconds, asked.disk_folder) if model == "disk" else Test(spec, at)

    def settings(self, network: Test | Disk) -> dict[str, Any]:
        return network.stated

    def figures(self, network: Test | Disk) -> list[Value]:
        return [figure for size in network.sizes for figure in network.figures(size)]


FORM = MicroInTorch()
