"""Predictions from made-up points whose truth is known."""

from __future__ import annotations

import math

from throughline.prediction import Job, Point, Prediction, Refusal, Target, predict
from throughline.spec import Layout

POINTS = [Point(1, 1, (1.0, 1.01), 64), Point(1, 8, (1.05, 1.06), 512), Point(2, 8, (1.10, 1.12), 1024)]


LARGER = Target(4, 8, 2048)


def made(points: list[Point] = POINTS, target: Target = LARGER) -> Prediction:
    answer = predict(points, target)
    assert isinstance(answer, Prediction)
    return answer


def refused(points: list[Point], target: Target, job: Job) -> str:
    answer = predict(points, target, job)
    assert isinstance(answer, Refusal)
    return answer.why


def test_the_terms_add_up_to_the_step_and_the_interval_holds_the_prediction() -> None:
    answer = made()
    assert math.isclose(sum(answer.terms.values()), answer.step_s)
    assert answer.low < answer.samples_per_s < answer.high
    assert 1.0 < answer.step_s < 1.3


def test_a_prediction_far_beyond_says_so_in_its_sentence() -> None:
    assert "64 times as many devices" in made(target=Target(128, 8, 65536)).sentence
    assert "times as many" not in made().sentence


def test_what_cannot_be_predicted_is_refused_with_the_reason() -> None:
    target = LARGER
    assert "only 1n1g was measured" in refused(POINTS[:1], target, Job())
    assert "split tables" in refused(POINTS, target, Job(exchange="lookups"))
    assert "decoding is slower" in refused(POINTS, target, Job(input_limited="decoding is slower"))
    assert "replicas of 8" in refused(POINTS, target, Job(layout=Layout(tensor=8)))
