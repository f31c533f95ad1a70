"""How many steps a run makes: within a time limit, for a shortest window, and when the first steps compile."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from throughline.rank import measurement
from throughline.spec import Steps

SLOW_FIRST = (60.0, 1.0)
FAST = 1 / 128  # the clock adds it up exactly


def counts(
    monkeypatch: pytest.MonkeyPatch, steps: Steps, seconds: Sequence[float], kind: str = "cpu", **changes: Any
) -> tuple[int, int]:
    """Return the numbers of warm-up and timed steps. `seconds`: of each step; every later one takes as long as the last
    of them."""
    clock = [0.0]
    monkeypatch.setattr(measurement.time, "monotonic", lambda: clock[0])
    framework = SimpleNamespace(sync=lambda: None, broadcast=lambda value: value)
    heart = SimpleNamespace(phase=lambda name, steps: None, step=lambda done: None)
    given: dict[str, Any] = {"compiled": False, "trains": True, "job": None, "weights": None} | changes
    plan = SimpleNamespace(kind=kind, weights=given["weights"])
    options = SimpleNamespace(compile=given["compiled"])
    asked = {"steps": steps, "plan": plan, "options": options, "trains": given["trains"], "job": given["job"]}
    run: Any = SimpleNamespace(framework=framework, heart=heart, **asked)
    warm_up = measurement.Measurement(run)._warm_up()
    next(warm_up)
    number = 0
    while True:
        clock[0] += seconds[min(number, len(seconds) - 1)]
        try:
            warm_up.send(number)
        except StopIteration as end:
            losses, warmup, timed = end.value
            assert losses == list(range(warmup))
            return warmup, timed
        number += 1


@pytest.mark.parametrize(
    ("cap", "step", "expected"),
    [(100.0, 0.1, (20, 100)), (20.0, 2.4, (3, 5)), (4.0, 2.4, (2, 3)), (60.0, 1.0, (20, 38)), (1.0, 60.0, (2, 3))],
)
def test_steps_under_a_cap(monkeypatch: pytest.MonkeyPatch, cap: float, step: float, expected: tuple[int, int]) -> None:
    assert counts(monkeypatch, Steps(max_total_seconds=cap), [step]) == expected


@pytest.mark.parametrize("asked", [1, 3, 100])
def test_never_more_steps_than_asked(monkeypatch: pytest.MonkeyPatch, asked: int) -> None:
    assert measurement.timed_steps(asked, 1000.0, 1.0, 0.001) == asked
    steps = Steps(warmup=asked, timed=10, max_total_seconds=1000.0)
    assert counts(monkeypatch, steps, [0.1]) == (max(2, asked), 10)


def test_without_limits_a_run_takes_all_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    assert counts(monkeypatch, Steps(min_window_seconds=0.0), [60.0, 0.001]) == (20, 100)
    assert counts(monkeypatch, Steps(warmup=1, timed=4), [60.0], kind="cuda") == (1, 4)


def test_a_first_step_that_compiles_does_not_shorten_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    # The first step does not count, and 3 more warm-up steps leave 6.5 of 9.5 seconds.
    assert counts(monkeypatch, Steps(warmup=5, timed=100, max_total_seconds=10.0), SLOW_FIRST) == (4, 6)


@pytest.mark.parametrize("slow", [(60.0, 40.0, 0.01), (60.0, 40.0, 40.0, 0.01)])
@pytest.mark.parametrize("place", [{"kind": "cuda"}, {"compiled": True}])
def test_a_second_step_that_compiles_is_not_the_speed(
    monkeypatch: pytest.MonkeyPatch, slow: tuple[float, ...], place: dict[str, Any]
) -> None:
    assert counts(monkeypatch, Steps(max_total_seconds=10.0), slow, **place) == (20, 100)


@pytest.mark.parametrize("slow", [(60.0, 40.0, FAST), (60.0, 40.0, 40.0, FAST), (5.0, FAST)])
def test_a_gpu_is_timed_until_its_clocks_have_settled(monkeypatch: pytest.MonkeyPatch, slow: tuple[float, ...]) -> None:
    assert counts(monkeypatch, Steps(), slow, kind="cuda") == (20, 33 * 128)


@pytest.mark.parametrize(
    ("steps", "kind", "expected"),
    [
        (Steps(timed=200), "cuda", (20, 200)),  # the user has chosen
        (Steps(max_total_seconds=10.0), "cuda", (20, 100)),
        (Steps(min_window_seconds=0.0), "cuda", (20, 100)),
        (Steps(), "cpu", (20, 704)),
        (Steps(timed=50), "cpu", (20, 50)),
        (Steps(timed=1000, min_window_seconds=5.0), "cuda", (20, 1000)),
        (Steps(warmup=0, min_window_seconds=5.0), "cuda", (4, 704)),
        (Steps(min_window_seconds=5.0, max_total_seconds=6.0), "cuda", (20, 704)),
        (Steps(min_window_seconds=5.0, max_total_seconds=5.1), "cuda", (20, 601)),
        (Steps(min_window_seconds=3600.0), "cuda", (20, measurement.MOST_TIMED)),
    ],
)
def test_who_decides_how_long_a_window_is(
    monkeypatch: pytest.MonkeyPatch, steps: Steps, kind: str, expected: tuple[int, int]
) -> None:
    assert counts(monkeypatch, steps, [1.0, FAST], kind) == expected


@pytest.mark.parametrize("changes", [{"weights": "weights.npz"}, {"job": object()}, {"trains": False}])
def test_checks_jobs_and_single_calls_have_their_own_steps(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    assert counts(monkeypatch, Steps(), [1.0, FAST], "cuda", **changes) == (20, 100)
