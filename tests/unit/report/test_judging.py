"""Goals and prices: what passes, what fails, what cannot be decided, and what it costs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from report_fixture import CPU, V100, asked, jitter, observed, record, spec, write_record, write_series
from throughline.files import UserError
from throughline.records import Device, Summary
from throughline.report.analysis import cells, cost, summary
from throughline.report.analysis.summary import Terms
from throughline.report.render import head
from throughline.study.result_sections import Goals, Price


def judged(paths: list[Path], **goals: Any) -> Summary:
    usual = {"efficiency": {"from_nodes": 20, "at_least": 0.8}, "utilization": {}}
    return summary.summarize(paths, repeats=5, terms=Terms(goals=Goals.model_validate(usual | goals)))


def verdicts(found: Summary) -> dict[str, tuple[str, str]]:
    return {goal.name: (goal.verdict, goal.why) for goal in found.goals or ()}


def test_efficiency_is_judged_from_its_number_of_nodes_on(tmp_path: Path) -> None:
    speeds = {"1n1g": 100.0, "8n1g": 700.0, "20n1g": 1700.0, "32n1g": 2400.0}
    paths = write_series(tmp_path, {topology: jitter(speed) for topology, speed in speeds.items()})
    verdict, why = verdicts(judged(paths))["efficiency"]
    assert (verdict, why) == ("fail", "75.0 % on torch 32n1g, the lowest")
    verdict, why = verdicts(judged(paths[:15]))["efficiency"]
    assert (verdict, why) == ("pass", "85.0 % on torch 20n1g, the lowest")
    verdict, why = verdicts(judged(paths[:10]))["efficiency"]
    assert (verdict, why) == ("not measured", "no topology has 20 nodes and more")
    assert verdicts(judged(paths[:10], efficiency={"from_nodes": 8, "at_least": 0.9}))["efficiency"][0] == "fail"
    assert "its baseline has no valid repeat" in verdicts(judged(paths[10:15]))["efficiency"][1]


def test_the_page_says_met_not_met_or_cannot_be_told(tmp_path: Path) -> None:
    group = cells.groups([judged(write_series(tmp_path, {"1n1g": jitter(100.0)}, device_found=CPU))])
    assert [(verdict, why) for verdict, _, why in head.judged(group)] == [
        ("cannot be told", "no topology has 20 nodes and more"),
        ("met", "97.0 % on torch 1n1g, the lowest (fp32, batch 32)"),
    ]
    strict = judged(write_series(tmp_path, {"1n1g": jitter(100.0)}, device_found=CPU), utilization={"at_least": 0.99})
    assert [verdict for verdict, *_ in head.judged(cells.groups([strict]))] == ["cannot be told", "not met"]
    assert head.judged(cells.groups([summary.summarize(write_series(tmp_path, {"1n1g": [1.0]}), repeats=1)])) == []


def test_a_range_on_both_sides_of_the_goal_is_said(tmp_path: Path) -> None:
    paths = write_series(tmp_path, {"1n1g": [99.0, 100.0, 101.0], "20n1g": [1580.0, 1610.0, 1640.0]})
    verdict, why = verdicts(judged(paths))["efficiency"]
    assert verdict == "pass"
    assert "its range, 78 % to 83 %, lies on both sides" in why


@pytest.mark.parametrize(
    ("speeds", "changes", "why"),
    [
        ({"1n1g": 100.0}, {}, "baselines have no efficiency of their own"),
        ({"1n1g": 100.0, "2n1g": 195.0}, {"hosts": "simulated"}, "simulated nodes do not count"),
        ({"1n1g": 100.0, "2n1g": 300.0}, {}, "torch 2n1g (150 %, more than its devices can give)"),
    ],
)
def test_a_goal_is_not_met_by_nothing(
    tmp_path: Path, speeds: dict[str, float], changes: dict[str, Any], why: str
) -> None:
    paths = write_series(tmp_path, {topology: jitter(speed) for topology, speed in speeds.items()}, **changes)
    verdict, said = verdicts(judged(paths, efficiency={"from_nodes": 1}))["efficiency"]
    assert verdict == "not measured" and why in said


def test_a_goal_with_a_cell_that_died_cannot_be_told(tmp_path: Path) -> None:
    """It has records without a figure, or no record at all. A cell that misses the goal decides nevertheless."""
    died = [
        write_record(tmp_path, record(spec(topology="4n1g", repeat=n), None, status="oom", reason="no")) for n in (1, 2)
    ]
    paths = write_series(tmp_path, {"1n1g": jitter(100.0), "2n1g": jitter(190.0)})
    found = judged([*paths, *died], efficiency={"from_nodes": 1})
    assert verdicts(found)["efficiency"] == (
        "not measured",
        "without a figure: torch 4n1g (no speedup: no valid repeat)",
    )
    assert head.judged(cells.groups([found]))[0][0] == "cannot be told"
    slow = write_series(tmp_path / "slow", {"1n1g": jitter(100.0), "2n1g": jitter(110.0)})
    assert verdicts(judged([*slow, *died], efficiency={"from_nodes": 1}))["efficiency"][0] == "fail"
    whole = judged(paths, efficiency={"from_nodes": 1})
    assert head.judged(cells.groups([whole]))[0][0] == "met"
    wanted = cells.read_asked(asked(["1n1g", "2n1g", "8n1g"]))
    verdict, _, why = head.judged(cells.groups([whole], wanted))[0]
    assert verdict == "cannot be told" and why == "no record: torch 8n1g (fp32, batch 32)"


def test_utilization_is_that_of_the_devices(tmp_path: Path) -> None:
    values = [record(spec(repeat=n), 100.0) for n in (1, 2, 3)]
    assert verdicts(judged([write_record(tmp_path, value) for value in values]))["utilization"] == (
        "not measured", "without a figure: torch 1n1g (no device told how busy it was (driver or permission))",
    )  # fmt: skip
    for value, share in zip(values, (0.7, 0.75, 0.9), strict=True):
        value["utilization"]["gpu"] = share
    verdict, why = verdicts(judged([write_record(tmp_path, value) for value in values]))["utilization"]
    assert (verdict, why) == ("fail", "75.0 % on torch 1n1g, the lowest")
    cpu = [write_record(tmp_path, record(spec(repeat=n), 100.0, device=CPU)) for n in (1, 2, 3)]
    assert verdicts(judged(cpu))["utilization"] == ("pass", "97.0 % on torch 1n1g, the lowest")


def used(n: int, topology: str, batch: int = 32, **shares: float) -> dict[str, Any]:
    """Return an ok record on GPUs with these shares of the machine in its telemetry."""
    value = observed(record(spec(topology=topology, repeat=n, batch=batch), 100.0), busy=shares.pop("gpu", 0.9))
    value["telemetry"][0]["machine"] |= {
        name: {"mean": share, "min": share, "max": share} for name, share in shares.items()
    }
    return value


def test_the_mean_utilization_over_all_cells_is_a_goal(tmp_path: Path) -> None:
    """A low cell is made up for by a high one, and a part of the hardware without a number has no goal."""
    shares = {"1n1g": {"gpu": 0.7, "disk_busy_share": 0.2}, "2n1g": {"gpu": 0.95, "disk_busy_share": 0.1}}
    paths = [write_record(tmp_path, used(n, where, **of)) for where, of in shares.items() for n in (1, 2, 3)]
    found = judged(paths, mean_utilization={"gpu": 0.8, "disk": 0.2, "network": 0.5})
    means = {goal.part: (goal.verdict, goal.why) for goal in found.goals or () if goal.part}
    assert means == {
        "gpu": ("pass", "82.5 %, the mean of 2 cells; the lowest is 70.0 % on torch 1n1g"),
        "disk": ("fail", "15.0 %, the mean of 2 cells; the lowest is 10.0 % on torch 2n1g"),
        "network": (
            "not measured",
            "without a figure: torch 1n1g (not sampled), torch 2n1g (not sampled)",
        ),
    }
    large = judged(paths, mean_utilization={"gpu": 0.8, "from_nodes": 2}).goals
    assert large and (large[-1].mean, large[-1].why) == (pytest.approx(0.95), "95.0 % on torch 2n1g")
    assert not [goal for goal in judged(paths).goals or () if goal.part]
    assert "part" not in (judged(paths).goals or [])[0].model_dump()


def test_the_page_takes_the_mean_over_all_batch_sizes(tmp_path: Path) -> None:
    summaries = []
    for batch, busy in ((32, 0.6), (64, 0.9)):
        values = [used(n, "1n1g", batch, gpu=busy) for n in (1, 2, 3)]
        summaries.append(judged([write_record(tmp_path, value) for value in values], mean_utilization={"gpu": 0.8}))
    (verdict, aim, why) = head.judged(cells.groups(summaries))[-1]
    assert (verdict, aim) == ("not met", "the GPUs are busy for at least 80 % of the time, in the mean of all cells")
    assert why == "75.0 %, the mean of 2 cells; the lowest is 60.0 % on torch 1n1g (fp32, batch 32)"
    wanted = cells.read_asked(asked(["1n1g", "8n1g"], repeats=3, batch=64))
    verdict, _, why = head.judged(cells.groups(summaries, wanted))[-1]
    assert (verdict, why) == ("cannot be told", "no record: torch 8n1g (fp32, batch 64)")


def test_without_goals_nothing_is_judged(tmp_path: Path) -> None:
    paths = write_series(tmp_path, {"1n1g": [1.0]})
    assert summary.summarize(paths, repeats=1, terms=Terms(goals=Goals())).goals is None
    assert summary.summarize(paths, repeats=1).goals is None


def named(name: str, kind: str = "cuda") -> Device:
    return Device.model_validate({**V100, "name": name, "kind": kind})


def test_the_longest_fitting_name_has_the_price() -> None:
    prices = {
        "A100": Price(per_hour=9.3, currency="CNY"),
        "A100-SXM4-80GB": Price(per_month=50112, devices=8, currency="CNY"),
    }
    short, node = cost.rate(named("NVIDIA A100-PCIE-40GB"), prices), cost.rate(named("NVIDIA A100-SXM4-80GB"), prices)
    assert isinstance(short, cost.Rate) and short.per_hour == 9.3
    assert isinstance(node, cost.Rate) and node.per_hour == pytest.approx(8.7)
    assert "720 hours" in node.source
    assert isinstance(cost.rate(named("NVIDIA A1000"), {"A100": prices["A100"]}), str)


def test_a_device_that_was_bought_is_spread_over_its_hours_of_use() -> None:
    prices = {
        "V100": Price(purchase=35040, years=4, currency="EUR"),
        "H100": Price(purchase=438000, years=5, devices=8, currency="EUR"),
    }
    alone, node = cost.rate(named("Tesla V100-SXM2-16GB"), prices), cost.rate(named("NVIDIA H100 80GB HBM3"), prices)
    assert isinstance(alone, cost.Rate) and alone.per_hour == 1.0
    assert "4 years of 8760 hours (assumed: never idle)" in alone.source
    assert isinstance(node, cost.Rate) and node.per_hour == 1.25
    assert [*Price(per_hour=1, currency="EUR").model_dump()] == ["per_hour", "per_month", "devices", "currency"]


def test_known_prices_and_unknown_ones() -> None:
    h100 = cost.rate(named("NVIDIA H100 80GB HBM3"), {})
    assert isinstance(h100, cost.Rate) and (h100.per_hour, h100.currency) == (2.49, "USD")
    assert "Lambda" in h100.source
    assert cost.rate(named("some CPU", "cpu"), {}) == (
        "no price is known for some CPU: set prices in the configuration"
    )


def test_what_a_task_costs(tmp_path: Path) -> None:
    """The arithmetic of a blog: with 1,000 samples/s on 4 devices at 5.3 an hour, 36 million samples take 10 hours and
    cost 212."""
    paths = write_series(tmp_path, {"1n4g": [990.0, 1000.0, 1010.0]})
    terms = Terms(prices={"V100-SXM2-16GB": Price(per_hour=5.3, currency="CNY")}, total_samples=36_000_000)
    found = summary.summarize(paths, repeats=3, terms=terms).frameworks["torch"]["1n4g"].cost
    assert found is not None
    assert (found.task_hours, found.task_price) == (pytest.approx(10.0), pytest.approx(212.0))
    assert found.per_million_samples == pytest.approx(212 / 36)
    assert found.samples_per_currency_unit == pytest.approx(36e6 / 212)
    assert (found.currency, found.reasons) == ("CNY", {})


def test_a_missing_price_is_no_zero(tmp_path: Path) -> None:
    paths = write_series(tmp_path, {"1n1g": [100.0]}, device_found=CPU)
    found = summary.summarize(paths, repeats=1, terms=Terms(total_samples=360_000)).frameworks["torch"]["1n1g"].cost
    assert found is not None
    assert (found.per_million_samples, found.task_price, found.task_hours) == (None, None, 1.0)
    assert "set prices" in found.reasons["per_million_samples"]
    none = summary.summarize(paths, repeats=1).frameworks["torch"]["1n1g"].cost
    assert none is not None and "total_samples is not set" in none.reasons["task_hours"]


def test_terms_travel_as_json(tmp_path: Path) -> None:
    text = json.dumps({"goals": Goals().model_dump(), "prices": {}, "total_samples": None})
    assert summary.read_terms(text).goals == Goals()
    with pytest.raises(UserError, match="--terms"):
        summary.read_terms('{"goals": 3}')


def with_energy(value: dict[str, Any], *joules: float | None) -> dict[str, Any]:
    node = {
        "node": 0, "interval_s": 1.0, "samples": 20, "cost_cpu_share": 0.001, "machine": {}, "processes": {},
        "devices": [{"index": index, "energy_j": one} for index, one in enumerate(joules)], "reasons": {},
    }  # fmt: skip
    return {**value, "telemetry": [node]}


def test_energy_per_sample(tmp_path: Path) -> None:
    run = record(spec(topology="1n2g"), 400.0)
    samples = 400.0 * run["window_s"]
    both = write_record(tmp_path, with_energy(run, samples, 2 * samples))
    cell = summary.summarize([both], repeats=1).frameworks["torch"]["1n2g"]
    assert cell.energy_j_per_sample == pytest.approx(3.0)
    silent = write_record(tmp_path, with_energy(run, samples, None))
    assert summary.summarize([silent], repeats=1).frameworks["torch"]["1n2g"].energy_j_per_sample is None
