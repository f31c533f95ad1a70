"""Patches: a small classifier of made-up pictures, without a framework. The tests add this workload by its folder.

A picture has `image` x `image` grey pixels. A model of two matrices says which of `classes` it shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from throughline.workloads import Figure, key

MODELS = ("patches-small", "patches-large")
HIDDEN = {"patches-small": 32, "patches-large": 256}
UNIT = "images"
UNITS = {"pixels": lambda parameters: float(parameters.image**2)}
FIGURES = (Figure("latency", "ms", "less", "one forward pass without gradients, by the images in it"),)
DATA = None
LIBRARIES = {"torch": frozenset({"devices", "nodes", "accumulation", "clipping"})}
NO_FORM: dict[str, str] = {}
SETTINGS = ("hidden",)
LEARNS_FROM = None
NO_PROOF = None
HELD_OUT: dict[str, bool] = {}


@dataclass(frozen=True)
class Parameters:
    image: int = key("pixels a side", default=16, least=4, most=512, stated=True)
    classes: int = key("what the model tells apart", default=10, least=2)


def complete(values: Mapping[str, Any], section: Any) -> dict[str, Any]:
    return {}


def folder(parameters: Parameters) -> str:
    raise ValueError("patches reads no data")


def fits(parameters: Parameters, manifest: Mapping[str, Any]) -> str | None:
    return None


def facts(manifest: Mapping[str, Any] | None) -> dict[str, Any]:
    return {}


def batch(rows: dict[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    return rows


def synthetic(count: int, spec: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Return pictures f4[B, image x image] and their classes i8[B]."""
    import numpy as np

    draw = np.random.Generator(np.random.Philox(key=seed))
    return {
        "pixels": draw.random((count, spec["image"] ** 2), np.float32),
        "labels": draw.integers(0, spec["classes"], count),
    }


def counts(rows: dict[str, Any]) -> tuple[int, ...]:
    return ()


def counted(sums: tuple[int, ...], samples: int, spec: Mapping[str, Any]) -> dict[str, float]:
    return {}


def flops_per_sample(spec: Mapping[str, Any], facts: Mapping[str, Any], counted: Mapping[str, float]) -> float | str:
    """Return 3 x the operations of the forward pass: the backward pass needs two matrix products for each of its
    products. A multiply-add is 2 operations."""
    return 3 * 2 * HIDDEN[spec["model"]] * (spec["image"] ** 2 + spec["classes"])


def convention(spec: Mapping[str, Any]) -> dict[str, str]:
    return {"flops": "3 x forward, a multiply-add is 2; matrix products only"}


def look(sums: Mapping[str, float]) -> dict[str, float]:
    return {}
