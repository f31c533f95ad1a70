"""Collective operations of all ranks of a run, framework-neutral: all-reduce, all-gather, reduce-scatter, all-to-all.

A call has no batch: every rank takes part in it with its buffers. A step of the run is one call at the largest size,
which counts once, however many ranks make it together.
The run measures the bandwidths at every size. Sizes and bandwidths have the definitions of NVIDIA's nccl-tests
(doc/PERFORMANCE.md there):

    algorithm bandwidth = S / t                     S: bytes of the whole operation; t: seconds of a call
    bus bandwidth = algorithm bandwidth x factor    factor: the least that a rank has to send, divided by S

S counts the bytes that a rank puts into an all-reduce, reduce-scatter or all-to-all, or gets from an all-gather.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from throughline.spec import Part, RunSpec, key
from throughline.workloads import Figure, Values
from throughline.workloads.untrained import Untrained

USUAL = tuple(1024 * 4**power for power in range(11))
"""1 KiB to 1 GiB."""
LARGEST = {"cpu": 1 << 20, "cuda": USUAL[-1]}
"""Map each kind of device to the largest of the usual sizes there."""


@dataclass(frozen=True)
class Parameters(Part):
    one_call_since: ClassVar[int] = 4
    """A call of all ranks counts once. The protocol of these runs is at least this one."""

    sizes: tuple[int, ...] = key(
        "bytes of the operation. []: 1 KiB to 1 GiB, on a CPU to 1 MiB, in steps of four",
        default=(),
        strict=False,
    )
    min_seconds: float = key("shortest time for each size", default=3.0, least=0.01)


def sizes(spec: RunSpec[Parameters], kind: str) -> list[int]:
    """Return the sizes of a run on a kind of device, the largest last."""
    return sorted(spec.parameters.sizes or (size for size in USUAL if size <= LARGEST[kind]))


def factor(model: str, ranks: int) -> float:
    """Return the bus bandwidth divided by the algorithm bandwidth."""
    return (2 if model == "all-reduce" else 1) * (ranks - 1) / ranks


class Collectives(Untrained[Parameters]):
    models = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
    parameters = Parameters
    unit = "calls"
    figures = (
        Figure("algorithm_bandwidth", "GB/s", "more", "bytes of the operation over the time of a call, by bytes"),
        Figure("bus_bandwidth", "GB/s", "more", "the least that a rank has to send over the same time, by bytes"),
    )
    settings = ("sizes", "operands", "caches", "timer")
    has_batch = False

    def flops_per_sample(self, spec: RunSpec[Parameters], facts: Values, counted: Values) -> float | str:
        return "measured by the bytes that each moves"

    def convention(self, spec: RunSpec[Parameters]) -> dict[str, str]:
        return {
            "bandwidth": "as nccl-tests define it: bytes of the operation over the time of a call (algorithm), and "
            "that times 2 (n - 1) / n for all-reduce and (n - 1) / n for the others, for n ranks (bus); 1 GB is 10^9 "
            "bytes",
            "flops": "none are counted; a step is one call at the largest size, and it counts once",
            "precision": "operands are kept in the run's precision",
        }


WORKLOAD = Collectives()
