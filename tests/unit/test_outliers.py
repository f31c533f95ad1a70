"""Equal parts are called slow in at most 5 % of all acceptances, and slow ones are found, even if there are two."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from throughline import outliers
from throughline.outliers import Peers


def peers(*medians: float, less: bool = False) -> Peers[int]:
    """Three repeats of each part, 0.2 % apart."""
    return Peers({part: {1: middle * 0.998, 2: middle, 3: middle * 1.002} for part, middle in enumerate(medians)}, less)


def slow(figures: dict[str, Peers[int]], tolerance: float = 0.02) -> set[int]:
    judged = outliers.judge({name: replace(peers, tolerance=tolerance) for name, peers in figures.items()})
    return {part for standings in judged.values() for part, standing in standings.items() if standing.slow}


def fleet(seed: int, parts: int, repeats: int, heavy: bool) -> dict[str, Peers[int]]:
    """Six figures of equal parts, which differ by 0.8 %, and whose repeats have noise of 1 %."""
    chance = random.Random(seed)

    def noise() -> float:
        tails = math.sqrt(chance.gammavariate(1.5, 2) / 3) * math.sqrt(3) if heavy else 1
        return 0.01 * chance.gauss(0, 1) / tails

    figures = {}
    for figure in range(6):
        hours = [chance.gauss(0, 0.02) for _ in range(repeats)]
        middles = [chance.gauss(0, 0.008) for _ in range(parts)]
        figures[f"{figure}"] = Peers(
            {
                part: {k: math.exp(middle + hour + noise()) for k, hour in enumerate(hours, start=1)}
                for part, middle in enumerate(middles)
            }
        )
    return figures


@pytest.mark.slow
@pytest.mark.parametrize(("parts", "acceptances"), [(4, 150), (16, 100), (128, 60)])
@pytest.mark.parametrize("heavy", [False, True])
def test_equal_parts_are_rarely_called_slow(parts: int, acceptances: int, heavy: bool) -> None:
    """The seeds are fixed. This catches gross errors only: `benchmarks/slow_parts.py` simulates thousands."""
    alarms = sum(bool(slow(fleet(seed, parts, 3, heavy))) for seed in range(acceptances))
    assert alarms <= 0.05 * acceptances


def test_one_repeat_of_noisy_equal_parts_is_rarely_called_slow() -> None:
    """Nobody knows that the noise is 20 %. With the prior of several repeats almost all would alarm."""
    chance, alarms = random.Random(1), 0
    for _ in range(150):
        values = [{part: {1: math.exp(chance.gauss(0, 0.2))} for part in range(4)} for _ in range(3)]
        alarms += bool(slow({f"{number}": Peers(one) for number, one in enumerate(values)}))
    assert alarms <= 0.05 * 150


@pytest.mark.slow
def test_without_the_correction_equal_parts_would_be_called_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outliers.statistics, "holm", lambda p_values: list(p_values))
    assert sum(bool(slow(fleet(seed, 128, 3, False))) for seed in range(20)) > 10


@pytest.mark.parametrize(
    ("medians", "expected"),
    [
        ([100.0, 100.0, 90.0], {2}),
        ([*[100.0] * 127, 90.0], {127}),
        # Two slow parts do not hide each other, and a third of a fleet may be slow.
        ([*[100.0] * 6, 92.0, 92.1], {6, 7}),
        ([*[100.0] * 14, 95.0, 70.0], {14, 15}),
        ([*(100.0 + part / 50 for part in range(24)), *[93.0] * 8], set(range(24, 32))),
        # Fast parts are not slow and make no others slow.
        ([*[100.0] * 14, 110.0, 112.0], set()),
        # Of two parts, or of two halves, nobody can tell which is slow; of three, a fast one leaves two.
        ([100.0, 50.0], set()),
        ([99.5, 100.0, 70.0, 69.5], set()),
        ([100.0, 100.0, 70.0, 70.0], set()),
        ([100.5, 100.0, 70.0, 70.5], set()),
        ([100.0, 88.0, 160.0], set()),
    ],
)
def test_slow_parts_are_found_and_others_are_not_called_slow(medians: list[float], expected: set[int]) -> None:
    assert slow({"step": peers(*medians)}) == expected


def test_one_repeat_finds_what_is_far_slower() -> None:
    assert slow({"step": Peers({part: {1: value} for part, value in enumerate((100.0, 99.0, 101.0, 60.0))})}) == {3}
    assert not slow({"step": Peers({part: {1: value} for part, value in enumerate((100.0, 70.0, 140.0, 60.0))})})


def test_a_small_difference_is_not_called_slow_however_sure_it_is() -> None:
    figures = {"step": peers(*[100.0] * 127, 98.2)}
    assert not slow(figures)
    assert outliers.judge(figures)["step"][127].p_holm < outliers.SURE
    assert slow(figures, tolerance=0.01) == {127}


def test_a_part_that_is_slow_in_some_repeats_only_is_not_called_slow() -> None:
    values = {part: dict.fromkeys(range(1, 6), 100.0) for part in range(16)}
    values[3] = {1: 80.0, 2: 80.0, 3: 80.0, 4: 100.0, 5: 100.0}
    assert not slow({"step": Peers(values)})


def test_a_shared_drift_hides_nothing() -> None:
    """All parts become 20 % slower from round to round. One of them is 4 % slower than the others."""
    hours = {1: 1.0, 2: 0.8, 3: 0.64}
    values = {part: {k: 100 * hour * (0.96 if part == 5 else 1) for k, hour in hours.items()} for part in range(16)}
    assert slow({"step": Peers(values)}) == {5}


def test_of_a_time_less_is_better() -> None:
    figures = {"latency": peers(*[10.0] * 7, 12.5, less=True)}
    assert slow(figures) == {7}
    standing = outliers.judge(figures)["latency"][7]
    assert standing.distance == pytest.approx(-0.2)
    assert standing.others_median == pytest.approx(10.0)


def test_a_standing_tells_interval_distance_and_the_range_of_the_others() -> None:
    standing = outliers.judge({"step": peers(99.5, 100.0, 100.4, 80.0, 100.0)})["step"][3]
    assert (standing.low, standing.high) == (80 * 0.998, 80 * 1.002)
    assert standing.coverage == pytest.approx(0.75)
    assert (standing.others, standing.others_median) == (4, pytest.approx(100.0))
    assert (standing.others_low, standing.others_high) == (pytest.approx(-0.005), pytest.approx(0.004))
    assert standing.distance == pytest.approx(-0.2)
    of_two = outliers.judge({"step": peers(100.0, 50.0)})["step"]
    assert of_two[0].p is None and of_two[1].distance == pytest.approx(-0.5)


def test_parts_whose_repeats_are_missing_are_judged_with_the_others() -> None:
    values = {part: dict.fromkeys((1, 2, 3), 100.0 + part / 10) for part in range(8)}
    values[2] = {1: 90.0, 3: 90.1}
    values[7] = {}
    judged = outliers.judge({"step": Peers(values)})["step"]
    assert [part for part, standing in judged.items() if standing.slow] == [2]
    assert 7 not in judged
