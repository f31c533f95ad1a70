"""Predict the throughput of a topology that nobody measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from throughline.prediction import facts
from throughline.prediction.facts import Job, Point, Prediction, Refusal, Target
from throughline.prediction.fit import Array, Fit, fit
from throughline.prediction.intervals import Calibration, kind_of, published, unit
from throughline.prediction.refusing import why_not
from throughline.prediction.terms import FORMS, Place
from throughline.prediction.warnings import warnings_of

PLAIN = Job()
DRAWS = 400
"""Draws of the repeats. Ten times as many change a half-width by less than a tenth of it."""


@dataclass(frozen=True)
class Middle:
    """What the model says without an interval, for the measured medians (row 0) and for draws of the repeats.

    fits: by each form of the exchange; forms: the step by each form, from the medians.
    """

    fits: Sequence[Fit]
    step_s: Array
    forms: tuple[float, ...]
    terms: dict[str, float]


def predict(
    points: Sequence[Point],
    target: Target,
    job: Job = PLAIN,
    *,
    level: float = facts.LEVEL,
    seed: int = 0,
    calibration: Calibration | None = None,
) -> Prediction | Refusal:
    """Return the throughput of `target` with its interval, or why nothing can be said about it.

    points: what was measured, one for each topology. calibration: None for that on all published series. The same
    arguments give the same answer to the last bit.
    """
    points = sorted(points, key=lambda point: (point.world, point.nodes, point.global_batch))
    why = why_not(points, target, job)
    if why:
        return Refusal(target, why)
    found = middle(points, target, job, _draws(points, seed))
    of_repeats = float(np.quantile(np.abs(np.log(found.step_s[1:] / found.step_s[0])), level))
    kind, scale = kind_of(points, target, job), unit(points, target, job, found.forms)
    missed = left_out(points, target, job)
    of_model = max((calibration or published()).quantile(kind, level) * scale, missed or 0.0)
    half = math.hypot(of_repeats, of_model)
    speed = target.global_batch / float(found.step_s[0])
    beyond = target.world / max(point.world for point in points)
    ends = speed * math.exp(-half), speed * math.exp(half)
    warned = warnings_of(points, target, job, kind, found.fits, missed, beyond)
    return Prediction(target, speed, *ends, level, found.terms, of_repeats, of_model, beyond, warned)


def middle(points: Sequence[Point], target: Target, job: Job, steps_s: Array | None = None) -> Middle:
    """Return the geometric mean of the two forms. steps_s: draws with a step for each point; None for the medians."""
    steps_s = np.array([[point.middle_s for point in points]]) if steps_s is None else steps_s
    fits = [fit(points, steps_s, form, job) for form in FORMS]
    place = Place.of(target, job)
    steps = [one.step_s(place) for one in fits]
    both = np.sqrt(steps[0] * steps[1])
    return Middle(fits, both, tuple(float(step[0]) for step in steps), _terms(fits[0], place, float(both[0])))


def _terms(hierarchical: Fit, place: Place, step_s: float) -> dict[str, float]:
    """Return the terms of a step: all that is no exchange as the hierarchical form has it, and the rest as exchange.

    The ring cannot tell its compute from exchange unless a point has one rank. So its terms are not asked.
    """
    terms = {name: float(seconds[0]) for name, seconds in hierarchical.terms(place).items()}
    others = sum(terms.values()) - terms["exchange"]
    if others <= step_s:
        return terms | {"exchange": step_s - others}
    return {name: 0.0 if name == "exchange" else seconds * step_s / others for name, seconds in terms.items()}


def left_out(points: Sequence[Point], target: Target, job: Job) -> float | None:
    """Return by how much the largest measured topology is missed if it is predicted from the others, as a logarithm.

    None if that is another kind of question than the target's. It counts as much for each doubling as for the target's.
    """
    *rest, last = points
    known = Target(last.nodes, last.devices, last.global_batch, last.gradient_accumulation)
    if why_not(rest, known, job) or kind_of(rest, known, job) != kind_of(points, target, job):
        return None
    return abs(math.log(float(middle(rest, known, job).step_s[0]) / last.middle_s))


def _draws(points: Sequence[Point], seed: int) -> Array:
    """Return the medians of the points, and below them medians of repeats that are drawn with replacement."""
    chance = np.random.default_rng(seed)
    drawn = [np.median(chance.choice(np.array(point.step_s), (DRAWS, len(point.step_s))), axis=1) for point in points]
    return np.vstack([[point.middle_s for point in points], np.column_stack(drawn)])
