"""The parts of a node in PyTorch, with the operands and timers of the workloads that measure each of them alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from throughline.spec import RunSpec
from throughline.workloads import Form, Unsupported, Values, collectives, in_torch_timed
from throughline.workloads.collectives.in_torch import Operation
from throughline.workloads.micro import DISK
from throughline.workloads.micro.in_torch import Disk, copies, matmul, vector
from throughline.workloads.node_parts import Parameters

Figures = list[tuple[str, Any, float | None]]
MEASURED = ("matmul", "vector_memory", "host_to_device", "device_to_host")
"""The figures of a device alone."""


class Parts(nn.Module):
    """Calling the network is a step: one matrix product. `round` measures everything once."""

    def __init__(self, spec: RunSpec[Parameters], at: torch.device) -> None:
        super().__init__()
        asked, fp32 = spec.parameters, torch.float32
        self.rounds, self.min_seconds, self.at = asked.rounds, asked.min_seconds, at
        product = matmul(asked.rows, at, in_torch_timed.dtype(spec))
        self.product, _ = product["matmul"]
        self.alone = [(asked.rows, product), (asked.elements, vector(asked.elements, at, fp32))]
        if at.type != "cpu":
            self.alone.append((asked.copied, copies(asked.copied, at, fp32)))
        self.is_first = os.environ.get("LOCAL_RANK", "0") == "0"
        self.disk = Disk([asked.written], asked.min_seconds, asked.disk_folder)
        self.file_system = self.disk.stated["file_system"] if asked.written else None
        self.together: Operation | None = None
        if dist.is_initialized():
            sizes = collectives.Parameters(asked.exchanged, asked.min_seconds)
            plain: RunSpec[Any] = spec
            self.together = Operation(replace(plain, model="all-reduce", precision="fp32", parameters=sizes), at)

    def forward(self) -> None:
        self.product()

    def round(self) -> Iterator[tuple[str, Any, float | None]]:
        """Yield each figure once. All ranks begin each part together."""
        for size, made in self.alone:
            if self.together:
                dist.barrier()
            for name, (call, amount) in made.items():
                if name in MEASURED:
                    yield name, size, amount / in_torch_timed.seconds(call, self.min_seconds, self.at)
        for size in filter(None, self.disk.sizes):
            yield from (self.disk.figures(size) if self.is_first else ((figure.name, size, None) for figure in DISK))
        if self.together is None:
            return
        for size in self.together.sizes:
            call, moved = self.together.made(size)
            rate = moved / 1e9 / self.together.seconds(call, moved)
            yield "algorithm_bandwidth", size, rate
            yield "bus_bandwidth", size, rate * collectives.factor("all-reduce", self.together.ranks)


class NodePartsInTorch(Form[Parameters, Parts]):
    def build(self, spec: RunSpec[Parameters], facts: Values, at: torch.device = in_torch_timed.CPU) -> Parts:
        if spec.precision == "tf32":
            raise Unsupported("node-parts measures fp32, bf16 or fp16")
        return Parts(spec, at)

    def settings(self, network: Parts) -> dict[str, Any]:
        return in_torch_timed.SETTINGS | {"file_system": network.file_system}

    def figures(self, network: Parts) -> Figures:
        return [figure for _ in range(network.rounds) for figure in network.round()]


FORM = NodePartsInTorch()
