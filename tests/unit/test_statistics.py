"""From DLPerf's published repeats of MXNet BERT-base (batch 32, fp32, V100) we compute the figures that it printed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from report_fixture import DLPERF_BERT_BS32
from throughline import statistics

PRINTED = {
    "1n1g": (150.11, 1.00), "1n2g": (270.28, 1.80), "1n4g": (538.50, 3.59), "1n8g": (1058.60, 7.05),
    "2n8g": (1845.65, 12.30), "4n8g": (3671.45, 24.46),
}  # fmt: skip


@pytest.mark.parametrize("topology", PRINTED)
def test_the_published_medians_and_speedups(topology: str) -> None:
    value = statistics.median(DLPERF_BERT_BS32[topology])
    ratio = statistics.speedup(value, statistics.median(DLPERF_BERT_BS32["1n1g"]))
    assert (round(value, 2), round(ratio, 2)) == PRINTED[topology]


def test_a_misprint_is_found() -> None:
    """Batch 128, fp16, 4n8g: DLPerf printed 27.33, but its own medians give 27.23."""
    assert round(statistics.speedup(14822.31, 544.31) or 0, 2) == 27.23


@pytest.mark.parametrize(
    ("figure", "arguments", "expected"),
    [
        (statistics.median, ([],), None),
        (statistics.average, ([],), None),
        (statistics.speedup, (100.0, None), None),
        (statistics.speedup, (None, 100.0), None),
        (statistics.speedup, (100.0, 0.0), None),
        (statistics.efficiency, (None, 8), None),
        (statistics.efficiency, (24.46, 32), 0.764375),
        (statistics.spread, ([3.0],), None),
        (statistics.spread, ([95.0, 100.0, 105.0],), 0.1),
        (statistics.range_coverage, (1,), None),
        (statistics.range_coverage, (5,), 0.9375),
        (statistics.speedup_coverage, (1, 7), None),
        (statistics.speedup_coverage, (5, 7), 0.9375 * 0.984375),
        (statistics.speedup_range, ([], [1.0]), None),
        (statistics.speedup_range, ([2.1], [1.0, 1.1]), None),
        (statistics.speedup_range, ([180.0, 190.0, 200.0], [100.0, 95.0]), (1.8, 200 / 95)),
        (statistics.excess_of_first, ([1.0, 2.0],), None),
        (statistics.excess_of_first, ([80.0, 100.0, 101.0, 99.0],), 0.2),
        (statistics.median_absolute_deviation, ([5.0],), None),
        (statistics.median_absolute_deviation, (DLPERF_BERT_BS32["1n1g"],), 0.07),
        (statistics.median_absolute_deviation, ([1.0, 1.0, 1.0, 50.0],), 0.0),
        (statistics.coefficient_of_variation, ([5.0],), None),
        (statistics.coefficient_of_variation, ([90.0, 100.0, 110.0],), 0.1),
        (statistics.holm, ([],), []),
        (statistics.holm, ([0.5, 0.9],), [1.0, 1.0]),
        (statistics.holm, ([0.01, 0.04, 0.03],), [0.03, 0.06, 0.06]),
        (statistics.holm, ([0.01, 0.001], 28), [0.27, 0.028]),  # chosen from 28 by their values
    ],
)
def test_figures(figure: Callable[..., object], arguments: tuple[object, ...], expected: object) -> None:
    """Nothing is invented where there are too few values."""
    value = figure(*arguments)
    assert value is None if expected is None else value == pytest.approx(expected)


@given(st.lists(st.floats(min_value=1e-6, max_value=1e9), min_size=1, max_size=12))
def test_the_middle_lies_in_the_range(values: list[float]) -> None:
    for figure in (statistics.median(values), statistics.average(values)):
        assert min(values) * (1 - 1e-12) <= figure <= max(values) * (1 + 1e-12)
    assert statistics.median(values) == statistics.median(list(reversed(values)))


def test_the_repeats_are_those_that_were_published() -> None:
    """A file of DLPerf's repeats, written from report_fixture.py, has the digest of the published file."""
    lines = ["topology,batch_size_per_device,precision,repeat,samples_per_s"]
    for topology, values in DLPERF_BERT_BS32.items():
        first = 2 if topology == "2n8g" else 1  # its first run is missing
        lines += [f"{topology},32,fp32,{number},{value}" for number, value in enumerate(values, first)]
    digest = hashlib.sha256("".join(f"{line}\r\n" for line in lines).encode()).hexdigest()
    assert digest == "a6f87145ba7f33713e04b63f7d2515f6b25f0dd5dd6f34aa0d8f4f0397fca75e"


def test_the_range_covers_the_median_as_often_as_it_says() -> None:
    """Checked with 20,000 times five and seven draws from a skewed distribution whose median is known."""
    draw = np.random.Generator(np.random.Philox(key=1))
    for n in (5, 7):
        samples = draw.exponential(size=(20_000, n))
        covered = ((samples.min(axis=1) <= np.log(2)) & (np.log(2) <= samples.max(axis=1))).mean()
        assert covered == pytest.approx(statistics.range_coverage(n), abs=0.006)


def test_a_drift_is_told_from_noise() -> None:
    draw = np.random.Generator(np.random.Philox(key=2))
    noise = 0.1 + 0.002 * draw.standard_normal(90)
    heating = noise * np.linspace(1.0, 1.15, 90)
    share, p = statistics.drift(heating.tolist()) or (0.0, 1.0)
    assert share == pytest.approx(0.1, abs=0.02)
    assert p < 1e-6
    share, p = statistics.drift(noise.tolist()) or (1.0, 0.0)
    assert abs(share) < 0.02
    assert p > 0.01
    assert statistics.drift([0.1] * 49) is None


def test_two_modes_are_told_from_one() -> None:
    draw = np.random.Generator(np.random.Philox(key=3))
    steady = (0.1 + 0.004 * draw.standard_normal(100)).tolist()
    split = [value + (0.03 if index % 3 == 0 else 0.0) for index, value in enumerate(steady)]
    assert (statistics.dip_test(steady) or (0, 0))[1] > 0.05
    assert (statistics.dip_test(split) or (0, 1))[1] < 0.001
    (low, high), share = statistics.two_levels(split)
    assert (low, high) == (pytest.approx(0.1, abs=0.002), pytest.approx(0.13, abs=0.002))
    assert share == pytest.approx(34 / 100)
    assert statistics.dip_test(split[:49]) is None
