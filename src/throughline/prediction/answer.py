"""Predict the throughput of a topology that nobody measured, with an interval, or say why there is no prediction.

The interval has two sources: the noise of the repeats, and what the model missed on published series. The second is a
conformal interval (Vovk 2005; Lei 2018). On published series we know the answer, so each of their predictions has a
score: its error over the `unit` of its question. A new prediction gets the width that so large a share of the scores
stays below. `resources/prediction.json` has the scores; benchmarks/prediction.py makes it.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Literal, get_args

import numpy as np

from throughline.files import resource
from throughline.numbers import percent
from throughline.prediction.step import Array, Fit, Place, doublings, median_step_s, predicted
from throughline.records import MeasuredPoint, NotPredicted, PredictedCell
from throughline.spec import Topology

LEVEL = 0.9
"""The probability with which an interval is meant to hold the throughput."""
FAR = 16
"""Predictions for more than so many times the largest measured number of devices say so in their sentence."""
DRAWS = 400
"""Draws of the repeats. Ten times as many change a half-width by less than a tenth of it."""
NOISE = 0.02
"""The error of each doubling where both forms agree, as a logarithm. Only its proportion to their disagreement matters:
the scores take care of the rest."""
BAD = 0.1
"""A fit that misses a measured step by more than this share is bad."""
FILE = resource("prediction.json")
Kind = Literal["inside", "between", "strong"]
"""What a prediction crosses: nothing but more devices of one node; more nodes, where several were measured; other sizes
of the micro-batch too, as with strong scaling."""
KINDS: tuple[Kind, ...] = get_args(Kind)
Scores = Mapping[Kind, Sequence[float]]
"""The scores of predictions whose answer is known, by kind, sorted."""


def predict(
    points: Sequence[MeasuredPoint],
    target: Place,
    *,
    level: float = LEVEL,
    seed: int = 0,
    scores: Scores | None = None,
) -> PredictedCell | NotPredicted:
    """Return the throughput of `target` with its interval, or why nothing can be said about it.

    points: what was measured, one for each topology. scores: None for those of all published series. The same
    arguments give the same answer to the last bit.
    """
    points = sorted(points, key=lambda point: (_world(point), Topology.parse(point.topology).nodes, point.global_batch))
    if why := why_not(points, target):
        return NotPredicted(topology=str(target.topology), why=why)
    steps, fits, terms = predicted(points, target, _draws(points, seed))
    repeats_log = float(np.quantile(np.abs(np.log(steps[1:] / steps[0])), level))
    missed = left_out(points, target)
    model_log = quantile((scores or published())[kind_of(points, target)], level) * unit(points, target, fits)
    model_log = max(model_log, missed or 0.0)
    half, speed = math.hypot(repeats_log, model_log), target.global_batch / float(steps[0])
    return PredictedCell(
        topology=str(target.topology),
        global_batch=target.global_batch,
        gradient_accumulation=target.gradient_accumulation,
        samples_per_s=speed,
        low=speed * math.exp(-half),
        high=speed * math.exp(half),
        level=level,
        terms=terms,
        repeats_log=repeats_log,
        model_log=model_log,
        times_beyond=target.topology.world / max(map(_world, points)),
        warnings=list(_warnings(points, target, fits, missed)),
    )


def _world(point: MeasuredPoint) -> int:
    return Topology.parse(point.topology).world


def why_not(points: Sequence[MeasuredPoint], target: Place) -> str | None:
    """Return why nothing can be predicted for `target`; None if something can."""
    job, layout, asked = target.job, target.job.layout, target.topology
    measured = [Topology.parse(point.topology) for point in points]
    if job.input_limited:
        return f"the input limits these runs ({job.input_limited}), and how fast it is elsewhere was not measured"
    if job.exchange == "lookups":
        return (
            "the ranks exchange rows of split tables, and how many depends on which rows they draw, so their time on "
            "other topologies does not follow from these"
        )
    if layout.hybrid_shard_groups != 1:
        return "weights travel within groups of replicas (options.hybrid_shard_groups), which no formula here knows"
    if layout.expert_parallel > 1:
        return "tokens travel between the ranks that hold experts, and no formula here knows such messages"
    if any(topology.world % layout.tensor_parallel for topology in (asked, *measured)):
        return f"the devices of {asked} do not divide into replicas of {layout.tensor_parallel}"
    if not points:
        return "nothing was measured"
    if len(set(measured)) == 1:
        return (
            f"only {measured[0]} was measured, and nothing says how the exchange grows; from one topology and a "
            "datasheet alone nothing can be said"
        )
    if asked.nodes > 1 and all(topology.nodes == 1 for topology in measured):
        return (
            f"nothing was measured between nodes, and {asked} needs their network; one topology with 2 nodes is enough "
            "for a prediction"
        )
    if any(topology.devices < layout.tensor_parallel for topology in (asked, *measured)):
        return (
            f"a replica of {layout.tensor_parallel} devices lies on several nodes, and its exchange there does not "
            "follow from these"
        )
    return None


def _draws(points: Sequence[MeasuredPoint], seed: int) -> Array:
    """Return the medians of the points, and below them medians of repeats that are drawn with replacement."""
    chance = np.random.default_rng(seed)
    drawn = [np.median(chance.choice(np.array(point.step_s), (DRAWS, len(point.step_s))), axis=1) for point in points]
    return np.vstack([[median_step_s(point) for point in points], np.column_stack(drawn)])


def left_out(points: Sequence[MeasuredPoint], target: Place) -> float | None:
    """Return by how much the largest measured topology is missed if it is predicted from the others, as a logarithm.

    None if that is another kind of question than the target's. It counts as much for each doubling as for the target's.
    """
    *rest, last = points
    known = Place.of(last, target.job)
    if why_not(rest, known) or kind_of(rest, known) != kind_of(points, target):
        return None
    return abs(math.log(float(predicted(rest, known)[0][0]) / median_step_s(last)))


@cache
def published() -> Scores:
    """Return the scores of all published series."""
    scores: Scores = json.loads(FILE.read_text(encoding="utf-8"))["scores"]
    return scores


def quantile(scores: Sequence[float], level: float) -> float:
    """Return the score that a new one stays below with probability `level`; with too few, the largest one.

    Of n scores it is the one with the number (n + 1) x level, rounded up.
    """
    return scores[min(math.ceil((len(scores) + 1) * level), len(scores)) - 1]


def kind_of(points: Sequence[MeasuredPoint], target: Place) -> Kind:
    places = [target, *(Place.of(point, target.job) for point in points)]
    if len({round(place.samples, 6) for place in places}) > 1:
        return "strong"
    return "inside" if target.topology.nodes == 1 else "between"


def unit(points: Sequence[MeasuredPoint], target: Place, fits: Sequence[Fit]) -> float:
    """Return the unit of a prediction's error, as a logarithm. It is larger where the two forms disagree.

    It grows with every doubling of the devices, and with every halving (or doubling) of the micro-batch, beyond what
    was measured. On one node both forms are one, so there the step's growth over the measured points says how much is
    unsure.
    """
    least, most = (pick(points, key=_world) for pick in (min, max))
    sizes = max(abs(doublings(target.samples, Place.of(point, target.job).samples)) for point in points)
    hierarchical, ring = (float(fit.step_s(target)[0]) for fit in fits)
    unsure = abs(math.log(hierarchical / ring))
    if kind_of(points, target) == "inside":
        unsure = max(0.0, math.log(median_step_s(most) / median_step_s(least)))
    return NOISE * max(1.0, doublings(target.topology.world, _world(most)) + sizes) + unsure / 2


def _warnings(
    points: Sequence[MeasuredPoint], target: Place, fits: Sequence[Fit], missed: float | None
) -> Iterator[str]:
    """Yield what is questionable about a prediction. missed: by how much the largest measured topology was missed."""
    misses = {}
    for point in points:
        steps = (float(fit.step_s(Place.of(point, target.job))[0]) for fit in fits)
        misses[point.topology] = min((step / median_step_s(point) - 1 for step in steps), key=abs)
    worst, error = max(misses.items(), key=lambda miss: abs(miss[1]))
    if abs(error) > BAD:
        side = "slower" if error > 0 else "faster"
        yield f"the fit is bad: it is {percent(abs(error))} {side} than the measured step of {worst}"
    if missed is not None and missed > BAD:
        yield f"predicted from the smaller ones, the largest measured topology is off by {percent(missed)}"
    if all(_world(point) > target.job.layout.tensor_parallel and point.compute_s is None for point in points):
        yield (
            "every measured topology exchanges and no step without exchange was measured, so a part of the exchange "
            "is counted as compute"
        )
    beyond = target.topology.world / max(map(_world, points))
    if beyond > FAR:
        yield f"{target.topology} has {beyond:.3g} times as many devices as were measured"
    if kind_of(points, target) == "strong":
        yield (
            f"its micro-batch has {target.samples:.4g} samples and others were measured, which is less sure than more "
            "devices alone"
        )
    if all(len(point.step_s) == 1 for point in points):
        yield "nothing was repeated, so the noise of the measured steps is unknown"
