"""Other ways to predict the step of a larger topology from the steps of smaller ones. All take weak scaling.

With the same samples on every device, N devices are N times as fast as one if their step takes as long. So each law of
speedup is a law of the step: T(N) = N / speedup(N) x T(1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from throughline.prediction.step import Array, Place, least_squares, median_step_s
from throughline.records import MeasuredPoint
from throughline.spec import Topology

Points = Sequence[MeasuredPoint]
Rival = Callable[[Points, Place], float]


def amdahl(points: Points, target: Place) -> float:
    """Amdahl 1967: a share s of the work is serial, so T(N) = T(1) (1 - s) + T(1) s N."""
    return _law(points, target, lambda devices: [1.0, devices - 1, 0.0, 0.0])


def universal_scalability(points: Points, target: Place) -> float:
    """Gunther 1993: T(N) = T(1) (1 + contention (N - 1) + coherence N (N - 1))."""
    return _law(points, target, lambda devices: [1.0, devices - 1, devices * (devices - 1), 0.0])


def carried_efficiency(points: Points, target: Place) -> float:
    """The efficiency of the largest measured topology holds for larger ones too, so its step stays as long."""
    return median_step_s(max(points, key=_world))


def power_law(points: Points, target: Place) -> float:
    """T(N) = a N^b, fitted to the logarithms."""
    steps = [median_step_s(point) for point in points]
    slope, constant = np.polyfit(np.log([_world(point) for point in points]), np.log(steps), 1)
    return float(np.exp(constant + slope * np.log(target.topology.world)))


def _world(point: MeasuredPoint) -> int:
    return Topology.parse(point.topology).world


def _law(points: Points, target: Place, columns: Callable[[int], list[float]]) -> float:
    design = np.array([columns(_world(point)) for point in points])
    seconds: Array = np.array([[median_step_s(point) for point in points]])
    return float(least_squares(design, seconds)[0] @ np.array(columns(target.topology.world)))


RIVALS: dict[str, Rival] = {
    "carried efficiency": carried_efficiency,
    "power law": power_law,
    "Amdahl's law": amdahl,
    "universal scalability law": universal_scalability,
}
