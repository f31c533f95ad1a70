"""From records to a summary: what counts, what is refused, and what the summary says about implausible figures."""

import json
from pathlib import Path
from typing import Any

import pytest

from report_fixture import (
    V100,
    group_of,
    jitter,
    observed,
    record,
    spec,
    summarized,
    write_failed,
    write_record,
    write_series,
    write_study,
    write_summary,
)
from throughline.files import UserError
from throughline.records import CellRecord, read_summary
from throughline.report.analysis import advice, summary
from throughline.study.runs import read_spec


def cell_of(paths: list[Path], repeats: int | None = None) -> CellRecord:
    return summary.summarize(paths, repeats=repeats or len(paths)).frameworks["torch"]["1n1g"]


def test_a_published_study_comes_out_as_printed(tmp_path: Path) -> None:
    """test_tables.py has its figures. Each framework has a baseline of its own."""
    found = read_summary(write_summary(write_study(tmp_path)["bz32_fp32"], repeats=7))
    assert set(found.frameworks) == set(found.environment) == {"torch", "mxnet-horovod"}
    assert found.frameworks["torch"]["1n1g"].speedup == 1.0
    cells = found.frameworks["mxnet-horovod"]
    assert list(cells) == ["1n1g", "1n2g", "1n4g", "1n8g", "2n8g", "4n8g"]
    six, last = cells["2n8g"], cells["4n8g"]
    assert (six.n, six.n_ok, six.values[0]) == (7, 6, None)
    assert any("6 of 7" in text for text in six.warnings)
    assert last.efficiency == pytest.approx(24.4584 / 32, rel=1e-4)
    assert (last.global_batch, last.world_size, last.logs[0]) == (1024, 32, "mxnet-horovod/4n8g/run1.log")


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["a 1.5 %, 2 ms", "a 0.7 %, 2 ms", "b"], ["a 1.5 %, 2 ms", "b"]),
        (["4 of 100", "4 of 100", "10 of 100"], ["10 of 100"]),
        (["torch 2.13.0 on 1n1g", "torch 2.12.0 on 1n1g"], ["torch 2.13.0 on 1n1g", "torch 2.12.0 on 1n1g"]),
        (["on 2026-11-02", "on 2026-11-03"], ["on 2026-11-02", "on 2026-11-03"]),
    ],
)
def test_texts_that_differ_in_their_numbers_alone_are_one(tmp_path: Path, texts: list[str], said: list[str]) -> None:
    """The largest numbers remain. Versions, dates and topologies are no numbers."""
    assert advice.merged(texts) == said
    runs = [record(spec(repeat=n), 100.0, warnings=[text]) for n, text in enumerate(texts, start=1)]
    assert cell_of([write_record(tmp_path, run) for run in runs]).warnings == said


@pytest.mark.parametrize(
    ("warmup", "step_s", "timed", "said"),
    [(2, 1.0, 3, "3 of 100 steps were timed, the fewest that a run times"),
     (3, 0.2, 9, "9 of 100 steps were timed, as many as runs.steps.max_total_seconds allows; raise max_total_seconds"),
     (20, 0.32, 40, "40 of 100 steps")],
)  # fmt: skip
def test_a_cut_window_says_what_left_so_few_steps(
    tmp_path: Path, warmup: int, step_s: float, timed: int, said: str
) -> None:
    cut: dict[str, Any] = {"steps": {"max_total_seconds": 3.0}} if timed < 40 else {}
    run = record(spec(**cut), 32 / step_s, steps_timed=timed, warnings=["max_total_seconds 3: cut"] if cut else [])
    (warning,) = cell_of([write_record(tmp_path, run | {"warmup_steps": warmup})]).warnings
    assert warning.startswith(said)


def test_figures_are_not_rounded(tmp_path: Path) -> None:
    place = write_summary(write_series(tmp_path, {"1n1g": [100 / 3, 200 / 3]}), repeats=2)
    cell = json.loads(place.read_text())["frameworks"]["torch"]["1n1g"]
    assert (cell["values"], cell["average_speed"]) == ([100 / 3, 200 / 3], 50.0)


def test_only_ok_repeats_enter_the_median(tmp_path: Path) -> None:
    paths = write_series(tmp_path, {"1n1g": [100.0, 101.0, 102.0]})
    paths += [*write_failed(tmp_path, "invalid", repeats=[4]), *write_failed(tmp_path, "oom", repeats=[5])]
    cell = cell_of(paths, repeats=6)
    assert cell.median_speed == pytest.approx(101)
    assert (cell.n, cell.n_ok, cell.values[3:]) == (6, 3, [None] * 3)
    assert cell.statuses == {"ok": 3, "invalid": 1, "oom": 1}
    assert cell.reasons == ["because invalid", "because oom"]


@pytest.mark.parametrize(
    ("status", "why"),
    [("", "there are no runs on its baseline, 1n1g"), ("invalid", "its baseline, 1n1g, has no valid repeat"),
     ("oom", "its baseline, 1n1g, has no valid repeat")],
)  # fmt: skip
def test_a_cell_without_a_baseline_has_no_speedup_and_says_why(tmp_path: Path, status: str, why: str) -> None:
    paths = write_series(tmp_path, {"1n2g": [200.0, 201.0]}) + (write_failed(tmp_path, status) if status else [])
    (cell,) = group_of(summary.summarize(paths, repeats=2)).measured
    assert cell.no_speedup == why
    assert cell.median and (cell.record.speedup, cell.record.efficiency) == (None, None)


def test_records_and_summaries_at_a_wrong_place_are_refused(tmp_path: Path) -> None:
    path = write_record(tmp_path, record(spec(), 100.0))
    with pytest.raises(UserError, match="bz32_fp32"):
        summary.write([path], tmp_path / "bert/bz64_fp32.json", repeats=1)
    with pytest.raises(UserError, match="two records"):
        summary.summarize([path, path], repeats=1)
    moved = tmp_path / "bert/bz64_fp32/torch/1n1g/run1.json"
    moved.parent.mkdir(parents=True)
    path.rename(moved)
    with pytest.raises(UserError, match="another run"):
        summary.summarize([moved], repeats=1)
    with pytest.raises(UserError):
        summary.summarize([], repeats=5)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"sequence_length": 64}, "sequence_length"),
        ({"options": {"clip": "norm"}}, "options.clip"),
        ({"seed": 7}, "seed"),
    ],
)
def test_another_configuration_is_refused(tmp_path: Path, changes: dict[str, Any], key: str) -> None:
    paths = [write_record(tmp_path, record(spec(repeat=n, **more), 100.0)) for n, more in ((1, {}), (2, changes))]
    with pytest.raises(UserError, match=key):
        summary.summarize(paths, repeats=2)


def test_records_of_another_configuration_than_the_present_one_are_refused(tmp_path: Path) -> None:
    paths = write_series(tmp_path, {"1n1g": [100.0, 101.0]})
    made, asked = (read_spec(json.dumps(spec(topology="2n1g", repeat=7, **changes))) for changes in ({}, {"seed": 7}))
    assert summary.summarize(paths, repeats=2, asked=made).frameworks["torch"]["1n1g"].n_ok == 2
    said = r"run1.json was run with seed = 42, and the configuration asks for 7"
    with pytest.raises(UserError, match=said) as caught:
        summary.summarize(paths, repeats=2, asked=asked)
    assert all(str(path) in str(caught.value) for path in paths), "all of them are made again at once"


@pytest.mark.parametrize(
    ("values", "words"),
    [([100.0, 93.0, 107.0, 98.0], ["apart"]), ([80.0, 100.0, 100.5, 99.8], ["first repeat", "warmup"]),
     (jitter(100.0), [])],
)  # fmt: skip
def test_a_wide_spread_and_a_slow_first_repeat_are_told_apart(
    tmp_path: Path, values: list[float], words: list[str]
) -> None:
    warnings = cell_of(write_series(tmp_path, {"1n1g": values})).warnings
    assert len(warnings) == bool(words) and all(word in warnings[0] for word in words)


def test_repeats_from_two_environments_are_never_pooled(tmp_path: Path) -> None:
    other = {**V100, "name": "Tesla V100-PCIE"}
    paths = [write_record(tmp_path, record(spec(repeat=repeat), 100.0 + repeat)) for repeat in (1, 4, 5)]
    paths += [write_record(tmp_path, record(spec(repeat=2), 50.0, device=other))]
    paths += [write_record(tmp_path, record(spec(repeat=3), 60.0, framework={"torch": "2.12.0"}))]
    cell = cell_of(paths)
    assert (cell.median_speed, cell.n, cell.n_ok) == (104.0, 5, 3)
    assert cell.values == [101.0, None, None, 104.0, 105.0]
    assert {tuple(part.repeats): part.values for part in cell.left_out} == {(2,): [50.0], (3,): [60.0]}
    first, second = cell.warnings
    assert "repeat 2 ran in another environment than repeats 1, 4, 5" in first and "Tesla V100-PCIE" in first
    assert "repeat 3" in second and "environment.framework.torch is 2.12.0 and 2.13.0" in second
    with pytest.raises(UserError, match="strict"):
        write_summary(paths, strict=True)
    assert not (tmp_path / "bert/bz32_fp32.json").exists()


def test_the_digest_decides_what_an_environment_is(tmp_path: Path) -> None:
    def write(digest: str, repeats: tuple[int, ...], speed: float, **changes: Any) -> list[Path]:
        runs = [record(spec(repeat=n), speed, commit=f"{n}" * 40) | changes for n in repeats]
        return [write_record(tmp_path, run | {"environment": {**run["environment"], "digest": digest}}) for run in runs]

    same = write("one", (1, 2), 100.0)
    cell = cell_of(same)
    assert (cell.n_ok, cell.left_out) == (2, [])
    cell = cell_of([*same, *write("two", (3, 4), 90.0, ended="2026-11-21T00:00:00Z")])
    assert cell.median_speed == 90.0  # if two groups are equally large, the newer one
    assert [(part.repeats, part.environment) for part in cell.left_out] == [([1, 2], "one")]


def test_what_happens_within_a_window_is_said(tmp_path: Path) -> None:
    heating, switching = (record(spec(repeat=repeat), 100.0) for repeat in (1, 2))
    heating["step_seconds"] = [0.3 + 0.001 * index for index in range(100)]
    switching["step_seconds"] = [0.3 + 0.0001 * (index * 7 % 31) + 0.05 * (index % 2) for index in range(100)]
    drift, modes = cell_of([write_record(tmp_path, value) for value in (heating, switching)]).warnings
    for text in ("steps get slower within the window", "(repeat 1)", "temperature"):
        assert text in drift
    for text in ("two modes", "50 % of the steps", "(repeat 2)"):
        assert text in modes


@pytest.mark.parametrize("name", ["sm_clock_mhz", "memory_clock_mhz"])
def test_a_clock_that_differs_between_repeats_is_a_warning(tmp_path: Path, name: str) -> None:
    values = [observed(record(spec(repeat=repeat), 100.0 + repeat)) for repeat in (1, 2, 3)]
    paths = [write_record(tmp_path, value) for value in values]
    assert not any("MHz" in text for text in cell_of(paths).warnings)
    usual = values[2]["telemetry"][0]["devices"][0][name]["mean"]
    values[2]["telemetry"][0]["devices"][0][name] = dict.fromkeys(("mean", "min", "max"), 0.9 * usual)
    write_record(tmp_path, values[2])
    (warning,) = (text for text in cell_of(paths).warnings if "MHz" in text)
    assert f"GPU 0 of node 0 ran at {usual:.0f} MHz in repeat " in warning
    assert f"and at {0.9 * usual:.0f} MHz in repeat 3: a lock" in warning


def test_no_device_is_no_error(tmp_path: Path) -> None:
    value = record(spec(), None, status="unsupported", reason="no such device") | {"device": None}
    assert summary.summarize([write_record(tmp_path, value)], repeats=1).device is None


def test_a_model_that_one_device_cannot_hold_is_compared_with_the_smallest_topology(tmp_path: Path) -> None:
    split = {"options": {"tensor_parallel": 2}}
    found = summarized(tmp_path, {"1n4g": 190.0, "1n2g": 100.0}, **split)
    two, four = found.frameworks["torch"].values()
    assert found.baselines == {"torch": "1n2g"}
    assert (two.speedup, two.speedup_range, two.replicas) == (1.0, None, 1)
    assert four.speedup == pytest.approx(1.9) and four.efficiency == pytest.approx(0.95)
    assert (four.replicas, four.global_batch, four.batch_size_per_device) == (2, 64, None)
    assert (found.batch, found.batch_size_per_device) == (32, None)
    assert "2 devices share one" in found.reasons["batch_size_per_device"]
    (note,) = (note for note in advice.notes(group_of(found)) if note.where == "torch")
    assert "relative to 1n2g" in note.text


@pytest.mark.parametrize(("status", "baseline", "speedup"), [("oom", "1n2g", None), ("unsupported", "1n4g", 1.0)])
def test_out_of_memory_moves_no_baseline(tmp_path: Path, status: str, baseline: str, speedup: float | None) -> None:
    split = {"options": {"tensor_parallel": 2}}
    paths = write_series(tmp_path, {"1n4g": 190.0}, **split)
    found = summary.summarize([*paths, *write_failed(tmp_path, status, topology="1n2g", **split)], repeats=5)
    assert (found.baselines, found.frameworks["torch"]["1n4g"].speedup) == ({"torch": baseline}, speedup)


def test_figures_of_a_workload_and_other_units(tmp_path: Path) -> None:
    paths = []
    for repeat, value in enumerate((3.0, 1.0, 2.0), start=1):
        figure = {"name": "top1", "unit": "%", "better": "more", "at": 10, "value": value}
        beside = {"figures": [figure, {**figure, "at": 20, "value": None}], "unit": "images/s", "loss": None}
        paths += write_series(tmp_path, {"1n1g": [100.0]}, {"1n1g": repeat}, beside=beside)
    found = summary.summarize(paths, repeats=3)
    (cell,) = found.frameworks["torch"].values()
    assert (found.unit, cell.other_units) == ("images/s", {"tokens/s": pytest.approx(12800.0)})
    assert [(one.name, one.at, one.value) for one in cell.figures] == [("top1", 10, 2.0), ("top1", 20, None)]


def test_kernels_and_unknown_settings_are_no_other_work() -> None:
    own = {"emulated_products": "in fp32", "recorded": "a step", "compiler": "Inductor", "compiling": "compiled"}
    first = {"gelu": "erf", "attention": "one", "dropout": [], "norm_epsilon": 1e-5, "layers": [0.1], **own}
    second = {"gelu": "tanh", "attention": "another", "dropout": [0.0], "norm_epsilon": None, "layers": [0.1, 0.0]}
    second["memory_format"] = "channels first"
    (note,) = advice.about_frameworks({"torch": first, "other": second}, {})["other"]
    assert note.startswith('gelu is "tanh" here')
    assert advice.other_work({"dropout": []}, {"dropout": [0.1]}) == ["dropout"]
