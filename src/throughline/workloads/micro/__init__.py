"""Micro-benchmarks, framework-neutral: matrix product, product of a vector and a number, copies, a node's disk.

The sizes of `matmul` and `vector` are those of Mu Li's transformers-benchmarks (2022).

A call has no batch. A step of the run is one call at the largest size. The run measures its figures at every size.
Of `disk`, a call writes and reads a file (disk.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from throughline.spec import Part, RunSpec, key
from throughline.workloads import Figure, Values
from throughline.workloads.untrained import PRECISION, WIDTH, WITH_FP8, Untrained

SIZES = {
    "matmul": (128, 512, 2048, 8192),
    "vector": (65_536, 262_144, 1_048_576, 4_194_304),
    "copies": (65_536, 1_048_576, 16_777_216, 268_435_456),
    "disk": (268_435_456,),
}
"""Map each model to the sizes of a block that lists none: rows of a matrix, elements of a vector, bytes of a copy or of
a file."""
FOLDER = "where `disk` writes a file. '': the temporary folder of each node ($TMPDIR)"
DISK = (
    Figure("disk_write", "GB/s", "more", "a file to the disk, synced, by bytes"),
    Figure("disk_read", "GB/s", "more", "the file, dropped from the page cache before, by bytes"),
)


@dataclass(frozen=True)
class Parameters(Part):
    sizes: tuple[int, ...] = key(
        "rows of the matrices, elements of the vector, or bytes of a copy or a file. []: the model's usual sizes",
        default=(),
        strict=False,
    )
    min_seconds: float = key("shortest time for each size", default=3.0, least=0.01)
    disk_folder: str = key(FOLDER, default="")


def sizes(spec: RunSpec[Parameters]) -> list[int]:
    """Return the sizes of a run, the largest last."""
    return sorted(spec.parameters.sizes or SIZES[spec.model])


def flops(model: str, size: int) -> int:
    """Return the FLOPs of a call; a multiply-add is 2."""
    return {"matmul": 2 * size**3, "vector": size}.get(model, 0)


class Micro(Untrained[Parameters]):
    models = tuple(SIZES)
    parameters = Parameters
    libraries = WITH_FP8
    unit = "calls"
    figures = (
        Figure("matmul", "TFLOPS", "more", "product of n x n matrices, by n", "flops"),
        Figure("vector", "TFLOPS", "more", "product of n elements and a number, by n"),
        Figure("vector_memory", "GB/s", "more", "what that product reads and writes, by n", "memory"),
        Figure("host_to_device", "GB/s", "more", "copy from pinned memory to the GPU, by bytes"),
        Figure("device_to_host", "GB/s", "more", "copy from the GPU to pinned memory, by bytes"),
        Figure(
            "within_device", "GB/s", "more", "copy within the device's memory, read and written, by bytes", "memory"
        ),
        *DISK,
    )
    """`copies` measures three. The other models measure the figures whose names begin with the model's name."""
    settings = ("sizes", "operands", "caches", "timer")
    has_batch = False

    def intensity(self, spec: RunSpec[Parameters], figure: str, at: Any) -> float | None:
        """Return the FLOPs per byte that a call has to read or write; None if the figure is no rate of FLOPs."""
        width = WIDTH[spec.precision]
        return {"matmul": 2 * at / (3 * width), "vector": 1 / (2 * width)}.get(figure)

    def flops_per_sample(self, spec: RunSpec[Parameters], facts: Values, counted: Values) -> float | str:
        """Return the FLOPs of a step: one call at the largest size."""
        return flops(spec.model, sizes(spec)[-1]) or f"{spec.model} computes nothing"

    def convention(self, spec: RunSpec[Parameters]) -> dict[str, str]:
        each = {"matmul": "2 n^3", "vector": "n"}.get(spec.model, "none")
        return {
            "flops": f"{each} for a call, a multiply-add is 2; a step is one call at the largest size",
            **PRECISION,
            "fp8": "e4m3, with a scale of 1 for each matrix, fast accumulation, and a result in bf16",
        }


WORKLOAD = Micro()
