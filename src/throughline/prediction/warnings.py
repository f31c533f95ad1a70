"""What a reader of a prediction has to know besides its interval, as sentences."""

from __future__ import annotations

from collections.abc import Sequence

from throughline.numbers import percent
from throughline.prediction.facts import FAR, Job, Point, Target
from throughline.prediction.fit import Fit
from throughline.prediction.intervals import Kind
from throughline.prediction.terms import Place

BAD = 0.1
"""A fit that misses a measured step by more than this share is bad."""


def warnings_of(
    points: Sequence[Point],
    target: Target,
    job: Job,
    kind: Kind,
    fits: Sequence[Fit],
    missed: float | None,
    beyond: float,
) -> tuple[str, ...]:
    """Return what is questionable about a prediction. missed: by how much the largest measured topology was missed."""
    found = [_bad_fit(points, job, fits)]
    if missed is not None and missed > BAD:
        found.append(f"predicted from the smaller ones, the largest measured topology is off by {percent(missed)}")
    if all(point.world > job.layout.tensor_parallel and point.compute_s is None for point in points):
        found.append(
            "every measured topology exchanges and no step without exchange was measured, so a part of the exchange "
            "is counted as compute"
        )
    if beyond > FAR:
        found.append(f"{target.topology} has {beyond:.3g} times as many devices as were measured")
    if kind == "strong":
        found.append(
            f"its micro-batch has {Place.of(target, job).samples:.4g} samples and others were measured, which is less "
            "sure than more devices alone"
        )
    if all(len(point.step_s) == 1 for point in points):
        found.append("nothing was repeated, so the noise of the measured steps is unknown")
    return tuple(sentence for sentence in found if sentence)


def _bad_fit(points: Sequence[Point], job: Job, fits: Sequence[Fit]) -> str | None:
    """Say which measured step neither form of the exchange describes."""
    misses = []
    for point in points:
        place = Place.of(point, job)
        error = min((float(fit.step_s(place)[0]) / point.middle_s - 1 for fit in fits), key=abs)
        misses.append((abs(error), error, point))
    worst, error, point = max(misses, key=lambda miss: miss[0])
    if worst <= BAD:
        return None
    side = "slower" if error > 0 else "faster"
    return f"the fit is bad: it is {percent(worst)} {side} than the measured step of {point.topology}"
