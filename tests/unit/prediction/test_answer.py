"""Predictions from synthetic points whose truth is known."""

import math
from typing import Any

import pytest

from throughline.prediction import Job, Place, predict
from throughline.prediction.step import expected_maximum, median_step_s
from throughline.records import MeasuredPoint, NotPredicted, PredictedCell
from throughline.records.predictions import Message
from throughline.spec import Layout, Topology

PLACES = [(1, 1), (1, 4), (1, 8), (2, 8)]
LARGER = (8, 8)


def step(nodes: int, devices: int, samples: float = 64, gradient_accumulation: int = 1, spread: float = 0.0) -> float:
    """Return the step of a machine that the hierarchical form describes exactly."""
    place = Place(Topology(nodes, devices), 1)
    inside, between = place.exchange("hierarchical")
    compute = gradient_accumulation * (0.2 + 0.01 * samples) * (1 + place.slowest(spread))
    return compute + 0.1 * inside + 0.2 * between


def point(place: tuple[int, int], step_s: float, global_batch: int, **given: Any) -> MeasuredPoint:
    unknown = {"compute_s": None, "input_s": None, "all_reduce": [], "gradient_accumulation": 1}
    value = {"topology": str(Topology(*place)), "step_s": [step_s], "global_batch": global_batch, **unknown, **given}
    return MeasuredPoint.model_validate(value)


def points(places: list[tuple[int, int]] = PLACES, **given: float) -> list[MeasuredPoint]:
    return [point(place, step(*place, **given), 64 * math.prod(place)) for place in places]  # type: ignore[arg-type]


def changed(point: MeasuredPoint, **change: Any) -> MeasuredPoint:
    return point.model_copy(update=change)


def answered(
    known: list[MeasuredPoint], place: tuple[int, int] = LARGER, global_batch: int | None = None, job: Job | None = None
) -> PredictedCell | NotPredicted:
    batch = global_batch or 64 * math.prod(place)
    return predict(known, Place(Topology(*place), batch, job=job or Job()))


def made(known: list[MeasuredPoint], *asked: Any) -> PredictedCell:
    answer = answered(known, *asked)
    assert isinstance(answer, PredictedCell)
    return answer


def warns(known: list[MeasuredPoint], words: str, *asked: Any) -> bool:
    return any(words in sentence for sentence in made(known, *asked).warnings)


def test_the_prediction_lies_between_the_two_forms_and_its_interval_holds_it() -> None:
    answer = made(points())
    assert step(2, 8) < answer.step_s < step(8, 8)
    assert answer.low < answer.samples_per_s < answer.high
    assert answer.low < 64 * 64 / step(8, 8) < answer.high
    whole = made([changed(point, rank_spread=0.02, input_s=0.01) for point in points()])
    assert math.isclose(sum(whole.terms.values()), whole.step_s)
    assert all(seconds > 0 for seconds in whole.terms.values())


def test_intervals_widen_with_every_doubling() -> None:
    halves = [made(points(), (nodes, 8)).model_log for nodes in (4, 8, 16, 64, 256)]
    assert halves == sorted(halves)
    assert halves[-1] > 2 * halves[0]


def test_two_calls_agree_to_the_last_bit_and_noise_widens() -> None:
    noisy = [changed(point, step_s=[point.step_s[0] * (1 + x) for x in (-0.05, 0, 0.05)]) for point in points()]
    answer = made(noisy)
    assert answer == made(noisy)
    assert answer.repeats_log > 0.02 > made(points()).repeats_log == 0
    half = math.log(answer.high / answer.samples_per_s)
    assert math.isclose(half, math.hypot(answer.repeats_log, answer.model_log))


def test_waiting_is_told_apart_from_exchange_by_the_spread_of_the_ranks() -> None:
    known = [changed(point, rank_spread=0.05) for point in points(spread=0.05)]
    with_spread, without = made(known), made(points(spread=0.05))
    assert without.terms["waiting"] == 0
    assert math.isclose(with_spread.terms["waiting"] / with_spread.terms["compute"], 0.05 * expected_maximum(64))
    assert with_spread.terms["exchange"] < without.terms["exchange"]


def test_measured_exchange_and_compute_are_used() -> None:
    """Three points whose steps alone cannot tell compute from exchange inside the node."""
    places = [(1, 8), (2, 8), (4, 8)]
    alone = {place: 0.1 * 7 / 8 + 0.2 * (place[0] - 1) / place[0] for place in places}
    known = [
        changed(point, compute_s=0.84, all_reduce=[Message(bytes=4_000_000, seconds=2 * alone[place])])
        for place, point in zip(places, points(places), strict=True)
    ]
    assert math.isclose(made(known).terms["compute"], 0.84, rel_tol=0.01)
    assert made(points(places)).terms["compute"] > 0.9
    assert warns(points(places), "without exchange") and not warns(known, "without exchange")


def test_strong_scaling_finds_what_a_micro_batch_costs_whatever_its_size() -> None:
    known = [point(place, step(*place, samples=256 / math.prod(place)), 256) for place in [*PLACES, (2, 4)]]
    answer = made(known, (4, 8), 256)
    assert math.isclose(answer.step_s, step(4, 8, samples=8), rel_tol=0.05)
    assert warns(known, "micro-batch", (4, 8), 256)
    assert answer.model_log > made(points(), (4, 8), 2048).model_log


def test_a_fixed_global_batch_exchanges_once_for_all_its_micro_batches() -> None:
    known = []
    for place in PLACES:
        count = 32 // math.prod(place)
        seconds = step(*place, gradient_accumulation=count)
        known.append(point(place, seconds, 2048, gradient_accumulation=count))
    assert math.isclose(made(known, (4, 8), 2048).step_s, step(4, 8), rel_tol=0.05)


def test_a_prediction_far_beyond_and_a_bad_fit_warn() -> None:
    assert warns(points(), "64 times as many devices as were measured", (128, 8))
    known = points()
    known[1] = changed(known[1], step_s=[3.0])
    assert any("the fit is bad" in sentence and "1n4g" in sentence for sentence in made(known).warnings)
    assert not warns(points(), "the fit is bad") and not warns(points(), "times as many")


def test_the_interval_is_as_wide_as_what_was_left_out_showed() -> None:
    places = [(1, 8), (2, 8), (4, 8), (8, 8)]
    known = points(places)
    known[-1] = changed(known[-1], step_s=[2 * median_step_s(known[-1])])
    assert made(known, (16, 8)).model_log > math.log(1.8)


@pytest.mark.parametrize(
    ("known", "job", "why"),
    [
        (points(PLACES[:1]), Job(), "only 1n1g was measured"),
        (points(PLACES[:3]), Job(), "one topology with 2 nodes is enough"),
        (points(), Job(exchange="lookups"), "split tables"),
        (points(), Job(input_limited="decoding is slower"), "decoding is slower"),
        (points(), Job(layout=Layout(tensor_parallel=8)), "do not divide into replicas of 8"),
        (points(), Job(layout=Layout(sharding="full_shard", hybrid_shard_groups=2)), "which no formula here knows"),
        (points(), Job(layout=Layout(expert_parallel=2)), "tokens travel"),
        (points([(1, 8), (2, 8)]), Job(layout=Layout(tensor_parallel=16)), "replicas of 16"),
        ([], Job(), "nothing was measured"),
    ],
)
def test_what_cannot_be_predicted_is_refused_with_the_reason(known: list[MeasuredPoint], job: Job, why: str) -> None:
    answer = answered(known, LARGER, None, job)
    assert isinstance(answer, NotPredicted) and why in answer.why


@pytest.mark.parametrize(
    ("count", "exact"),
    [(2, 0.5642), (3, 0.8463), (8, 1.4236), (64, 2.3537), (1000, 3.2414)],  # Harter 1961
)
def test_the_expected_maximum_is_that_of_normal_values(count: int, exact: float) -> None:
    assert math.isclose(expected_maximum(count), exact, abs_tol=0.03)
