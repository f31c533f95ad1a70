"""Ratios: they are what scipy says of logarithms, A/A runs widen them, and planning agrees with the test."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from scipy import stats

from throughline import ratios
from throughline.ratios import Noise

ONE = [100.0, 101.0, 99.5, 100.7, 102.0]
TWO = [103.0, 104.0, 103.3, 102.1, 106.0]


@pytest.mark.parametrize("paired", [True, False])
def test_the_test_is_that_of_scipy_on_logarithms_in_both_directions(paired: bool) -> None:
    one, two = ([math.log(value) for value in values] for values in (ONE, TWO))
    told = stats.ttest_rel(two, one) if paired else stats.ttest_ind(two, one, equal_var=False)
    found = ratios.tested(ONE, TWO, paired=paired)
    ends = told.confidence_interval(ratios.INTERVAL)
    assert found and found.p == pytest.approx(told.pvalue)
    assert (found.low, found.high) == (pytest.approx(math.exp(ends.low)), pytest.approx(math.exp(ends.high)))
    assert found.log == pytest.approx(sum(two) / 5 - sum(one) / 5)
    back = ratios.tested(TWO, ONE, paired=paired)
    assert back and found.p == pytest.approx(back.p)
    assert (found.ratio, found.low) == (pytest.approx(1 / back.ratio), pytest.approx(1 / back.high))


def test_repeats_without_any_noise_or_too_few_of_them() -> None:
    same, twice = ratios.tested([3.0] * 3, [3.0] * 3, paired=False), ratios.tested([3.0] * 3, [6.0] * 3, paired=True)
    assert same and (same.p, same.low, same.high) == (1.0, 1.0, 1.0)
    assert twice and twice.p < 1e-9 and twice.low == pytest.approx(2.0)
    assert ratios.tested(ONE[:2], TWO, paired=False) is None
    equal = ratios.tested([1.0, 2.0, 4.0], [2.0, 1.0, 4.0], paired=False)
    assert equal and equal.p == 1.0 and equal.low < 0.5, "equal means do not hide the noise"


def test_a_a_runs_widen_an_interval_and_never_narrow_it() -> None:
    alone = ratios.tested(ONE, TWO, paired=True)
    again = ratios.tested([100.0, 100.2, 99.9], [103.0, 103.1, 102.8], paired=True)
    noise = ratios.between_measurements([again])
    assert noise and noise.variance == pytest.approx(again.log**2 - again.log_error**2) and noise.degrees == 1
    wide = ratios.tested(ONE, TWO, paired=True, noise=noise)
    assert wide and wide.p > 10 * alone.p and wide.high > alone.high and wide.ratio == alone.ratio
    calm = ratios.between_measurements([replace(again, ratio=1.0001)])
    assert calm == Noise(0.0, 1) and ratios.between_measurements([]) is None
    assert ratios.tested(ONE, TWO, paired=True, noise=Noise(0.0, 3)) == alone


def test_an_interval_is_outside_or_inside_a_limit_in_both_directions() -> None:
    found = ratios.tested(ONE, TWO, paired=True)
    back = ratios.tested(TWO, ONE, paired=True)
    for one in (found, back):
        assert one.beyond(0.0) and one.beyond(0.02) and not one.beyond(0.03)
        assert one.within(math.log1p(0.05)) and not one.within(0.03)


@pytest.mark.parametrize("paired", [True, False])
def test_planning_agrees_with_the_test(paired: bool) -> None:
    """So many repeats decide in 9 of 10 cases, and one fewer does not."""
    needed = ratios.repeats_needed(0.05, 0.02, 3, paired=paired)
    chance = random.Random(3)

    def decided(repeats: int) -> float:
        told = 0
        for _ in range(300):
            logs = [[chance.gauss(0, 0.02) for _ in range(repeats)] for _ in range(2)]
            found = ratios.tested(
                [math.exp(one) for one in logs[0]], [1.05 * math.exp(one) for one in logs[1]], paired=paired
            )
            told += found is not None and found.p < 0.05 / 3 and found.ratio > 1
        return told / 300

    assert decided(needed) > 0.85
    assert ratios.power(needed - 1, 0.05, 0.02, 3, paired=paired) < ratios.POWER
    assert ratios.least_difference(needed, 0.02, 3, paired=paired) == pytest.approx(0.05)
    assert ratios.least_difference(2, 0.02) is None and ratios.repeats_needed(0.001, 0.5) is None
