"""Other ways to predict the step of a larger topology from the steps of smaller ones. All take weak scaling.

With the same samples on every device, N devices are N times as fast as one if their step takes as long. So each law of
speedup is a law of the step: T(N) = N / speedup(N) x T(1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from throughline.prediction.facts import Point, Target
from throughline.prediction.fit import Array, least_squares

Rival = Callable[[Sequence[Point], Target], float]


def amdahl(points: Sequence[Point], target: Target) -> float:
    """Amdahl 1967: a share s of the work is serial, so T(N) = T(1) (1 - s) + T(1) s N."""
    return _law(points, target, lambda devices: [1.0, devices - 1, 0.0, 0.0])


def universal_scalability(points: Sequence[Point], target: Target) -> float:
    """Gunther 1993: T(N) = T(1) (1 + contention (N - 1) + coherence N (N - 1))."""
    return _law(points, target, lambda devices: [1.0, devices - 1, devices * (devices - 1), 0.0])


def carried_efficiency(points: Sequence[Point], target: Target) -> float:
    """The efficiency of the largest measured topology holds for larger ones too, so its step stays as long."""
    return max(points, key=lambda point: point.world).middle_s


def power_law(points: Sequence[Point], target: Target) -> float:
    """T(N) = a N^b, fitted to the logarithms."""
    slope, constant = np.polyfit(
        np.log([point.world for point in points]), np.log([point.middle_s for point in points]), 1
    )
    return float(np.exp(constant + slope * np.log(target.world)))


def _law(points: Sequence[Point], target: Target, columns: Callable[[int], list[float]]) -> float:
    design = np.array([columns(point.world) for point in points])
    seconds: Array = np.array([[point.middle_s for point in points]])
    return float(least_squares(design, seconds)[0] @ np.array(columns(target.world)))


RIVALS: dict[str, Rival] = {
    "carried efficiency": carried_efficiency,
    "power law": power_law,
    "Amdahl's law": amdahl,
    "universal scalability law": universal_scalability,
}
