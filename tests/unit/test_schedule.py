"""`optimizer.schedule`: the rate of every step, mistakes in the configuration, and its use in an equivalence check."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

import training_fixtures
from throughline.checks import equivalence, reference
from throughline.frameworks.rank import Rank
from throughline.spec import Schedule
from throughline.study.config import ConfigError, load
from throughline.workloads import Unsupported

LINEAR = {"name": "linear", "warmup_steps": 4, "total_steps": 12}
SCHEDULES: list[tuple[dict[str, Any], dict[int, float]]] = [
    ({"warmup_steps": 4}, {1: 0.25, 4: 1.0, 5: 1.0, 1000: 1.0}),
    (LINEAR, {1: 0.25, 4: 1.0, 5: 0.875, 12: 0.0, 13: 0.0}),
    ({**LINEAR, "last": 0.1}, {4: 1.0, 8: 0.55, 12: 0.1, 100: 0.1}),
    ({**LINEAR, "decay_from": "start"}, {4: 1.0, 6: 0.5, 9: 0.25, 12: 0.0}),
    ({**LINEAR, "name": "polynomial", "power": 0.5}, {6: 0.75**0.5, 10: 0.5, 12: 0.0}),
    ({**LINEAR, "name": "cosine"}, {4: 1.0, 6: (1 + 0.5**0.5) / 2, 8: 0.5, 12: 0.0}),
    ({"name": "linear", "total_steps": 10}, {1: 0.9, 9: 0.1, 10: 0.0}),
]


@pytest.mark.parametrize(("schedule", "shares"), SCHEDULES)
def test_the_share_of_a_step_is_that_of_the_definition_and_of_the_reference(
    schedule: dict[str, Any], shares: dict[int, float]
) -> None:
    spec = training_fixtures.spec(optimizer={"learning_rate": 0.5, "schedule": schedule})
    rate = spec.optimizer.rates()
    assert {step: rate(step) for step in shares} == pytest.approx({step: share / 2 for step, share in shares.items()})
    for step in range(1, 30):
        assert reference._rate(step, spec.optimizer) == pytest.approx(rate(step), rel=1e-12, abs=1e-15)


def test_a_constant_rate_is_the_default_and_appears_nowhere() -> None:
    spec = training_fixtures.spec(optimizer={"schedule": {"name": "constant"}})
    assert "schedule" not in spec.canonical
    assert spec.optimizer.rates() is None
    assert equivalence.settings(spec).optimizer.learning_rate == equivalence.RATE["adamw"]


def test_a_framework_that_cannot_change_the_rate_says_so() -> None:
    rank: Any = SimpleNamespace(spec=training_fixtures.spec())
    with pytest.raises(Unsupported, match="torch has no learning rate that changes"):
        Rank.set_rate(rank, 1.0)


@pytest.mark.parametrize(
    ("schedule", "mistake"),
    [
        ({"name": "linear"}, r"optimizer\.schedule\.total_steps: missing; a linear schedule needs it"),
        ({**LINEAR, "total_steps": 4}, r"total_steps = 4: no step is left after 4 of warm-up"),
        ({"total_steps": 9}, r"total_steps: a constant rate does not fall"),
        ({**LINEAR, "power": 2.0}, r"power = 2: a key of polynomial alone"),
        ({"name": "cosin"}, r"allowed: constant, linear, polynomial, cosine; did you mean cosine\?"),
    ],
)
def test_mistakes(schedule: dict[str, Any], mistake: str) -> None:
    with pytest.raises(ConfigError, match=mistake):
        load([], {"benchmarks": {"b": {"sequence_length": 32, "optimizer": {"schedule": schedule}}}})


def test_an_equivalence_check_goes_through_the_whole_course_with_the_same_mean_rate() -> None:
    phase_1 = {
        "name": "polynomial", "power": 0.5, "warmup_steps": 2000, "total_steps": 7038, "decay_from": "start"
    }  # fmt: skip
    for schedule, warmup in ((phase_1, 15), ({"warmup_steps": 10_000}, 25), ({"warmup_steps": 3}, 3)):
        spec = training_fixtures.spec(optimizer={"name": "lamb", "schedule": schedule})
        optimizer = equivalence.settings(spec).optimizer
        assert optimizer.schedule.warmup_steps == warmup
        assert optimizer.schedule.total_steps == (50 if "total_steps" in schedule else None)
        rate = optimizer.rates()
        mean = sum(map(rate, range(1, 51))) / 50
        assert mean == pytest.approx(equivalence.RATE["lamb"], rel=5e-3)
        shortened = warmup != schedule["warmup_steps"]
        assert ("optimizer.schedule: its whole course in 50 steps" in equivalence.covers([spec])) == shortened
    half = equivalence.settings(replace(spec, precision="bf16"))
    assert half.steps.timed == 10 and half.optimizer == equivalence.settings(spec).optimizer


def test_words() -> None:
    words = "polynomial of power 0.5, 2,000 steps of warm-up, 7,038 in all, to 0.1 of the rate, decay from the start"
    assert Schedule("polynomial", 2000, 7038, 0.5, 0.1, "start").words == words
