"""Collective operations of all ranks of a run, framework-neutral: all-reduce, all-gather, reduce-scatter, all-to-all.

A call has no batch: every rank takes part in it with its buffers. A step of the run is one call at the largest size.
The run measures the bandwidths at every size. Sizes and bandwidths have the definitions of NVIDIA's nccl-tests
(doc/PERFORMANCE.md there):

    algorithm bandwidth = S / t                     S: bytes of the whole operation; t: seconds of a call
    bus bandwidth = algorithm bandwidth x factor    factor: the least that a rank has to send, divided by S

S counts the bytes that a rank puts into an all-reduce, reduce-scatter or all-to-all, or gets from an all-gather.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from throughline.workloads import Figure, key
from throughline.workloads.untrained import *  # noqa: F403  (shared by all workloads that train nothing)

MODELS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
USUAL = tuple(1024 * 4**power for power in range(11))
"""1 KiB to 1 GiB."""
LARGEST = {"cpu": 1 << 20, "cuda": USUAL[-1]}
"""Map each kind of device to the largest of the usual sizes there."""
HAS_BATCH = False
UNIT = "calls"
UNITS: dict[str, Callable[[Any], float]] = {}
FIGURES = (
    Figure("algorithm_bandwidth", "GB/s", "more", "bytes of the operation over the time of a call, by bytes"),
    Figure("bus_bandwidth", "GB/s", "more", "the least that a rank has to send over the same time, by bytes"),
)
SETTINGS = ("sizes", "operands", "caches", "timer")


@dataclass(frozen=True)
class Parameters:
    sizes: tuple[int, ...] = key(
        "bytes of the operation. With an empty list: 1 KiB to 1 GiB, on a CPU to 1 MiB, in steps of four", default=()
    )
    at_least_s: float = key("the shortest time, in seconds, that each size is measured for", default=3.0, least=0.01)


def sizes(spec: Mapping[str, Any], kind: str) -> list[int]:
    """Return the sizes of a run on a kind of device, the largest last."""
    return sorted(spec["sizes"] or (size for size in USUAL if size <= LARGEST[kind]))


def factor(model: str, ranks: int) -> float:
    """Return the bus bandwidth divided by the algorithm bandwidth."""
    return (2 if model == "all-reduce" else 1) * (ranks - 1) / ranks


def intensity(spec: Mapping[str, Any], figure: str, at: int) -> None:
    """Return None: the figures are no rates of FLOPs."""


def flops_per_sample(spec: Mapping[str, Any], facts: Mapping[str, Any], counted: Mapping[str, float]) -> str:
    return "a collective operation is measured by the bytes that it moves"


def convention(spec: Mapping[str, Any]) -> dict[str, str]:
    return {
        "bandwidth": "as nccl-tests define it: bytes of the operation over the time of a call (algorithm), and "
        "that times 2 (n - 1) / n for all-reduce and (n - 1) / n for the others, for n ranks (bus); 1 GB is 10^9 bytes",
        "flops": "none are counted; a step is one call at the largest size, and every rank's call counts",
        "precision": "operands are kept in the run's precision",
    }
