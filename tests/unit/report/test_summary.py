"""From records to a summary: what counts, what is refused, and what the summary says about implausible figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from report_fixture import DLPERF_BERT_BS32, V100, jitter, record, spec, write_record, write_series, write_study
from throughline.files import UserError
from throughline.records import read_summary
from throughline.report.analysis import advice, cells, notes, summary
from throughline.study.runs import read_spec


def cell_of(root: Path, values: list[float], topology: str = "1n1g", **changes: Any) -> Any:
    paths = write_series(root, {topology: values}, **changes)
    return summary.summarize(paths, repeats=len(values)).frameworks["torch"][topology]


def test_a_published_study_comes_out_as_printed(tmp_path: Path) -> None:
    paths = write_series(tmp_path, DLPERF_BERT_BS32, {"2n8g": 2}, framework="mxnet-horovod")
    place = tmp_path / "bert/bz32_fp32.json"
    summary.write(paths, place, repeats=7)
    cells = read_summary(place).frameworks["mxnet-horovod"]
    assert list(cells) == ["1n1g", "1n2g", "1n4g", "1n8g", "2n8g", "4n8g"]
    printed = {t: (round(c.median_speed or 0, 2), round(c.speedup or 0, 2)) for t, c in cells.items()}
    assert printed["4n8g"] == (3671.45, 24.46)
    assert printed["2n8g"] == (1845.65, 12.30)
    six = cells["2n8g"]
    assert (six.n, six.n_ok, six.values[0]) == (7, 6, None)
    assert any("6 of 7" in text for text in six.warnings)
    assert cells["4n8g"].efficiency == pytest.approx(24.4584 / 32, rel=1e-4)
    assert (cells["4n8g"].global_batch, cells["4n8g"].world_size) == (1024, 32)
    assert cells["4n8g"].logs[0] == "mxnet-horovod/4n8g/run1.log"


def test_what_every_repeat_says_with_other_figures_is_said_once_with_their_range(tmp_path: Path) -> None:
    paths = [
        write_record(
            tmp_path, record(spec(repeat=n), 100.0, warnings=[f"node 0: {n}.5 of 2 cores", "fp16 is emulated"])
        )
        for n in (1, 2, 3)
    ]
    (busy, emulated) = summary.summarize(paths, repeats=3).frameworks["torch"]["1n1g"].warnings
    assert busy == "node 0: 1.5 to 3.5 of 2 cores"
    assert emulated == "fp16 is emulated"


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["a 1.5 %, 2 ms", "a 0.7 %, 2 ms", "b"], ["a 0.7 to 1.5 %, 2 ms", "b"]),
        (["9 to 10 of 100", "3 to 9 of 100", "4 of 100"], ["3 to 10 of 100"]),
        (["node 0: 1 of 2", "node 10: 3 of 2", "node 2: 3 of 2"], ["nodes 0, 2, 10: 1 to 3 of 2"]),
        (["x (repeat 1)", "x (repeats 2, 3)"], ["x (repeats 1, 2, 3)"]),
        (["torch 2.13.0 on 1n1g", "torch 2.12.0 on 1n1g"], ["torch 2.13.0 on 1n1g", "torch 2.12.0 on 1n1g"]),
        (["-1e-05", "-2e-05"], ["-2e-05 to -1e-05"]),
        (["on 2026-11-02", "on 2026-11-03"], ["on 2026-11-02", "on 2026-11-03"]),
    ],
)
def test_texts_that_differ_in_their_numbers_alone_are_one(texts: list[str], said: list[str]) -> None:
    """Each number has its own range; numbers that name things are a list; versions and topologies are no numbers."""
    assert list(notes.merged(texts)) == said


@pytest.mark.parametrize(
    ("warmup", "step_s", "timed", "said"),
    [
        (2, 1.0, 3, "3 of 100 steps were timed, the fewest that a run times"),
        (
            3,
            0.2,
            9,
            "9 of 100 steps were timed, as many as runs.steps.max_total_seconds allows; raise max_total_seconds",
        ),
    ],
)
def test_a_cut_window_says_what_left_so_few_steps(
    tmp_path: Path, warmup: int, step_s: float, timed: int, said: str
) -> None:
    run = record(spec(steps={"max_total_seconds": 3.0}), 32 / step_s, steps_timed=timed)
    path = write_record(tmp_path, {**run, "warmup_steps": warmup, "warnings": ["max_total_seconds 3: cut"]})
    (warning,) = summary.summarize([path], repeats=1).frameworks["torch"]["1n1g"].warnings
    assert warning.startswith(said)


def test_figures_are_not_rounded(tmp_path: Path) -> None:
    place = tmp_path / "bert/bz32_fp32.json"
    summary.write(write_series(tmp_path, {"1n1g": [100 / 3, 200 / 3]}), place, repeats=2)
    cell = json.loads(place.read_text())["frameworks"]["torch"]["1n1g"]
    assert cell["values"] == [100 / 3, 200 / 3]
    assert cell["average_speed"] == 50.0


def test_only_ok_repeats_enter_the_median(tmp_path: Path) -> None:
    paths = write_series(tmp_path, {"1n1g": [100.0, 101.0, 102.0]})
    for repeat, status in ((4, "invalid"), (5, "oom")):
        paths.append(
            write_record(tmp_path, record(spec(repeat=repeat), None, status=status, reason=f"because {status}"))
        )
    cell = summary.summarize(paths, repeats=6).frameworks["torch"]["1n1g"]
    assert cell.median_speed == pytest.approx(101)
    assert (cell.n, cell.n_ok) == (6, 3)
    assert cell.values[3:] == [None, None, None]
    assert cell.statuses == {"ok": 3, "invalid": 1, "oom": 1}
    assert cell.reasons == ["because invalid", "because oom"]


def test_a_cell_says_why_it_has_no_speedup(tmp_path: Path) -> None:
    """There are no runs on one device, or none of them is valid."""
    two = write_series(tmp_path, {"1n2g": [200.0, 201.0]})
    failed = write_record(tmp_path, record(spec(), None, status="invalid", reason="no good"))
    for paths, why in ((two, "there are no runs on its baseline, 1n1g"),
                       ([*two, failed], "its baseline, 1n1g, has no valid repeat")):  # fmt: skip
        (group,) = cells.groups([summary.summarize(paths, repeats=2)])
        assert [cell.no_speedup for cell in group.measured] == [why]


def test_no_baseline_no_speedup(tmp_path: Path) -> None:
    cell = cell_of(tmp_path, [200.0, 201.0], "1n2g")
    assert cell.median_speed
    assert cell.speedup is None
    assert cell.efficiency is None


def test_a_baseline_that_ran_out_of_memory_is_none(tmp_path: Path) -> None:
    paths = write_series(tmp_path, {"1n2g": [200.0]})
    paths.append(write_record(tmp_path, record(spec(), None, status="oom", reason="too large")))
    cells = summary.summarize(paths, repeats=1).frameworks["torch"]
    assert cells["1n2g"].speedup is None
    assert cells["1n1g"].median_speed is None


def test_each_framework_has_its_own_baseline(tmp_path: Path) -> None:
    study = write_study(tmp_path)
    found = summary.summarize(study["bz32_fp32"], repeats=7)
    assert set(found.frameworks) == {"torch", "mxnet-horovod"}
    assert found.frameworks["torch"]["1n1g"].speedup == 1.0
    assert set(found.environment) == {"torch", "mxnet-horovod"}


def test_a_record_under_another_name_is_refused(tmp_path: Path) -> None:
    path = write_record(tmp_path, record(spec(), 100.0))
    moved = tmp_path / "bert/bz64_fp32/torch/1n1g/run1.json"
    moved.parent.mkdir(parents=True)
    path.rename(moved)
    with pytest.raises(UserError, match="another run"):
        summary.summarize([moved], repeats=1)


def test_a_summary_under_another_name_is_refused(tmp_path: Path) -> None:
    path = write_record(tmp_path, record(spec(), 100.0))
    with pytest.raises(UserError, match="bz32_fp32"):
        summary.write([path], tmp_path / "bert/bz64_fp32.json", repeats=1)


def test_the_same_run_twice_is_refused(tmp_path: Path) -> None:
    path = write_record(tmp_path, record(spec(), 100.0))
    with pytest.raises(UserError, match="two records"):
        summary.summarize([path, path], repeats=1)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"sequence_length": 64}, "sequence_length"),
        ({"options": {"clip": "norm"}}, "options.clip"),
        ({"seed": 7}, "seed"),
    ],
)
def test_another_configuration_is_refused(tmp_path: Path, changes: dict[str, Any], key: str) -> None:
    paths = [
        write_record(tmp_path, record(spec(), 100.0)),
        write_record(tmp_path, record(spec(repeat=2, **changes), 100.0)),
    ]
    with pytest.raises(UserError, match=key):
        summary.summarize(paths, repeats=2)


def test_records_of_another_configuration_than_the_present_one_are_refused(tmp_path: Path) -> None:
    paths = write_series(tmp_path, {"1n1g": [100.0, 101.0]})
    made, asked = (read_spec(json.dumps(spec(topology="2n1g", repeat=7, **changes))) for changes in ({}, {"seed": 7}))
    assert summary.summarize(paths, repeats=2, asked=made).frameworks["torch"]["1n1g"].n_ok == 2
    with pytest.raises(
        UserError, match=r"run1.json was run with seed = 42, and the configuration asks for 7"
    ) as caught:
        summary.summarize(paths, repeats=2, asked=asked)
    assert all(str(path) in str(caught.value) for path in paths), "all of them are made again at once"


def test_nothing_to_summarize(tmp_path: Path) -> None:
    with pytest.raises(UserError):
        summary.summarize([], repeats=5)


def test_wide_spread_is_said(tmp_path: Path) -> None:
    assert any("apart" in text for text in cell_of(tmp_path, [100.0, 93.0, 107.0, 98.0]).warnings)


def test_a_slow_first_repeat_is_told_from_noise(tmp_path: Path) -> None:
    (warning,) = cell_of(tmp_path, [80.0, 100.0, 100.5, 99.8]).warnings
    assert "first repeat" in warning
    assert "warmup" in warning


def test_steady_repeats_are_not_warned_about(tmp_path: Path) -> None:
    assert cell_of(tmp_path, jitter(100.0, 5)).warnings == []


def test_more_than_linear_is_flagged(tmp_path: Path) -> None:
    paths = write_series(tmp_path, {"1n1g": jitter(100.0), "1n2g": jitter(230.0)})
    cells = summary.summarize(paths, repeats=5).frameworks["torch"]
    assert any("2 devices can give" in text for text in cells["1n2g"].warnings)
    assert not cells["1n1g"].warnings


def test_fewer_steps_are_said(tmp_path: Path) -> None:
    path = write_record(tmp_path, record(spec(), 100.0, steps_timed=40))
    warnings = summary.summarize([path], repeats=1).frameworks["torch"]["1n1g"].warnings
    assert warnings == [text for text in warnings if "40 of 100 steps" in text]


def test_repeats_from_two_environments_are_never_pooled(tmp_path: Path) -> None:
    other = {**V100, "name": "Tesla V100-PCIE"}
    paths = [write_record(tmp_path, record(spec(repeat=repeat), 100.0 + repeat)) for repeat in (1, 4, 5)]
    paths += [write_record(tmp_path, record(spec(repeat=2), 50.0, device=other))]
    paths += [write_record(tmp_path, record(spec(repeat=3), 60.0, framework={"torch": "2.12.0"}))]
    cell = summary.summarize(paths, repeats=5).frameworks["torch"]["1n1g"]
    assert (cell.median_speed, cell.n, cell.n_ok) == (104.0, 5, 3)
    assert cell.values == [101.0, None, None, 104.0, 105.0]
    assert {tuple(part.repeats): part.values for part in cell.left_out} == {(2,): [50.0], (3,): [60.0]}
    first, second = cell.warnings
    assert "repeat 2 ran in another environment than repeats 1, 4, 5" in first and "Tesla V100-PCIE" in first
    assert "repeat 3" in second and "environment.framework.torch is 2.12.0 and 2.13.0" in second
    place = tmp_path / "bert/bz32_fp32.json"
    with pytest.raises(UserError, match="strict"):
        summary.write(paths, place, repeats=5, strict=True)
    assert not place.exists()


def with_digest(value: dict[str, Any], digest: str, **changes: Any) -> dict[str, Any]:
    return {**value, "environment": {**value["environment"], "digest": digest}, **changes}


def test_the_digest_decides_what_an_environment_is(tmp_path: Path) -> None:
    same = [with_digest(record(spec(repeat=n), 100.0, commit=f"{n}" * 40), "one") for n in (1, 2)]
    cell = summary.summarize([write_record(tmp_path, value) for value in same], repeats=2).frameworks["torch"]["1n1g"]
    assert (cell.n_ok, cell.left_out) == (2, [])
    newer = [with_digest(record(spec(repeat=n), 90.0), "two", ended="2026-11-21T00:00:00Z") for n in (3, 4)]
    paths = [write_record(tmp_path, value) for value in [*same, *newer]]
    cell = summary.summarize(paths, repeats=4).frameworks["torch"]["1n1g"]
    assert cell.median_speed == 90.0  # if two groups are equally large, the newer one
    assert [(part.repeats, part.environment) for part in cell.left_out] == [([1, 2], "one")]


def test_scatter_and_ranges_are_kept(tmp_path: Path) -> None:
    paths = write_series(tmp_path, {"1n1g": [100.0, 101.0, 102.0], "1n2g": [190.0, 194.0, 198.0]})
    cells = summary.summarize(paths, repeats=3).frameworks["torch"]
    one, two = cells["1n1g"], cells["1n2g"]
    assert (one.speedup_range, one.efficiency_range) == (None, None)
    assert two.speedup_range == [190 / 102, 198 / 100]
    assert two.efficiency_range == [95 / 102, 99 / 100]
    assert (two.range_coverage, two.speedup_coverage) == (0.75, 0.5625)
    assert two.median_absolute_deviation == 4.0
    assert two.coefficient_of_variation == pytest.approx(4 / 194)


def test_what_happens_within_a_window_is_said(tmp_path: Path) -> None:
    heating = record(spec(repeat=1), 100.0)
    heating["step_seconds"] = [0.3 + 0.001 * index for index in range(100)]
    switching = record(spec(repeat=2), 100.0)
    switching["step_seconds"] = [0.3 + 0.0001 * (index * 7 % 31) + 0.05 * (index % 2) for index in range(100)]
    paths = [write_record(tmp_path, value) for value in (heating, switching)]
    drift, modes = summary.summarize(paths, repeats=2).frameworks["torch"]["1n1g"].warnings
    assert "steps get slower within the window" in drift and "(repeat 1)" in drift and "temperature" in drift
    assert "two modes" in modes and "50 % of the steps" in modes and "(repeat 2)" in modes


def test_a_baseline_from_elsewhere_is_said(tmp_path: Path) -> None:
    paths = write_series(tmp_path, {"1n1g": [100.0]})
    paths += write_series(tmp_path, {"1n2g": [190.0]}, framework_versions={"torch": "2.12.0"})
    cells = summary.summarize(paths, repeats=1).frameworks["torch"]
    assert any("unlike" in text for text in cells["1n2g"].warnings)
    assert (cells["1n2g"].speedup, cells["1n2g"].efficiency) == (None, None)


def test_no_device_is_no_error(tmp_path: Path) -> None:
    value = record(spec(), None, status="unsupported", reason="no such device")
    value["device"] = None
    found = summary.summarize([write_record(tmp_path, value)], repeats=1)
    assert found.device is None


def test_a_model_that_one_device_cannot_hold_is_compared_with_the_smallest_topology(tmp_path: Path) -> None:
    split = {"options": {"tensor_parallel": 2}}
    paths = write_series(tmp_path, {"1n4g": jitter(190.0), "1n2g": jitter(100.0)}, **split)
    found = summary.summarize(paths, repeats=5)
    two, four = found.frameworks["torch"].values()
    assert found.baselines == {"torch": "1n2g"}
    assert (two.speedup, two.speedup_range, two.replicas) == (1.0, None, 1)
    assert four.speedup == pytest.approx(1.9) and four.efficiency == pytest.approx(0.95)
    assert (four.replicas, four.global_batch, four.batch_size_per_device) == (2, 64, None)
    assert (found.batch, found.batch_size_per_device) == (32, None)
    assert "2 devices share one" in found.reasons["batch_size_per_device"]
    note = next(note for note in notes.notes(cells.groups([found])[0]) if "relative to" in note.text)
    assert (note.where, "relative to 1n2g" in note.text) == ("torch", True)


def test_out_of_memory_moves_no_baseline(tmp_path: Path) -> None:
    split = {"options": {"tensor_parallel": 2}}
    paths = write_series(tmp_path, {"1n4g": jitter(190.0)}, **split)
    paths.append(write_record(tmp_path, record(spec(topology="1n2g", **split), None, status="oom", reason="too large")))
    found = summary.summarize(paths, repeats=5)
    assert found.baselines == {"torch": "1n2g"}
    assert found.frameworks["torch"]["1n4g"].speedup is None
    unsupported = record(spec(topology="1n2g", **split), None, status="unsupported", reason="cannot")
    found = summary.summarize([*paths[:-1], write_record(tmp_path, unsupported)], repeats=5)
    assert found.baselines == {"torch": "1n4g"}


def test_figures_of_a_workload_and_other_units(tmp_path: Path) -> None:
    def figures(value: float) -> dict[str, object]:
        one = {"name": "top1", "unit": "%", "better": "more", "at": 10, "value": value}
        return {"figures": [one, {**one, "at": 20, "value": None}], "unit": "images/s", "loss": None}

    paths = [
        write_series(tmp_path, {"1n1g": [100.0]}, {"1n1g": repeat}, beside=figures(value))[0]
        for repeat, value in enumerate((3.0, 1.0, 2.0), start=1)
    ]
    found = summary.summarize(paths, repeats=3)
    (cell,) = found.frameworks["torch"].values()
    assert found.unit == "images/s"
    assert [(one.name, one.at, one.value) for one in cell.figures] == [("top1", 10, 2.0), ("top1", 20, None)]
    assert cell.other_units == {"tokens/s": pytest.approx(12800.0)}


def test_kernels_and_unknown_settings_are_no_other_work() -> None:
    stated = {"torch": {"gelu": "erf", "attention": "one"}, "other": {"gelu": "tanh", "attention": "another"}}
    stated["other"] |= {"memory_format": "channels first"}
    stated["torch"] |= {
        "emulated_products": "in fp32",
        "recorded": "a step",
        "compiler": "Inductor",
        "compiling": "compiled",
    }
    stated["torch"] |= {"dropout": [], "norm_epsilon": 1e-5, "layers": [0.1]}
    stated["other"] |= {"dropout": [0.0], "norm_epsilon": None, "layers": [0.1, 0.0]}
    (note,) = advice.about_frameworks(stated, {})["other"]
    assert note.startswith("gelu is tanh here")
    assert advice.other_work({"dropout": []}, {"dropout": [0.1]}) == ["dropout"]
