"""What starts and checkpoints cost, from ranks' reports to tables, and what an hour is computed to be spent on."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import training_fixtures
from report_fixture import frame, record, scoped, spec, summarized, write_record
from throughline.launch import costs
from throughline.messages import Checkpointed, ProgramRun, RankReport, Restarted, StartUp
from throughline.rank.run import STAGES
from throughline.records import MeasuredPoint, PredictedCell, PredictedSeries, Predictions, Summary
from throughline.report.analysis import summary
from throughline.report.analysis.summary import Terms
from throughline.report.topic import Scope
from throughline.report.topics import checkpoint, start_up

SECONDS = {"imports": 2.0, **dict.fromkeys(STAGES, 0.5), "first_step": 3.0}
COSTS = {
    "bytes": 3_000_000_000, "file_system": "lustre", "equal": True, "save_s": [10.0, 12.0, 11.0],
    "async_blocked_s": [1.0], "async_written_s": [9.0], "async_lost_s": [2.0], "load_cold_s": [6.0],
    "load_warm_s": [3.0], "restart_s": 60.0, "restart_equal": True, "reason": None,
}  # fmt: skip


def simulated(interval: float, cost: float, restart: float, mtbf: float, hours: float) -> float:
    """Train with failures at random until so many hours are over. Return the share of steps that were not lost."""
    draw = random.Random(7)
    now = kept = 0.0
    fails = draw.expovariate(1 / mtbf)
    while now < hours * 3600:
        if now + interval + cost <= fails:
            now, kept = now + interval + cost, kept + interval
            continue
        while True:  # a failure may interrupt a restart
            now, fails = fails, fails + draw.expovariate(1 / mtbf)
            if now + restart <= fails:
                break
        now += restart
    return kept / now


@pytest.mark.parametrize(("cost", "restart", "mtbf"), [(30.0, 300.0, 10_000.0), (200.0, 900.0, 3000.0)])
def test_the_shares_are_those_of_a_simulated_training_and_no_interval_is_better(
    cost: float, restart: float, mtbf: float
) -> None:
    best = checkpoint.interval_s(cost, mtbf)
    computed = checkpoint.shares(best, cost, restart, mtbf, waits=0.0)
    assert computed and sum(computed.values()) == pytest.approx(1.0)
    assert computed["trains"] == pytest.approx(simulated(best, cost, restart, mtbf, hours=50_000), rel=0.01)
    for other in (best / 1.3, best * 1.3):
        assert (checkpoint.shares(other, cost, restart, mtbf, 0.0) or {})["trains"] < computed["trains"]
    assert best == pytest.approx((2 * cost * mtbf) ** 0.5 - cost, rel=0.12), "Young's, to the first order"


def test_reading_is_a_part_of_the_steps_and_constant_failures_have_no_share() -> None:
    waiting = checkpoint.shares(100.0, 1.0, 10.0, 10_000.0, waits=0.1)
    none = checkpoint.shares(100.0, 1.0, 10.0, 10_000.0, waits=0.0)
    assert waiting and none and waiting["reading"] == pytest.approx(0.1 * none["trains"])
    assert checkpoint.shares(100.0, 1.0, 1e6, 1.0, 0.0) is None
    assert checkpoint.interval_s(50.0, 20.0) == 20.0, "Daly: where a save takes longer than 2 M, M"


def measured(root: Path, name: str, mtbf: float | None = None, **beside: Any) -> Summary:
    option = {"checkpoint": True} if name.endswith("__checkpoint") else {}
    terms = Terms(mtbf_hours=mtbf)
    values = {"1n8g": [800.0, 804.0, 796.0]}
    return summarized(root, values, 3, terms, benchmark=name, options=option, beside=beside)


def test_the_tables_have_what_was_measured_apart_from_what_is_computed(tmp_path: Path) -> None:
    own = measured(tmp_path, "bert", 8000.0)
    scope = scoped(own, measured(tmp_path, "bert__checkpoint", checkpoints=COSTS))
    row = frame(checkpoint.table(scope)).iloc[0]
    assert (row["save_s"], row["save_min_s"], row["load_cold_s"], row["restart_s"]) == (11.0, 11.0, 6.0, 60.0)
    assert (row["save_gb_per_s"], row["file_system"]) == (pytest.approx(3 / 11), "lustre")
    assert row["loaded_is_saved"] == "yes"
    computed = checkpoint.goodput_table(scope)
    assert computed
    hour = frame(computed).iloc[0]
    assert (hour["save"], hour["save_cost_s"], hour["mtbf_of_all_devices_hours"]) == ("beside the steps", 2.0, 1000.0)
    assert hour["computed_interval_s"] == pytest.approx((2 * 2.0 * 3.6e6) ** 0.5, rel=0.01)
    assert (
        0.99 < hour["computed_trains_share"] < 1.0
        and hour["computed_trains_share_min"] <= hour["computed_trains_share"]
    )
    assert hour["computed_samples_per_s"] < 800.0
    words = [column.heading + column.small for column in computed.columns if column.key.startswith("computed_")]
    assert all("computed" in word for word in words if word) and not any("measured" in word for word in words)


def test_a_prediction_carries_it_to_more_devices(tmp_path: Path) -> None:
    """256 times the devices fail 256 times as often, so a smaller share of the hour trains."""
    scope = scoped(measured(tmp_path, "bert", 8000.0), measured(tmp_path, "bert__checkpoint", checkpoints=COSTS))
    cell = PredictedCell(
        topology="256n8g", global_batch=65536, gradient_accumulation=1, samples_per_s=150_000.0, low=1.0, high=2e5,
        level=0.95, terms={}, repeats_log=0.0, model_log=0.0, times_beyond=256.0, warnings=[],
    )  # fmt: skip
    series = PredictedSeries(
        batch=32, precision="fp32", framework="torch", unit="samples/s", measured=list[MeasuredPoint](),
        predicted=[cell], not_predicted=[],
    )  # fmt: skip
    found = Predictions(schema_=3, benchmark="bert", asked=[], made_from={}, series=[series])
    table = checkpoint.goodput_table(Scope(scope.groups, scope.everything, predictions=found))
    rows = frame(table)
    assert rows["steps_are"].tolist() == ["measured", "predicted"] and rows["devices"].tolist() == [8, 2048]
    assert rows["computed_trains_share"][1] < rows["computed_trains_share"][0]
    assert rows["computed_interval_s"][1] == pytest.approx(rows["computed_interval_s"][0] / 16, rel=0.05)
    assert rows["computed_samples_per_s_at_least"][1] < 1.0 < rows["computed_samples_per_s"][1]
    assert rows["computed_samples_per_s_at_most"][1] == pytest.approx(4 / 3 * rows["computed_samples_per_s"][1])
    assert table and "as long as on 1n8g (measured)" in table.notes[-1]


def test_without_a_stated_time_between_failures_nothing_is_computed(tmp_path: Path) -> None:
    scope = scoped(measured(tmp_path, "bert"), measured(tmp_path, "bert__checkpoint", checkpoints=COSTS))
    assert checkpoint.table(scope) and checkpoint.goodput_table(scope) is None
    refused = {**COSTS, "save_s": [], "load_warm_s": [], "equal": None, "restart_s": None, "reason": "the disk is full"}
    other = scoped(measured(tmp_path, "b", 8000.0), measured(tmp_path, "b__checkpoint", checkpoints=refused))
    table = checkpoint.table(other)
    assert table and "the disk is full" in {entry.reason for entry in table.lines[0].entries}
    assert checkpoint.goodput_table(other) is None and checkpoint.table(scoped(measured(tmp_path, "c"))) is None


def reports(restarted: bool = False, **costs: Any) -> dict[int, RankReport]:
    told = {rank: Checkpointed(bytes=5, equal=True, save_s=[1.0], digest=f"rank {rank}", **costs) for rank in (0, 1)}
    made = {rank: training_fixtures.report(rank, checkpoints=cost) for rank, cost in told.items()}
    again = {rank: Restarted(130.0 + rank, f"rank {rank}") for rank in (0, 1)}
    return {
        rank: replace(each, measured=None, restarted=again[rank]) if restarted else each for rank, each in made.items()
    }


def test_a_restart_ends_with_its_last_rank_and_counts_only_if_all_loaded_what_was_saved() -> None:
    assert costs.checkpoints({0: training_fixtures.report()}, None) is None
    found = costs.checkpoints(reports(), (100.0, reports(restarted=True))) or {}
    assert (found["restart_s"], found["restart_equal"], found["equal"]) == (31.0, True, True)
    again = reports(restarted=True)
    again[1] = replace(again[1], restarted=Restarted(131.0, "rank 0"))
    assert (costs.checkpoints(reports(), (100.0, again)) or {})["restart_equal"] is False
    alone = costs.checkpoints(reports(reason="no room"), None) or {}
    assert (alone["reason"], alone["restart_s"]) == ("no room", None)
    assert all(report.is_killed for report in reports().values())
    assert not any(report.is_killed for report in (*reports(reason="x").values(), *again.values()))


def started(seconds: dict[str, float] = SECONDS, from_cache: bool | None = None, **report: Any) -> dict[str, Any]:
    measured = training_fixtures.report(start_up=StartUp(101.5, seconds, from_cache))
    found = costs.start_up({0: replace(measured, **report)}, began=100.0)
    assert found
    return found


def test_the_parts_are_the_whole_and_an_unknown_part_has_its_reason() -> None:
    whole = started(from_cache=False)
    assert (whole["total_s"], whole["launch_s"], whole["imports_s"], whole["reasons"]) == (9.0, 1.5, 2.0, {})
    call = started({part: 1.0 for part in SECONDS if part not in ("data", "optimizer")})
    assert (call["total_s"], call["data_s"], call["reasons"]["optimizer_s"]) == (6.5, None, "it trains nothing")
    program = started({"first_step": 4.0}, program=ProgramRun({}, 0.0, []))
    assert (program["total_s"], program["imports_s"]) == (5.5, None)
    assert "somebody else" in program["reasons"]["model_s"] and "cache" in program["reasons"]["from_cache"]
    assert costs.start_up({0: training_fixtures.report()}, 100.0) is None and costs.start_up({}, 100.0) is None


def test_a_first_step_that_compiles_is_told_from_one_with_the_cache(tmp_path: Path) -> None:
    starts = [started({**SECONDS, "first_step": 60.0}, False), started({**SECONDS, "first_step": 4.0}, True), started()]
    runs = [record(spec(repeat=repeat), 64.0) | {"start_up": start} for repeat, start in enumerate(starts, 1)]
    scope = scoped(summary.summarize([write_record(tmp_path, run) for run in runs], repeats=4))
    assert scope.measured[0].start_seconds == {1: 66.0, 2: 10.0, 3: 9.0}
    row = frame(start_up.table(scope)).iloc[0]
    figures = [row[key] for key in ("start_s", "start_min_s", "start_max_s", "first_step_s", "model_s", "step_s")]
    assert figures == pytest.approx([10.0, 9.0, 66.0, 4.0, 0.5, runs[0]["step_seconds"][0]])
    assert (row["first_step_without_cache_s"], row["first_step_with_cache_s"]) == (60.0, 4.0)
