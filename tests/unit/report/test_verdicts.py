"""Results that tempt a report to say more than they show: real records with edited speeds, states and environments."""

import importlib.util
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from report_fixture import (
    CPU,
    V100,
    checked,
    frame,
    group_of,
    jitter,
    record,
    scoped,
    spec,
    summarized,
    write_failed,
    write_record,
    write_series,
    write_summary,
)
from throughline.records import Summary, read_summary
from throughline.report import answers
from throughline.report.analysis import cells, comparison, judged_pairs, machines, summary
from throughline.report.analysis.summary import Terms
from throughline.report.render import cell_columns, page, plots, run_environment
from throughline.report.topic import Scope
from throughline.report.topics import comparisons, cost, throughput
from throughline.study.result_sections import Goals, Price

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
H100 = {"kind": "cuda", "name": "NVIDIA H100 80GB HBM3", "count": 8, "fp16_native": True}
NOISE = {
    "1n1g": [100.0, 100.6, 99.5, 100.3, 99.8],
    "1n2g": [99.7, 100.4, 100.1, 99.4, 100.5],
    "mxnet-horovod": [100.5, 99.6, 100.2, 100.0, 99.3],
}
NOISE |= {"torch": NOISE["1n1g"], "jax": NOISE["1n2g"], "torch 2n8g": NOISE["1n1g"]}
WILD = [70.0, 130.0, 104.0, 85.0, 118.0]
Speeds = Mapping[str, float | list[float]]


def around(middle: float, cell: str = "torch") -> list[float]:
    """Return five repeats around `middle`, 0.4 % apart. Those of two frameworks or topologies have different noise."""
    return [middle * value / 100 for value in NOISE[cell]]


def series(speeds: Speeds) -> dict[str, list[float]]:
    return {cell: around(speed, cell) if isinstance(speed, float) else speed for cell, speed in speeds.items()}


def plain(root: Path, speeds: Speeds, name: str = "bert", **changes: Any) -> Summary:
    return summarized(root, series(speeds), benchmark=name, **changes)


def benchmark(root: Path, speeds: Speeds, name: str = "bert", **changes: Any) -> Summary:
    """Return a summary with these repeats of each framework, all of them shown to be equal."""
    return checked(plain(root, speeds, name, **changes), **{cell.split()[0]: "equal" for cell in speeds})


def test_a_median_in_the_middle_of_noise_is_no_equality(tmp_path: Path) -> None:
    wild = [60.0, 70.0, 100.1, 128.0, 130.0]
    scope = scoped(
        benchmark(tmp_path, {"torch": 100.0, "jax": wild}), benchmark(tmp_path, {"torch": 100.2}, "bert__aa")
    )
    (pair,) = scope.pairs
    assert abs(pair.ratio - 1) < 0.002 and pair.verdict == "inconclusive"
    assert pair.tested and not pair.tested.within(0.05)


@pytest.mark.parametrize("order", [["torch", "jax"], ["jax", "torch"]])
def test_an_a_a_run_is_the_floor_of_verdicts_in_any_order_of_the_frameworks(tmp_path: Path, order: list[str]) -> None:
    """torch measures 100, and 80 again: that is 1.25 times in one direction. jax with 122 lies within that."""
    speeds = {"torch": 100.0, "jax": 122.0}
    both = benchmark(tmp_path, {name: speeds[name] for name in order})
    scope = scoped(both, benchmark(tmp_path, {"torch": 80.0, "jax": 121.0}, "bert__aa"))
    (pair,) = scope.pairs
    assert pair.floor and pair.floor.share == pytest.approx(0.25)
    assert pair.verdict == "inconclusive" and judged_pairs.leader(scope.groups, scope.pairs) is None
    assert "differ by up to 25.0 % (2 of 2 compared)" in derived(scope, "bert__aa")


def test_one_noisy_a_a_pair_does_not_say_that_a_precision_gains_nothing(tmp_path: Path) -> None:
    full, again = (benchmark(tmp_path, {"torch": speed}, name) for name, speed in (("bert", 100.0), ("bert__aa", 70.0)))
    (pair,) = scoped(full, benchmark(tmp_path, {"torch": around(132.0, "jax")}, precision="bf16"), again).pairs
    assert pair.kind == "precisions" and pair.verdict == "inconclusive"


def test_a_lasting_effect_is_not_told_from_a_difference_without_a_a_runs(tmp_path: Path) -> None:
    """All repeats of jax are 3 % faster. The same measurement again is 3 % apart as well: that is no difference."""
    both = benchmark(tmp_path, {"torch": 100.0, "jax": 103.0})
    (alone,) = scoped(both).pairs
    assert (alone.verdict, alone.words) == ("faster", "faster in these runs")
    again = benchmark(tmp_path, {"torch": around(103.0, "jax"), "jax": around(100.2)}, "bert__aa")
    (pair,) = scoped(both, again).pairs
    assert pair.verdict == pair.words == "inconclusive"


def test_small_differences_have_enough_digits(tmp_path: Path) -> None:
    exact = [100.04, 100.639, 99.5401, 100.34, 99.8399]
    (row,) = comparisons.table(scoped(benchmark(tmp_path, {"torch": 100.0, "jax": exact}))).lines
    assert "1.000398" in [entry.text for entry in row.entries]


def test_five_repeats_tell_eight_frameworks_apart(tmp_path: Path) -> None:
    names = ["torch", "torch-horovod", "mxnet-horovod", "hf-loop", "hf-trainer", "paddle", "jax", "tensorflow"]
    wave = [0.0, 0.02, -0.015, 0.01, -0.02]
    speeds = {
        name: [100 * (1.15 if index % 2 else 1.0) * (1 + wave[(repeat + index) % 5]) for repeat in range(5)]
        for index, name in enumerate(names)
    }
    pairs = scoped(benchmark(tmp_path, speeds)).pairs
    over_torch = [pair.verdict for pair in pairs if pair.base.framework == "torch"]
    assert over_torch == ["faster", "no difference"] * 3 + ["faster"]
    assert {pair.tests for pair in pairs} == {28}


@pytest.mark.parametrize(("late", "test"), [(False, "paired t-test of rounds"), (True, "Welch's t-test")])
def test_the_design_chooses_the_test(tmp_path: Path, late: bool, test: str) -> None:
    """A repeat that ran after the others is no part of its round. The speeds are the same."""
    records = []
    for minute, (repeat, name) in enumerate((n, name) for n in range(1, 6) for name in ("torch", "jax")):
        value = record(spec(framework=name, repeat=repeat), NOISE[name][repeat - 1])
        at = 59 if late and (name, repeat) == ("torch", 2) else minute
        records.append(write_record(tmp_path, value | {"started": f"2026-11-20T12:{at:02d}:00Z"}))
    found = summary.summarize(records, repeats=5)
    assert test in [entry.value for entry in comparisons.table(scoped(found)).lines[0].entries]
    without = {
        name: {"1n1g": series["1n1g"].model_copy(update={"starts": []})} for name, series in found.frameworks.items()
    }
    assert not scoped(found.model_copy(update={"frameworks": without})).pairs[0].in_rounds


STAR: dict[str, float] = {"torch": 100.0, "mxnet-horovod": 104.0, "jax": 120.0}


def star(scope: Scope) -> list[str]:
    """Return the frameworks that the overview marks."""
    return [best.cell.framework for best in cell_columns.best_cells(scope, "") if best.leads]


def twice(root: Path, speeds: Mapping[str, float] = STAR) -> Summary:
    return benchmark(root, {name: 1.001 * value for name, value in speeds.items()}, "bert__aa")


def test_a_star_needs_every_other_framework_beaten_beyond_the_a_a_runs(tmp_path: Path) -> None:
    three = benchmark(tmp_path, STAR)
    scope = scoped(three, twice(tmp_path))
    pairs = ["mxnet-horovod over torch", "jax over torch", "jax over mxnet-horovod"]
    assert [pair.what for pair in scope.pairs] == pairs
    assert star(scope) == ["jax"] and answers.headline(scope).startswith("jax trains")
    assert star(scoped(three)) == [], "a verdict about these runs alone is no star"
    close = STAR | {"mxnet-horovod": 119.0}
    near = scoped(benchmark(tmp_path / "near", close), twice(tmp_path / "near", close))
    text = answers.headline(near)
    assert star(near) == [] and text.startswith("No framework is shown to be the fastest")
    assert "no comparison finds jax faster than mxnet-horovod." in text


def test_a_star_needs_the_checks_of_all_and_the_same_work(tmp_path: Path) -> None:
    three, again = benchmark(tmp_path, STAR), twice(tmp_path).model_copy(update={"equivalence": None})
    equal, dropout = dict.fromkeys(STAR, "equal"), {name: {"dropout": 0.1} for name in STAR}
    compiled = {"dropout": 0.1, "compiler": "Inductor", "compiling": "compiled"}
    for unequal in ("jax", "torch"):
        for verdict in ("oom", "unsupported", "different"):
            assert star(scoped(checked(three, **equal | {unequal: verdict}), again)) == [], verdict
    assert star(scoped(three.model_copy(update={"equivalence": None}), again)) == []
    for settings, stars in ((dropout | {"jax": {"dropout": 0.0}}, []), (dropout | {"torch": compiled}, ["jax"])):
        assert star(scoped(three.model_copy(update={"settings": settings}), again)) == stars


@pytest.mark.parametrize(("status", "stars"), [("oom", []), ("invalid", []), ("unsupported", ["jax"])])
def test_a_star_needs_a_figure_of_every_framework_that_can_have_one(
    tmp_path: Path, status: str, stars: list[str]
) -> None:
    three = benchmark(tmp_path, STAR)
    dead = summary.summarize(write_failed(tmp_path, status, repeats=range(1, 6), framework="paddle"), repeats=5)
    scope = scoped(three.model_copy(update={"frameworks": three.frameworks | dead.frameworks}), twice(tmp_path))
    text = answers.headline(scope)
    assert star(scope) == stars
    assert ("fastest: there is no figure on 1n1g (fp32) of paddle. jax trains" in text) is not stars
    assert ("comparisons with other frameworks confirm it" in text) is bool(stars)


def test_more_devices_do_not_win_against_a_framework_that_broke_off_there(tmp_path: Path) -> None:
    """jax is faster on one device, and its runs on 16 have no record."""
    speeds = {"torch": 100.0, "torch 2n8g": 1500.0, "jax": 120.0}
    scope = scoped(benchmark(tmp_path, speeds), twice(tmp_path, speeds))
    assert star(scope) == [] and "confirm it" not in answers.headline(scope)
    assert "there is no figure on 2n8g (fp32) of jax" in answers.headline(scope)


def test_frameworks_that_are_fastest_elsewhere_are_compared_there(tmp_path: Path) -> None:
    """jax is the fastest at batch 32, torch is so at batch 64."""
    scope = scoped(
        benchmark(tmp_path, {"torch": 100.0, "jax": 120.0}),
        benchmark(tmp_path, {"torch": 119.5, "jax": 90.0}, batch=64),
    )
    pair = next(pair for pair in scope.pairs if pair.family == "the fastest against those elsewhere")
    assert (pair.what, pair.where) == ("jax over torch", "1n1g, fp32, batch 32 against 1n1g, fp32, batch 64")
    assert pair.verdict != "faster" and pair.tests == 6
    assert "finds jax faster than torch" in answers.headline(scope)


@pytest.mark.parametrize(
    ("device", "half", "best"),
    [
        (CPU, around(103.0, "jax"), "fp16"),
        (CPU, [60.0, 130.0, 106.0, 85.0, 140.0], "fp32"),
        (V100, [60.0, 130.0, 106.0, 85.0, 140.0], "fp16"),
        (V100, around(100.2, "jax"), "fp32"),
    ],
)
def test_the_headline_takes_the_best_usable_precision(
    tmp_path: Path, device: dict[str, Any], half: list[float], best: str
) -> None:
    """On emulated units fp16 has to be faster. On real ones it must not be slower or the same."""
    full = benchmark(tmp_path, {"torch": around(100.0)}, device_found=device)
    scope = scoped(full, benchmark(tmp_path, {"torch": half}, precision="fp16", device_found=device))
    headline = answers.headline(scope)
    assert f" in {best} with" in headline and ("does not count" in headline) is (best == "fp32")


def test_a_check_that_ran_out_of_memory_is_not_called_other_mathematics(tmp_path: Path) -> None:
    both = benchmark(tmp_path, {"torch": 100.0, "jax": 120.0})
    (pair,) = scoped(checked(both, torch="equal", jax="oom")).pairs
    assert pair.what == "jax (unchecked) over torch"
    assert "not shown to compute" in pair.reason and "its equivalence check ran out of memory" in pair.reason
    headline = answers.headline(scoped(checked(both, torch="oom", jax="oom")))
    assert "its equivalence check ran out of memory" in headline and "does not" not in headline


@pytest.mark.parametrize(("quick", "best"), [(100.45, 0), (110.0, 1)])
def test_the_best_value_is_named_only_if_it_is_one(tmp_path: Path, quick: float, best: int) -> None:
    terms = Terms(prices={"V100": Price(per_hour=1.0, currency="EUR")})
    table = cost.table(scoped(plain(tmp_path, {"torch": 100.0, "jax": quick}, terms=terms)))
    assert sum(entry.kind == "best" for line in table.lines for entry in line.entries) == best
    doubt = "" if best else ": inconclusive"
    assert table.notes[0].startswith(f"best value{doubt}, samples for 1 EUR: jax 1n1g")
    assert best or "torch 1n1g, fp32, batch 32: 360,000" in table.notes[0]


def derived(scope: Scope, name: str) -> str:
    groups = [group for group in scope.everything if group.benchmark == name]
    return answers.derived(Scope(groups, scope.everything))


@pytest.mark.parametrize(
    ("synthetic", "said"),
    [(around(100.4, "jax"), "1 of 1 no difference in these runs; 1.004 times"),
     (around(140.0, "jax"), "1 of 1 faster in these runs; 1.400 times"), (WILD, "1 of 1 inconclusive; 0.989 times")],
)  # fmt: skip
def test_what_synthetic_batches_gain_is_the_verdict(tmp_path: Path, synthetic: list[float], said: str) -> None:
    without = benchmark(tmp_path, {"torch": synthetic}, "bert__synthetic")
    text = derived(scoped(benchmark(tmp_path, {"torch": 100.0}), without), "bert__synthetic")
    assert said in text and text.endswith("A gain is the cost of reading the data.")


def test_a_run_without_exchange_is_no_gain_within_noise(tmp_path: Path) -> None:
    alone = plain(tmp_path, {"1n1g": WILD, "1n2g": [1.6 * value for value in WILD]}, "bert__no_gradient_sync")
    text = derived(scoped(plain(tmp_path, {"1n1g": WILD, "1n2g": around(190.0)}), alone), "bert__no_gradient_sync")
    assert "1 of 1 inconclusive" in text and "A gain is no speedup of a training" in text


def doubts(found: Summary) -> list[str]:
    return [str(doubt.rule) for doubt in scoped(found).doubts]


@pytest.mark.parametrize(
    ("two", "rules", "warned"),
    [(around(201.0, "jax"), [], None), (around(230.0, "jax"), ["speedup over devices"], "slowed down"),
     (around(99.9, "jax"), [], None), (around(90.0, "jax"), ["more devices, slower"], None),
     ([201.0], [], "one repeat does not show by how much it varies"),
     ([400.0], [], "one repeat does not show by how much it varies")],
)  # fmt: skip
def test_a_row_within_noise_of_a_limit_is_not_doubtful(
    tmp_path: Path, two: list[float], rules: list[str], warned: str | None
) -> None:
    """One repeat beyond its devices is no doubt, and blames nobody."""
    found = plain(tmp_path, {"1n1g": around(100.0)[: len(two)], "1n2g": two}, repeats=len(two))
    assert doubts(found) == rules
    texts = [text for text in found.frameworks["torch"]["1n2g"].warnings if "more than the 2 devices" in text]
    assert [warned in text for text in texts] == [True] if warned else not texts
    assert len(two) > 1 or "slowed down" not in texts[0]
    scope = scoped(found)
    assert scope.best and ("more than 2 devices" in answers.scales(scope, scope.best).text) == bool(warned)
    assert not (warned and "efficiency" in [what for _, _, what in answers.figures(scope.best)])


@pytest.mark.parametrize(
    ("middle", "rules"),
    [(226.0, []), (236.0, ["above the datasheet", "above the measured matrix product"])],
)
def test_a_row_above_its_device_within_noise_is_not_doubtful(tmp_path: Path, middle: float, rules: list[str]) -> None:
    """224.5 samples/s are the datasheet's 15.7 TFLOPS. The product of these runs would be 222.2 samples/s."""
    values = [middle * share for share in (0.96, 0.98, 1.0, 1.02, 1.04)]
    records = write_series(tmp_path, {"1n1g": values}, complete=True)
    for path in records:
        value = json.loads(path.read_text())
        product = value["work"]["flops_per_s"] * 222.2 / value["samples_per_s"]
        value["work"] |= {"matmul_flops_per_s": product, "matmul_share": value["samples_per_s"] / 222.2}
        path.write_text(json.dumps(value))
    assert doubts(summary.summarize(records, repeats=5)) == rules


def test_products_of_one_device_are_not_compared_over_topologies(tmp_path: Path) -> None:
    """The rate of a product is that of a device, so only the training is slower on two devices."""
    records = write_series(tmp_path, {"1n1g": around(100.0), "1n2g": around(90.0)}, complete=True)
    found = scoped(summary.summarize(records, repeats=5)).doubts
    assert [(doubt.rule, doubt.row.unit) for doubt in found] == [("more devices, slower", "samples/s")]


def test_simulated_nodes_are_not_the_fastest_if_there_are_others(tmp_path: Path) -> None:
    paths = write_series(tmp_path, series({"1n1g": 100.0, "1n2g": 150.0}))
    paths += write_series(tmp_path, series({"torch 2n8g": 160.0}), hosts="simulated")
    scope = scoped(summary.summarize(paths, repeats=5))
    assert scope.best and str(scope.best.topology) == "1n2g"
    assert "does not count" not in answers.headline(scope)


def test_one_repeat_has_no_range(tmp_path: Path) -> None:
    found = summarized(tmp_path, {"1n1g": [100.0], "1n2g": [190.0]}, repeats=1)
    cell, scope = found.frameworks["torch"]["1n2g"], scoped(found)
    assert (cell.speedup, cell.speedup_range, cell.efficiency_range) == (pytest.approx(1.9), None, None)
    assert scope.best and scope.pairs[0].range is None
    assert answers.scales(scope, scope.best).text.startswith("1.90 times one device on 2 devices (1n2g), 95 %")


def test_the_probability_of_a_range_counts_valid_repeats(tmp_path: Path) -> None:
    records = write_series(tmp_path, {"1n1g": 100.0, "1n2g": jitter(190.0, 3)})
    records += write_failed(tmp_path, "invalid", repeats=(4, 5), topology="1n2g")
    text = dict(run_environment.setup(summary.summarize(records, repeats=5)))["range"]
    assert text.startswith("of 3 valid repeats") and "75.0 % probability" in text
    assert "93.8 %" in dict(run_environment.setup(summary.summarize(records[:5], repeats=5)))["range"]


@pytest.mark.parametrize(("repeats", "said"), [(2, "2 valid repeats cannot decide the only comparison"), (4, "")])
def test_too_few_repeats_and_what_would_do(tmp_path: Path, repeats: int, said: str) -> None:
    """Unequal numbers of repeats: the smaller side decides whether there is a test."""
    scope = scoped(plain(tmp_path, {"1n1g": 100.0, "1n2g": around(190.0)[:repeats]}))
    text = comparison.too_few(scope.pairs)
    assert text is None if not said else said in (text or "")


@pytest.mark.parametrize(("margin", "verdict"), [(0.05, "no difference"), (0.003, "inconclusive")])
def test_the_margin_of_the_configuration_is_that_of_the_verdict(tmp_path: Path, margin: float, verdict: str) -> None:
    (pair,) = scoped(plain(tmp_path, {"torch": 100.0, "jax": 100.3}, terms=Terms(margin=margin))).pairs
    assert pair.verdict == verdict


@pytest.mark.slow
def test_simulated_reports_are_rarely_wrong_and_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    """The short form of benchmarks/verdicts.py, with fixed seeds."""
    place = importlib.util.spec_from_file_location("verdicts", BENCHMARKS / "verdicts.py")
    assert place and place.loader
    verdicts = importlib.util.module_from_spec(place)
    monkeypatch.setitem(sys.modules, "verdicts", verdicts)
    place.loader.exec_module(verdicts)
    by_name = {kind.name: kind for kind in verdicts.KINDS}
    normal = verdicts.simulate(by_name["normal, without A/A runs"], 60)
    assert normal.wrong <= 0.05 and normal.decided > 0.9 and normal.equal > 0.6
    hour = verdicts.simulate(by_name["a slow hour is shared, 10 %"], 12)
    apart = verdicts.simulate(by_name["such an hour, not in rounds"], 12)
    assert hour.decided > 0.9 > 0.5 > apart.decided, "rounds keep what a slow hour takes"
    lasting = verdicts.simulate(by_name["these effects, without A/A runs"], 12)
    again = verdicts.simulate(by_name["fixed effects of 1 %, noise 0.5 %"], 12)
    assert lasting.wrong > 0.5 > 0.2 > again.wrong, "no test cures this; A/A runs do"


def moved(root: Path) -> list[Path]:
    """Write repeats 1 and 2 of a V100, and 3 to 5 of an H100: the figure is that of the H100."""
    return [
        write_record(root, record(spec(repeat=n), 100.0 if n < 3 else 400.0, device=V100 if n < 3 else H100))
        for n in range(1, 6)
    ]


def test_a_row_has_the_device_and_the_price_of_its_kept_runs(tmp_path: Path) -> None:
    prices = {"V100": Price(per_hour=1.0, currency="EUR"), "H100": Price(per_hour=5.0, currency="EUR")}
    records = moved(tmp_path) + write_series(tmp_path, {"1n2g": around(195.0)}, device_found=V100)
    found = summary.summarize(records, repeats=5, terms=Terms(prices=prices))
    one, two = found.frameworks["torch"].values()
    group, scope, names = group_of(found), scoped(found), [H100["name"], V100["name"]]
    assert (one.median_speed, found.device and found.device.name) == (400.0, H100["name"])
    assert one.cost and two.cost and (one.cost.price_per_device_hour, two.cost.price_per_device_hour) == (5.0, 1.0)
    assert [cell.facts["device.name"] for cell in group.measured] == names
    assert [row.device for row in scope.results.values()] == names
    assert [cell.device.name for cell in group.measured if cell.device] == group.devices == names
    shown = throughput.results(group, lambda group, log: None)
    place = [column.heading for column in shown.columns].index("device")
    assert [line.entries[place].text for line in shown.lines] == names
    assert list(frame(throughput.csv(scope))["device"]) == names
    assert dict(run_environment.setup(found, group.devices))["device"].split(" and ") == names
    both = machines.compare({machines.HERE: [group], "there": [group]}, prices)
    assert [cell.price_per_device_hour for cell in both] == [5.0, 5.0, 1.0, 1.0]


def test_the_steps_of_a_repeat_that_is_left_out_are_not_shown(tmp_path: Path) -> None:
    place = write_summary(moved(tmp_path))
    found = read_summary(place)
    ((_, steps),) = page.RunLogs.of({place: found}, tmp_path / "report.html").step_times(*cells.groups([found]))
    assert len(steps) == 3 and {round(step, 2) for run in steps for step in run} == {0.08}


def test_a_speedup_over_another_machine_is_nowhere(tmp_path: Path) -> None:
    records = write_series(tmp_path, {"1n1g": around(100.0)}, device_found=CPU)
    records += write_series(tmp_path, {"1n2g": around(390.0)}, device_found=V100)
    goals = Goals.model_validate({"efficiency": {"at_least": 0.8}, "utilization": {}})
    found = summary.summarize(records, repeats=5, terms=Terms(goals=goals))
    cell, scope = found.frameworks["torch"]["1n2g"], scoped(found)
    assert (cell.speedup, cell.efficiency, cell.speedup_range, cell.efficiency_range) == (None,) * 4
    assert any("unlike things" in warning for warning in cell.warnings)
    best = scope.best
    assert best and "its baseline, 1n1g, ran in another environment" in answers.scales(scope, best).text
    assert "busy" not in answers.limits(scope, best).text and scope.pairs[0].verdict == "not comparable"
    efficiency, utilization = found.goals or []
    assert efficiency.verdict == "not measured"
    assert "its baseline has no valid repeat, or ran elsewhere" in efficiency.why
    assert (utilization.verdict, utilization.where) == ("not measured", "torch 1n2g"), "a GPU's use is not a CPU's"
    drawn = throughput.plot(scope.groups[0], plots.LIGHT)
    assert not [line for line in drawn.axes[0].lines if line.get_linestyle() == ":"], "no ideal from another machine"
