"""Fit the constants of the terms to what was measured: least squares of relative errors, and no constant below 0.

Everything is computed for many draws of the repeats at once, because the interval needs hundreds of fits.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from throughline.prediction.facts import Job, Point
from throughline.prediction.terms import (
    COLUMNS,
    Form,
    Place,
    exchange,
    input_of,
    slowest,
    spread_of,
    times,
)

Array = NDArray[np.float64]
TRIED = (0, 1, 3, 2)
"""The order of the columns. Where few points leave open which exchange they show, it is that between the nodes."""


@dataclass(frozen=True)
class Fit:
    """Fitted constants of `COLUMNS`, one row for each draw, and what they were not fitted to.

    alone: the constants of the exchange alone (`runs.network`), if it was measured; then `inside` and `between` are
    both the share of it that the step shows.
    """

    form: Form
    job: Job
    constants: Array
    spread: float
    input_per_sample_s: float
    alone: tuple[float, float] | None

    def columns(self, place: Place) -> Array:
        return np.array(_columns(place, self.form, self.job, self.alone))

    def terms(self, place: Place) -> Mapping[str, Array]:
        """Return the seconds of each term in each draw. Their sum is the step."""
        parts = self.constants * self.columns(place)
        compute = parts[:, 0] + parts[:, 1]
        input_s = np.full_like(compute, self.input_per_sample_s * place.samples * place.gradient_accumulation)
        waiting = compute * slowest(place.ranks, self.spread)
        return {"compute": compute, "exchange": parts[:, 2] + parts[:, 3], "waiting": waiting, "input": input_s}

    def step_s(self, place: Place) -> Array:
        total: Array = np.sum(list(self.terms(place).values()), axis=0)
        return total


def fit(points: Sequence[Point], steps_s: Array, form: Form, job: Job) -> Fit:
    """Return the constants for each row of `steps_s`, which has one step for each point."""
    spread, input_s, alone = spread_of(points), input_of(points, job), _alone(points, form, job)
    places = [Place.of(point, job) for point in points]
    rows = [_columns(place, form, job, alone) for place in places]
    factors = np.array([1 + slowest(place.ranks, spread) for place in places])
    design = np.array(rows)
    design[:, :2] *= factors[:, None]
    waits = np.array([input_s * place.samples * place.gradient_accumulation for place in places])
    seconds = np.maximum(steps_s - waits, 1e-3 * steps_s)
    solo = [(row, point.compute_s) for row, point in zip(rows, points, strict=True) if point.compute_s is not None]
    if solo:
        design = np.vstack([design, [[*row[:2], 0.0, 0.0] for row, _ in solo]])
        seconds = np.hstack([seconds, np.broadcast_to([known for _, known in solo], (len(steps_s), len(solo)))])
    if len({round(place.samples, 6) for place in places}) < 2:
        design[:, 1] = 0.0  # one size of micro-batch cannot tell what is fixed from what grows with it
    return Fit(form, job, least_squares(design, seconds), spread, input_s, alone)


def _columns(place: Place, form: Form, job: Job, alone: tuple[float, float] | None) -> list[float]:
    inside, between = (times(place, job) * part for part in exchange(place, form))
    if alone:
        inside, between = alone[0] * inside + alone[1] * between, 0.0
    return [place.gradient_accumulation * place.samples, float(place.gradient_accumulation), inside, between]


def _alone(points: Sequence[Point], form: Form, job: Job) -> tuple[float, float] | None:
    """Return the constants of the exchange alone. None unless it was measured in every tier that a point has."""
    known = [point for point in points if point.all_reduce and point.world > job.layout.tensor_parallel]
    if not known or (max(point.nodes for point in known) == 1 < max(point.nodes for point in points)):
        return None
    places = [Place.of(point, job) for point in known]
    design = np.array([[0.0, 0.0, *exchange(place, form)] for place in places])
    seconds = np.array([[sum(seconds for _, seconds in point.all_reduce) for point in known]])
    constants = least_squares(design, seconds)[0]
    return float(constants[2]), float(constants[3])


def least_squares(design: Array, seconds: Array) -> Array:
    """Return the non-negative constants with the least squares of relative errors, one row for each row of `seconds`.

    There are four columns at most, so every subset of them is tried: the best one without a negative constant wins.
    """
    used = [column for column in TRIED if design[:, column].any()]
    best = np.full(len(seconds), np.inf)
    found = np.zeros((len(seconds), len(COLUMNS)))
    scaled = design[None] / seconds[:, :, None]
    for count in range(1, len(used) + 1):
        for chosen in itertools.combinations(used, count):
            part = scaled[:, :, chosen]
            constants = np.linalg.pinv(part).sum(axis=2)
            errors = (np.einsum("dpc,dc->dp", part, constants) - 1) ** 2
            squares = np.where((constants < 0).any(axis=1), np.inf, errors.sum(axis=1))
            better = squares < best - 1e-15
            best = np.where(better, squares, best)
            whole = np.zeros_like(found)
            whole[:, chosen] = constants
            found = np.where(better[:, None], whole, found)
    return found
