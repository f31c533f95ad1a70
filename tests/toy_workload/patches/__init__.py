"""Patches: a small classifier of synthetic pictures, without a framework. The tests add this workload by its folder.

A picture has `image` x `image` grey pixels. A model of two matrices says which of `classes` it shows.
"""

from __future__ import annotations

from dataclasses import dataclass

from throughline.spec import Part, RunSpec, key
from throughline.workloads import Arrays, Figure, Values, Workload

HIDDEN = {"patches-small": 32, "patches-large": 256}


@dataclass(frozen=True)
class Parameters(Part):
    image: int = key("pixels a side", default=16, least=4, most=512, stated=True)
    classes: int = key("what the model tells apart", default=10, least=2)


class Patches(Workload[Parameters]):
    models = tuple(HIDDEN)
    parameters = Parameters
    libraries = {"torch": frozenset({"devices", "nodes", "gradient_accumulation", "clipping"})}
    unit = "images"
    units = {"pixels": lambda parameters: float(parameters.image**2)}
    figures = (Figure("latency", "ms", "less", "one forward pass without gradients, by the images in it"),)
    settings = ("hidden",)

    def synthetic(self, count: int, spec: RunSpec[Parameters], seed: int) -> Arrays:
        """Return pictures f4[B, image x image] and their classes i8[B]."""
        import numpy as np

        draw = np.random.Generator(np.random.Philox(key=seed))
        return {
            "pixels": draw.random((count, spec.parameters.image**2), np.float32),
            "labels": draw.integers(0, spec.parameters.classes, count),
        }

    def flops_per_sample(self, spec: RunSpec[Parameters], facts: Values, counted: Values) -> float | str:
        """Return 3 x the operations of the forward pass: the backward pass needs two matrix products for each of its
        products. A multiply-add is 2 operations."""
        return 3 * 2 * HIDDEN[spec.model] * (spec.parameters.image**2 + spec.parameters.classes)

    def convention(self, spec: RunSpec[Parameters]) -> dict[str, str]:
        return {"flops": "3 x forward, a multiply-add is 2; matrix products only"}


WORKLOAD = Patches()
