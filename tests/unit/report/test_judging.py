"""Goals and prices: what passes, what fails, what cannot be decided, and what it costs."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from report_fixture import (
    CPU,
    V100,
    asked,
    group_of,
    observed,
    record,
    scoped,
    spec,
    summarized,
    write_failed,
    write_record,
    write_series,
)
from throughline.files import UserError
from throughline.records import Cost, Device, Summary
from throughline.report.analysis import cells, cost, summary
from throughline.report.analysis import goals as goals_of
from throughline.report.analysis.summary import Terms
from throughline.report.render.tables import PAGE
from throughline.report.topics import cost as cost_topic
from throughline.study.result_sections import Goals, Price

NO_20_NODES = "no topology has 20 nodes and more"


def judged(paths: list[Path], **goals: Any) -> Summary:
    usual = {"efficiency": {"from_nodes": 20, "at_least": 0.8}, "utilization": {}}
    return summary.summarize(paths, repeats=5, terms=Terms(goals=Goals.model_validate(usual | goals)))


def verdicts(found: Summary) -> dict[str, tuple[str, str]]:
    return {goal.part or goal.name: (goal.verdict, goal.why) for goal in found.goals or ()}


def test_efficiency_is_judged_from_its_number_of_nodes_on(tmp_path: Path) -> None:
    paths = write_series(tmp_path, {"1n1g": 100.0, "8n1g": 700.0, "20n1g": 1700.0, "32n1g": 2400.0})
    for count, expected in (
        (20, ("fail", "75.0 % on torch 32n1g, the lowest")),
        (15, ("pass", "85.0 % on torch 20n1g, the lowest")),
        (10, ("not measured", NO_20_NODES)),
    ):
        assert verdicts(judged(paths[:count]))["efficiency"] == expected
    assert verdicts(judged(paths[:10], efficiency={"from_nodes": 8, "at_least": 0.9}))["efficiency"][0] == "fail"
    assert "its baseline has no valid repeat" in verdicts(judged(paths[10:15]))["efficiency"][1]


def test_the_page_says_met_not_met_or_cannot_be_told(tmp_path: Path) -> None:
    paths = write_series(tmp_path, {"1n1g": 100.0}, device_found=CPU)
    assert [(verdict, why) for verdict, _, why in goals_of.over_groups([group_of(judged(paths))])] == [
        ("cannot be told", NO_20_NODES), ("met", "97.0 % on torch 1n1g, the lowest (fp32, batch 32)"),
    ]  # fmt: skip
    strict = group_of(judged(paths, utilization={"at_least": 0.99}))
    assert [verdict for verdict, *_ in goals_of.over_groups([strict])] == ["cannot be told", "not met"]


@pytest.mark.parametrize("terms", [None, Terms(goals=Goals())])
def test_without_goals_nothing_is_judged(tmp_path: Path, terms: Terms | None) -> None:
    found = summarized(tmp_path, {"1n1g": [1.0]}, repeats=1, terms=terms)
    assert found.goals is None and goals_of.over_groups([group_of(found)]) == []


def test_a_range_on_both_sides_of_the_goal_is_said(tmp_path: Path) -> None:
    paths = write_series(tmp_path, {"1n1g": [99.0, 100.0, 101.0], "20n1g": [1580.0, 1610.0, 1640.0]})
    verdict, why = verdicts(judged(paths))["efficiency"]
    assert verdict == "pass" and "its range, 78 % to 83 %, lies on both sides" in why


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
    paths = write_series(tmp_path, speeds, **changes)
    verdict, said = verdicts(judged(paths, efficiency={"from_nodes": 1}))["efficiency"]
    assert verdict == "not measured" and why in said


def test_a_goal_with_a_cell_that_died_cannot_be_told(tmp_path: Path) -> None:
    """It has records without a figure, or no record at all. A cell that misses the goal decides nevertheless."""
    died = write_failed(tmp_path, "oom", repeats=(1, 2), topology="4n1g")
    paths, goal = write_series(tmp_path, {"1n1g": 100.0, "2n1g": 190.0}), {"from_nodes": 1}
    found = judged([*paths, *died], efficiency=goal)
    without = "without a figure: torch 4n1g (no speedup: no valid repeat)"
    assert verdicts(found)["efficiency"] == ("not measured", without)
    assert goals_of.over_groups([group_of(found)])[0][0] == "cannot be told"
    slow = write_series(tmp_path / "slow", {"1n1g": 100.0, "2n1g": 110.0})
    assert verdicts(judged([*slow, *died], efficiency=goal))["efficiency"][0] == "fail"
    whole = judged(paths, efficiency=goal)
    assert goals_of.over_groups([group_of(whole)])[0][0] == "met"
    wanted = cells.read_asked(asked(["1n1g", "2n1g", "8n1g"]))
    verdict, _, why = goals_of.over_groups(cells.groups([whole], wanted))[0]
    assert verdict == "cannot be told" and why == "no record: torch 8n1g (fp32, batch 32)"


@pytest.mark.parametrize(
    ("shares", "device", "expected"),
    [
        (None, V100, ("not measured",
                      "without a figure: torch 1n1g (no device told how busy it was (driver or permission))")),
        ((0.7, 0.75, 0.9), V100, ("fail", "75.0 % on torch 1n1g, the lowest")),
        (None, CPU, ("pass", "97.0 % on torch 1n1g, the lowest")),
    ],
)  # fmt: skip
def test_utilization_is_that_of_the_devices(
    tmp_path: Path, shares: tuple[float, ...] | None, device: dict[str, Any], expected: tuple[str, str]
) -> None:
    values = [record(spec(repeat=n), 100.0, device=device) for n in (1, 2, 3)]
    for value, share in zip(values, shares or (), strict=False):
        value["utilization"]["gpu"] = share
    assert verdicts(judged([write_record(tmp_path, value) for value in values]))["utilization"] == expected


def used(root: Path, topology: str, batch: int = 32, gpu: float = 0.9, **shares: float) -> list[Path]:
    """Write three ok records on GPUs with these shares of the machine in their telemetry."""
    values = [observed(record(spec(topology=topology, repeat=n, batch=batch), 100.0), busy=gpu) for n in (1, 2, 3)]
    for value in values:
        for name, share in shares.items():
            value["telemetry"][0]["machine"][name] = {"mean": share, "min": share, "max": share}
    return [write_record(root, value) for value in values]


def test_the_mean_utilization_over_all_cells_is_a_goal(tmp_path: Path) -> None:
    """A low cell is made up for by a high one, and a part of the hardware without a number has no goal."""
    paths = used(tmp_path, "1n1g", gpu=0.7, disk_busy_share=0.2) + used(tmp_path, "2n1g", gpu=0.95, disk_busy_share=0.1)
    means = verdicts(judged(paths, mean_utilization={"gpu": 0.8, "disk": 0.2, "network": 0.5}))
    assert {part: means[part] for part in ("gpu", "disk", "network")} == {
        "gpu": ("pass", "82.5 %, the mean of 2 cells; the lowest is 70.0 % on torch 1n1g"),
        "disk": ("fail", "15.0 %, the mean of 2 cells; the lowest is 10.0 % on torch 2n1g"),
        "network": ("not measured", "without a figure: torch 1n1g (not sampled), torch 2n1g (not sampled)"),
    }
    large = judged(paths, mean_utilization={"gpu": 0.8, "from_nodes": 2}).goals
    assert large and (large[-1].mean, large[-1].why) == (pytest.approx(0.95), "95.0 % on torch 2n1g")
    plain = judged(paths).goals
    assert plain and all(goal.part is None and "part" not in goal.model_dump() for goal in plain)


def test_the_page_takes_the_mean_over_all_batch_sizes(tmp_path: Path) -> None:
    summaries = [
        judged(used(tmp_path, "1n1g", batch, gpu=busy), mean_utilization={"gpu": 0.8})
        for batch, busy in ((32, 0.6), (64, 0.9))
    ]
    (verdict, aim, why) = goals_of.over_groups(cells.groups(summaries))[-1]
    assert verdict == "not met" and "at least 80 %" in aim and "in the mean of all cells" in aim
    assert why == "75.0 %, the mean of 2 cells; the lowest is 60.0 % on torch 1n1g (fp32, batch 32)"
    wanted = cells.read_asked(asked(["1n1g", "8n1g"], repeats=3, batch=64))
    verdict, _, why = goals_of.over_groups(cells.groups(summaries, wanted))[-1]
    assert (verdict, why) == ("cannot be told", "no record: torch 8n1g (fp32, batch 64)")


@pytest.mark.parametrize(
    ("name", "prices", "per_hour", "source"),
    [
        ("NVIDIA A100-PCIE-40GB", {"A100": {"per_hour": 9.3}, "A100-SXM4-80GB": {"per_hour": 1}}, 9.3, ""),
        ("NVIDIA A100-SXM4-80GB", {"A100": {"per_hour": 9.3}, "A100-SXM4-80GB": {"per_month": 50112, "devices": 8}},
         8.7, "720 hours"),
        ("Tesla V100-SXM2-16GB", {"V100": {"purchase": 35040, "years": 4}}, 1.0,
         "4 years of 8760 hours (assumed: never idle)"),
        ("NVIDIA H100 80GB HBM3", {"H100": {"purchase": 438000, "years": 5, "devices": 8}}, 1.25, ""),
        ("NVIDIA H100 80GB HBM3", {}, 2.49, "Lambda"),
        ("NVIDIA A1000", {"A100": {"per_hour": 9.3}}, None, "no price is known for NVIDIA A1000"),
        ("some CPU", {}, None, "no price is known for some CPU: set prices in the configuration"),
    ],
)  # fmt: skip
def test_the_longest_fitting_name_has_the_price(
    name: str, prices: dict[str, dict[str, float]], per_hour: float | None, source: str
) -> None:
    """A device that was bought is spread over its hours of use. Without a price of the user, a known one is taken."""
    stated = {key: Price.model_validate({**price, "currency": "EUR"}) for key, price in prices.items()}
    kind = "cpu" if name == "some CPU" else "cuda"
    found = cost.rate(Device.model_validate({**V100, "name": name, "kind": kind}), stated)
    if isinstance(found, cost.Rate):
        assert found.per_hour == pytest.approx(per_hour) and source in found.source
        assert found.currency == ("EUR" if prices else "USD")
    else:
        assert per_hour is None and source in found
    assert [*Price(per_hour=1, currency="EUR").model_dump()] == ["per_hour", "per_month", "devices", "currency"]


def cost_of(root: Path, values: dict[str, list[float]], terms: Terms, **changes: Any) -> Cost:
    ((cell,),) = (series.values() for series in summarized(root, values, 3, terms, **changes).frameworks.values())
    assert cell.cost is not None
    return cell.cost


def test_what_a_task_costs(tmp_path: Path) -> None:
    """The arithmetic of a blog: with 1,000 samples/s on 4 devices at 5.3 an hour, 36 million samples take 10 hours and
    cost 212."""
    terms = Terms(prices={"V100-SXM2-16GB": Price(per_hour=5.3, currency="CNY")}, total_samples=36_000_000)
    found = cost_of(tmp_path, {"1n4g": [990.0, 1000.0, 1010.0]}, terms)
    assert (found.task_hours, found.task_price) == (pytest.approx(10.0), pytest.approx(212.0))
    assert found.per_million_samples == pytest.approx(212 / 36)
    assert found.samples_per_currency_unit == pytest.approx(36e6 / 212)
    assert (found.currency, found.reasons) == ("CNY", {})


def test_a_machine_has_a_price_by_the_hour_and_by_the_month_at_once(tmp_path: Path) -> None:
    """A blog's A100: 9.3 an hour, and a node of 8 for 50,112 a month, which is 8.70 an hour."""
    prices = {"A100": Price(per_hour=9.3, per_month=50112, devices=8, currency="CNY")}
    device = {**V100, "name": "NVIDIA A100-PCIE-40GB"}
    made = summarized(tmp_path, {"1n4g": [100.0]}, 1, Terms(prices=prices), device_found=device)
    found = made.frameworks["torch"]["1n4g"].cost
    assert (found.price_per_device_hour, found.monthly_price_per_device_hour) == (9.3, pytest.approx(8.7))
    shown = cost_topic.table(scoped(made)).in_form(PAGE)
    assert [column.name for column in shown.columns[3:5]] == ["device hour (price)", "device hour (by the month)"]
    assert [entry.text for entry in shown.lines[0].entries[3:5]] == ["9.3 CNY", "8.7 CNY"]
    with pytest.raises(ValidationError, match="devices of that node, is needed"):
        Price(per_hour=9.3, per_month=50112, currency="CNY")


def test_a_missing_price_is_no_zero(tmp_path: Path) -> None:
    found = cost_of(tmp_path, {"1n1g": [100.0]}, Terms(total_samples=360_000), device_found=CPU)
    assert (found.per_million_samples, found.task_price, found.task_hours) == (None, None, 1.0)
    assert "set prices" in found.reasons["per_million_samples"]
    none = cost_of(tmp_path, {"1n1g": [100.0]}, Terms(), device_found=CPU)
    assert "total_samples is not set" in none.reasons["task_hours"]


def test_terms_travel_as_json() -> None:
    text = json.dumps({"goals": Goals().model_dump(), "prices": {}, "total_samples": None})
    assert summary.read_terms(text).goals == Goals()
    with pytest.raises(UserError, match="--terms"):
        summary.read_terms('{"goals": 3}')


@pytest.mark.parametrize(("second", "per_sample"), [(2.0, 3.0), (None, None)])
def test_energy_per_sample_needs_all_devices(tmp_path: Path, second: float | None, per_sample: float | None) -> None:
    run = observed(record(spec(topology="1n2g"), 400.0))
    samples = 400.0 * run["window_s"]
    for device, each in zip(run["telemetry"][0]["devices"], (1.0, second), strict=True):
        device["energy_j"] = each and each * samples
    cell = summary.summarize([write_record(tmp_path, run)], repeats=1).frameworks["torch"]["1n2g"]
    assert cell.energy_j_per_sample == pytest.approx(per_sample)
