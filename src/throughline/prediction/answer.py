"""Predict the throughput of a topology that nobody measured."""

from __future__ import annotations

import math
from collections.abc import Sequence

from throughline.prediction import facts
from throughline.prediction.facts import Job, Point, Prediction, Refusal, Target
from throughline.prediction.refusing import why_not

PLAIN = Job()


def predict(
    points: Sequence[Point], target: Target, job: Job = PLAIN, *, level: float = facts.LEVEL, seed: int = 0
) -> Prediction | Refusal:
    """Return the throughput of `target` with its interval, or why nothing can be said about it.

    points: what was measured, one for each topology. The same arguments give the same answer to the last bit.
    """
    why = why_not(points, target, job)
    if why:
        return Refusal(target, why)
    largest = max(points, key=lambda point: (point.world, point.nodes))
    smallest = min(points, key=lambda point: (point.world, point.nodes))
    share = (target.samples_per_step / target.world) / (largest.samples_per_step / largest.world)
    compute = min(smallest.middle_s, largest.middle_s) * share
    exchange = (largest.middle_s - min(smallest.middle_s, largest.middle_s)) * 1.25
    step = compute + exchange
    speed = target.samples_per_step / step
    half = 0.2 * max(1.0, math.log2(max(1.0, target.world / largest.world)))
    terms = {"compute": compute, "exchange": exchange, "waiting": 0.0, "input": 0.0}
    beyond = target.world / largest.world
    return Prediction(target, speed, speed * math.exp(-half), speed * math.exp(half), level, terms, 0.0, half, beyond)
