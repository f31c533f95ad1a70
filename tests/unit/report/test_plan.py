"""The plan of a whole training: hours and money with their ranges, and the cheapest way that meets a deadline."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import pytest

from report_fixture import CPU, DLPERF_BERT_BS32, V100, jitter, write_series
from throughline.records import read_summary
from throughline.report.analysis import cells, plan, predictions, summary
from throughline.report.analysis.plan import Range
from throughline.report.topic import Scope
from throughline.report.topics import plan as topic
from throughline.report.topics import predictions as foretold
from throughline.report.topics import write_tables

SAMPLES = 1_200_000_000
PRICED = {"prices": {"V100": {"per_hour": 2.5, "currency": "EUR"}}, "total_samples": SAMPLES}


def scope(root: Path, deadline: float | None, repeats: int = 7, **more: Any) -> Scope:
    terms = summary.read_terms(json.dumps(more.pop("terms", PRICED)))
    series = {name: values[:repeats] for name, values in DLPERF_BERT_BS32.items()}
    own = root / "results/bert/bz32_fp32.json"
    summary.write(write_series(root / "results", series, **more), own, repeats, terms=terms)
    asked = predictions.Asked(topologies=["8n8g", "16n8g"], deadline_hours=deadline)
    groups = cells.groups([read_summary(own)])
    return Scope(groups, groups, predictions=predictions.derive({own.name: own}, {}, asked))


def test_hours_and_money_follow_from_speed_price_and_samples(tmp_path: Path) -> None:
    (ways,) = topic.of(scope(tmp_path, None))
    measured, foretold = ways[5], ways[6]
    assert (measured.predicted, foretold.predicted, str(foretold.topology)) == (False, True, "8n8g")
    assert measured.hours and measured.money and measured.hours.low and measured.hours.high
    assert measured.hours.middle == pytest.approx(SAMPLES / 3671.45 / 3600)
    assert measured.money.middle == pytest.approx(measured.hours.middle * 32 * 2.5)
    assert measured.hours.low < measured.hours.middle < measured.hours.high
    assert foretold.money and foretold.hours
    assert foretold.money.middle == pytest.approx(foretold.hours.middle * 64 * 2.5)
    assert foretold.hours.high == pytest.approx(SAMPLES / (foretold.speed.low or 0) / 3600)


def test_a_range_of_repeats_is_that_of_students_t() -> None:
    assert Range(2.0, 1.0, 4.0).inverse == Range(0.5, 0.25, 1.0)
    ratio = Range(8.0, 4.0, 16.0).over(Range(2.0, 1.0, 4.0))
    assert ratio.high and math.log(ratio.high / 4.0) == pytest.approx(math.sqrt(2) * math.log(2))
    assert Range(8.0, 4.0, 16.0).over(Range(2.0)) == Range(4.0)


def test_the_cheapest_way_meets_the_deadline_at_the_slow_end_of_its_range(tmp_path: Path) -> None:
    every = scope(tmp_path, 1e9)
    (ways,) = topic.of(every)
    slow = [way.hours.high for way in ways if way.hours and way.hours.high]
    assert len(slow) == 8 and slow == sorted(slow, reverse=True)
    (first,) = plan.cheapest(ways, slow[0] * 1.001, [])
    assert first is ways[0]
    (just,) = plan.cheapest(ways, slow[6] * 0.999, [])  # 8n8g is predicted to make it, but not with 90 %
    assert just is ways[7] and ways[6].hours and ways[6].hours.middle < slow[6] * 0.999
    assert plan.cheapest(ways, 1.0, []) == []


def test_the_sentences_say_what_is_predicted(tmp_path: Path) -> None:
    found = [finding.text for finding in topic.findings(scope(tmp_path, 80.0))]
    assert found[0].startswith(
        "The cheapest ways to train in at most 80 hours, with at least 90 % probability, inconclusive: torch on"
    )
    assert "torch on 8n8g (predicted)" in found[0] and "torch on 16n8g (predicted)" in found[0]
    assert "from 64 to 128 devices (predicted) you pay" in found[1] and "times the speed" in found[1]
    assert "nothing here trains in at most 1 hours" in topic.by_deadline(scope(tmp_path, 1.0))


def test_the_table_keeps_measured_and_predicted_apart(tmp_path: Path) -> None:
    write_tables(scope(tmp_path, 80.0), tmp_path / "tables")
    with (tmp_path / "tables/plan.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    for row in rows:
        other = "measured_" if row["kind"] == "predicted" else "predicted_"
        assert not any(value for key, value in row.items() if key.startswith(other))
        assert row[f"{row['kind']}_task_hours_at_most"]
    lines = (tmp_path / "tables/plan.md").read_text().splitlines()
    assert all(line.count("predicted ") >= 4 for line in lines if line.startswith("| torch | 8n8g"))
    assert not [line for line in lines if line.startswith("| torch | 4n8g") and "predicted" in line]


def test_without_prices_a_plan_counts_device_hours_and_a_single_repeat_promises_nothing(tmp_path: Path) -> None:
    found = topic.by_deadline(scope(tmp_path, 1e6, terms={"total_samples": SAMPLES}, device_found=CPU))
    assert "fewest device hours" in found and "torch on 1n1g" in found
    (ways,) = topic.of(scope(tmp_path / "one", 1e6, repeats=1))
    assert not any(way.meets(1e9) for way in ways if not way.predicted)


def mixed(root: Path, devices: dict[str, dict[str, Any]], deadline: float | None = None) -> Scope:
    """Return the plan of these topologies, each on its own device, with a prediction for 1n16g."""
    speeds = {"1n1g": 26.0, "1n2g": 200.0, "1n4g": 390.0, "1n8g": 770.0}
    paths = [
        path
        for name, device in devices.items()
        for path in write_series(root / "results", {name: jitter(speeds[name])}, device_found=device)
    ]
    own = root / "results/bert/bz32_fp32.json"
    summary.write(paths, own, 5, terms=summary.read_terms(json.dumps(PRICED)))
    groups = cells.groups([read_summary(own)])
    asked = predictions.Asked(topologies=["1n16g"], deadline_hours=deadline)
    return Scope(groups, groups, predictions=predictions.derive({own.name: own}, {}, asked))


def test_nothing_is_scaled_from_a_cpu_to_gpus(tmp_path: Path) -> None:
    every = mixed(tmp_path, {"1n1g": CPU, "1n2g": V100, "1n4g": V100, "1n8g": V100})
    (ways,) = topic.of(every)
    first, *others = plan.steps(ways)
    assert first.unlike and not any(step.unlike for step in others)
    table = topic.table(every)
    assert table
    last = [line.entries[-1].text for line in table.lines]
    assert last[1].startswith("not comparable: device is") and "times the speed" in last[2]
    (found,) = topic.findings(every)
    assert "from 8 to 16 devices (predicted)" in found.text
    assert every.predictions
    (series,) = every.predictions.series
    assert [point.topology for point in series.measured] == ["1n2g", "1n4g", "1n8g"]
    (cell,) = series.predicted
    assert any(text.startswith("left out: 1n1g (not comparable with 1n8g: device is") for text in cell.warnings)
    assert foretold.efficiency(every.groups[0], series, cell) is None, "its baseline ran on a CPU"


def test_a_prediction_from_one_comparable_row_is_refused_with_the_reason(tmp_path: Path) -> None:
    every = mixed(tmp_path, {"1n1g": CPU, "1n2g": CPU, "1n8g": V100})
    assert every.predictions
    (refused,) = every.predictions.series[0].not_predicted
    assert "only 1n8g was measured" in refused.why and "left out: 1n1g, 1n2g (not comparable with 1n8g" in refused.why
    assert [step.after.topology.world for [ways] in [topic.of(every)] for step in plan.steps(ways) if step.unlike] == [
        8
    ]


@pytest.mark.parametrize(("jax", "others"), [(100.4, {"torch", "jax"}), (110.0, {"jax"})])
def test_ways_that_are_not_told_apart_are_all_named(tmp_path: Path, jax: float, others: set[str]) -> None:
    """0.4 % between medians is no cheapest and no fastest way."""
    speeds = {"torch": jitter(100.0), "jax": [jax * value / 100 for value in (100.5, 99.6, 100.2, 100.0, 99.3)]}
    paths = [
        path
        for name, values in speeds.items()
        for path in write_series(tmp_path / "results", {"1n1g": values}, framework=name)
    ]
    own = tmp_path / "results/bert/bz32_fp32.json"
    summary.write(paths, own, 5, terms=summary.read_terms(json.dumps(PRICED)))
    groups = cells.groups([read_summary(own)])
    for deadline in (1e5, 1.0):
        asked = predictions.Asked(topologies=[], deadline_hours=deadline)
        text = topic.by_deadline(Scope(groups, groups, predictions=predictions.derive({own.name: own}, {}, asked)))
        assert {name for name in speeds if f"{name} on 1n1g" in text} == others
        assert ("inconclusive: jax on 1n1g" in text) is (len(others) > 1)


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        (Range(1.1, 1.09, 1.16), "9 to 16 % more"),
        (Range(1.0, 0.98, 1.05), "2 % less to 5 % more"),
        (Range(0.9, 0.88, 0.95), "5 to 12 % less"),
        (Range(1.1), "10 % more"),
    ],
)
def test_changes_in_words(ratio: Range, words: str) -> None:
    assert topic._more(ratio) == words
