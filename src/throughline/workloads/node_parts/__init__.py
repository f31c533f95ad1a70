"""The parts of a node in one run, on all of its devices at once: matrix product, memory, copies, all-reduce, disk.

A quick acceptance measures them (study/acceptance.py).

The parts take turns, and each of `rounds` measures all of them once, so one start of the ranks gives several repeats of
every figure. The first rank of a node measures the disk. Memory, copies and all-reduce have numbers in fp32. A step of
the run is one matrix product.
"""

from __future__ import annotations

from dataclasses import dataclass

from throughline.spec import Part, RunSpec, key
from throughline.workloads import Figure, Values
from throughline.workloads.micro import DISK, FOLDER
from throughline.workloads.untrained import PRECISION, Untrained

SIZE = "elements of the vector that is multiplied by a number"


@dataclass(frozen=True)
class Parameters(Part):
    rows: int = key("rows of the matrices of the product", default=8192, least=1)
    elements: int = key(SIZE, default=1 << 28, least=1)
    copied: int = key("bytes of a copy to and from the host; a CPU makes none", default=1 << 28, least=1)
    exchanged: tuple[int, ...] = key(
        "bytes of the all-reduces of all ranks; one rank makes none", default=(1 << 10, 1 << 20, 1 << 30), strict=False
    )
    written: int = key("bytes of a file that is written and read; 0: none", default=1 << 28, least=0)
    disk_folder: str = key(FOLDER, default="")
    rounds: int = key("how often everything is measured", default=3, least=1)
    min_seconds: float = key("shortest time for each figure in each round", default=0.2, least=0.01)


class NodeParts(Untrained[Parameters]):
    models = ("node-parts",)
    parameters = Parameters
    unit = "calls"
    figures = (
        Figure("matmul", "TFLOPS", "more", "product of n x n matrices, by n", "flops"),
        Figure("vector_memory", "GB/s", "more", "what a product of n elements and a number reads and writes", "memory"),
        Figure("host_to_device", "GB/s", "more", "copy from pinned memory to the GPU, by bytes"),
        Figure("device_to_host", "GB/s", "more", "copy from the GPU to pinned memory, by bytes"),
        Figure("algorithm_bandwidth", "GB/s", "more", "bytes of an all-reduce over the time of a call, by bytes"),
        Figure("bus_bandwidth", "GB/s", "more", "the least that a rank has to send over the same time, by bytes"),
        *DISK,
    )
    settings = ("operands", "caches", "timer")
    has_batch = False
    ranks_have_figures = True

    def flops_per_sample(self, spec: RunSpec[Parameters], facts: Values, counted: Values) -> float | str:
        return 2 * spec.parameters.rows**3

    def convention(self, spec: RunSpec[Parameters]) -> dict[str, str]:
        return {"flops": "2 n^3 for a product, a multiply-add is 2; a step is one product", **PRECISION}


WORKLOAD = NodeParts()
