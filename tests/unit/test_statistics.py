"""The figures DLPerf printed for MXNet BERT-base (batch 32, fp32, V100) come out of the repeats it published."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from report_fixture import DLPERF_BERT_BS32
from throughline import statistics

PRINTED = {
    "1n1g": (150.11, 1.00),
    "1n2g": (270.28, 1.80),
    "1n4g": (538.50, 3.59),
    "1n8g": (1058.60, 7.05),
    "2n8g": (1845.65, 12.30),
    "4n8g": (3671.45, 24.46),
}


@pytest.mark.parametrize("topology", PRINTED)
def test_the_published_medians_and_speedups(topology: str) -> None:
    median, speedup = PRINTED[topology]
    baseline = statistics.median(DLPERF_BERT_BS32["1n1g"])
    value = statistics.median(DLPERF_BERT_BS32[topology])
    assert value is not None
    assert round(value, 2) == median
    ratio = statistics.speedup(value, baseline)
    assert ratio is not None
    assert round(ratio, 2) == speedup


def test_six_repeats_have_a_median_between_two() -> None:
    values = DLPERF_BERT_BS32["2n8g"]
    assert len(values) == 6
    assert statistics.median(values) == pytest.approx((1844.1 + 1847.2) / 2)


def test_a_misprint_is_found() -> None:
    """Batch 128, fp16, 4n8g: 27.33 is printed, its own medians say 27.23."""
    assert round(statistics.speedup(14822.31, 544.31) or 0, 2) == 27.23


def test_nothing_is_invented() -> None:
    assert statistics.median([]) is None
    assert statistics.average([]) is None
    assert statistics.spread([]) is None
    assert statistics.spread([3.0]) is None
    assert statistics.speedup(100.0, None) is None
    assert statistics.speedup(None, 100.0) is None
    assert statistics.speedup(100.0, 0.0) is None
    assert statistics.efficiency(None, 8) is None
    assert statistics.range_coverage(1) is None
    assert statistics.excess_of_first([1.0, 2.0]) is None


def test_how_sure_the_range_is() -> None:
    assert statistics.range_coverage(5) == pytest.approx(0.9375)
    assert statistics.range_coverage(7) == pytest.approx(0.984375)


def test_efficiency_and_spread() -> None:
    assert statistics.efficiency(24.46, 32) == pytest.approx(0.764375)
    assert statistics.spread([95.0, 100.0, 105.0]) == pytest.approx(0.1)
    assert statistics.excess_of_first([80.0, 100.0, 101.0, 99.0]) == pytest.approx(0.2)


@given(st.lists(st.floats(min_value=1e-6, max_value=1e9), min_size=1, max_size=12))
def test_the_middle_lies_in_the_range(values: list[float]) -> None:
    for figure in (statistics.median(values), statistics.average(values)):
        assert figure is not None
        assert min(values) * (1 - 1e-12) <= figure <= max(values) * (1 + 1e-12)
    assert statistics.median(values) == statistics.median(list(reversed(values)))


def test_the_facts_are_the_published_file() -> None:
    source = Path(__file__).parents[3] / "shared/reference/seed000_mxnet_bert_bs32_repeats.csv"
    if not source.exists():
        pytest.skip("the published file is not beside this checkout")
    published: dict[str, list[float]] = {}
    with source.open(encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            published.setdefault(row["topology"], []).append(float(row["samples_per_s"]))
    assert published == DLPERF_BERT_BS32
