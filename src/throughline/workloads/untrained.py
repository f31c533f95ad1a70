"""The names that all workloads that train nothing have in common. Their neutral files import them.

A step is one call of the network that the form builds. There are no data, no losses, no optimizer and no exchange of
gradients. Several ranks make their calls at the same time, or make one call together (`collectives`). The measurements
of single sizes are figures.

Such a workload also has `intensity(spec, figure, at)`. It returns the FLOPs for each byte of a figure's call, for the
roofline, or None if there is no such number. `spec` has the model, precision, batch and the workload's parameters.
"""

from collections.abc import Mapping
from typing import Any

TRAINS = False
DATA = None
LIBRARIES = {"torch": frozenset({"devices", "nodes", "amp", "bf16"})}
NO_FORM = {"mxnet": "what a device reaches is measured with PyTorch alone"}
LEARNS_FROM = None
PRECISION = {"precision": "operands and weights are kept in the run's precision, without autocast"}
"""An entry of `convention`."""
WIDTH = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1}
"""Bytes of a number in memory."""
HELD_OUT: dict[str, bool] = {}
NO_PROOF = "it trains nothing, so there are no losses to compare"


def complete(values: Mapping[str, Any], section: Any) -> dict[str, Any]:
    return {}


def folder(parameters: Any) -> str:
    raise ValueError("it reads no data")


def fits(parameters: Any, manifest: Mapping[str, Any]) -> str | None:
    return None


def facts(manifest: Mapping[str, Any] | None) -> dict[str, Any]:
    return {}


def batch(rows: dict[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    return rows


def synthetic(count: int, spec: Mapping[str, Any], seed: int) -> dict[str, Any]:
    return {}


def counts(rows: dict[str, Any]) -> tuple[int, ...]:
    return ()


def counted(sums: tuple[int, ...], samples: int, spec: Mapping[str, Any]) -> dict[str, float]:
    return {}


def look(sums: Mapping[str, float]) -> dict[str, float]:
    return {}
