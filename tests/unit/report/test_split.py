"""A step's time is split into compute, communication and input, from the differences of repeats with their noise.

Its exchange is compared with the same messages alone: bandwidths, and what they explain.
"""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.text import Text

from report_fixture import CPU, frame, group_of, page_of, read_csv, summarized
from throughline import numbers
from throughline.report import answers
from throughline.report.analysis import cells
from throughline.report.render import table_files, tables
from throughline.report.render.plots import PAGE
from throughline.report.topic import Scope
from throughline.report.topics import step_breakdown, throughput, write_plots, write_tables

Study = tuple[cells.Group, list[cells.Group]]


def measured(root: Path, name: str, values: dict[str, list[int]], **changes: Any) -> cells.Group:
    """Make a summary of BERT at batch 32. `values` are ms per step, one for each repeat."""
    speeds = {topology: [32 * int(topology[2]) * 1000 / ms for ms in steps] for topology, steps in values.items()}
    return group_of(summarized(root, speeds, repeats=3, benchmark=name, **changes))


def alone(root: Path, **changes: Any) -> cells.Group:
    values = {"1n1g": [101, 109, 102], "1n4g": [110, 121, 112]}
    return measured(root, "bert__no_gradient_sync", values, options={"gradient_sync": False}, **changes)


@pytest.fixture
def study(tmp_path: Path) -> Study:
    """Results of a machine on which the second repeat of everything is 10 ms slower."""
    whole = measured(tmp_path, "bert", {"1n1g": [100, 110, 101], "1n4g": [150, 160, 151]})
    synthetic = {"1n1g": [95, 105, 97], "1n4g": [152, 159, 156]}
    made = measured(tmp_path, "bert__synthetic", synthetic, options={"data": "synthetic"})
    return whole, [alone(tmp_path), made]


def test_what_no_run_tells_stays_with_compute(study: Study) -> None:
    group, derived = study
    assert step_breakdown.split(group, []) == []
    (four,) = step_breakdown.split(group, derived[:1])[1:]
    assert list(four.shown) == ["compute and input", "communication"]
    rows = frame(step_breakdown.table(Scope([group], derived[:1])))
    assert rows["compute_s"].isna().all() and rows["input_s"].isna().all()
    assert rows["communication_s"].tolist() == pytest.approx([0.0, 0.039])


def test_other_machines_split_nothing_and_it_is_said(tmp_path: Path, study: Study) -> None:
    group, (_, synthetic) = study
    kept, said = alone(tmp_path / "other", device_found=CPU), "device.kind is cuda"
    _, four = step_breakdown.split(group, [kept, synthetic])
    assert list(four.parts) == ["input"] and list(four.shown) == ["compute and communication", "input"]
    assert "the runs without it are not comparable: " in four.notes[0] and said in four.notes[0]
    scope = Scope([group], [kept])
    rows = frame(step_breakdown.table(scope))
    assert rows["communication_s"].isna().all() and said in rows["notes"][0]
    assert not list(step_breakdown.drawings(scope))
    text = answers.derived(Scope([kept], [group, kept]))
    assert text.startswith("2 of 2 are not compared with bert: ") and said in text


def test_runs_without_exchange_are_marked_wherever_they_have_a_speedup(tmp_path: Path, study: Study) -> None:
    group, (without, _) = study
    write_tables(Scope([without]), tmp_path / "tables")
    for name in ("throughput.md", "throughput.tex"):
        assert "torch (no exchange)" in (tmp_path / "tables" / name).read_text()
    for one, exchanges in ((without, False), (group, True)):
        assert set(frame(throughput.csv(Scope([one])))["gradient_sync"]) == {exchanges}
    assert "no exchange" in without.settings


@pytest.mark.slow
def test_files_and_page(tmp_path: Path, study: Study) -> None:
    scope = Scope([study[0]], study[1])
    write_plots(scope, tmp_path / "plots")
    write_tables(scope, tmp_path / "tables")
    assert {path.name for path in (tmp_path / "plots").iterdir()} >= {"bz32_fp32_split.svg", "bz32_fp32_split.png"}
    assert "communication_s" in (tmp_path / "tables/split.csv").read_text()
    text = page_of(tmp_path, *(group.summary for group in scope.everything), study[0].summary)
    assert text.count("bert: where a step's time goes") + text.count("bert: where a step&#39;s time goes") == 1
    assert "A gain is no speedup of a training" in text


def test_the_table_has_the_range_of_every_part(study: Study) -> None:
    def printed(derived: list[cells.Group]) -> tuple[list[str], list[list[str]]]:
        table = step_breakdown.table(Scope([study[0]], derived))
        shown = table and table.in_form(tables.PAGE)
        assert shown
        return table_files.printed(shown)

    header, (one, four) = printed(study[1])
    assert header[3:] == ["step, ms", "compute, ms", "communication, ms", "input, ms"]
    assert one[:5] == ["torch", "1n1g", "fp32, 32", "101", "96 (95 %)"]
    assert one[5:] == ["0, a single rank exchanges nothing", "5 (5 %), 4 to 5"]
    assert four[4:] == ["112 (74 %)", "39 (26 %), 39 to 40", "0 (0 %), -5 to 1, within the noise"]
    assert step_breakdown.Part([0.01]).doubt == "one pair, so its noise is not known"
    _, (_, four) = printed(study[1][:1])
    assert four[4:] == ["112 (74 %), compute and input", "39 (26 %), 39 to 40", "n/a"]


@pytest.mark.parametrize("times", [0, 8])
def test_many_bars_have_room_for_their_names(study: Study, times: int) -> None:
    """A bar is as high with sixteen bars as with two, no name covers another, and a range is drawn for each part."""
    bars = few = step_breakdown.split(*study)
    if times:
        names = [f"mxnet-horovod-{index}" for index in range(times)]
        bars = [replace(one, cell=replace(one.cell, framework=name)) for name in names for one in few]
    figure = step_breakdown.draw(study[0], bars, PAGE)
    figure.draw_without_rendering()
    (axes,) = figure.axes
    labels = axes.get_yticklabels()
    assert [label.get_text() for label in labels] == [one.cell.name for one in bars]
    boxes = sorted((label.get_window_extent() for label in labels), key=lambda box: box.y0)
    assert all(below.y1 < above.y0 for below, above in itertools.pairwise(boxes))
    assert all(box.x0 >= 0 for box in boxes)
    (title,) = (text for text in axes.findobj(Text) if text.get_text().startswith("bert: a step's time"))
    assert title.get_window_extent().x1 <= figure.bbox.x1
    parts = [part for one in bars for part in one.parts.values() if not part.control]
    assert len([line for line in axes.lines if line.get_marker() == "|"]) == len(parts)


def test_long_and_short_times_are_read_alike() -> None:
    read = [numbers.milliseconds(seconds) for seconds in (0.0001234, 0.0123, 0.9994, 0.9996, 1.84)]
    assert read == ["0.123", "12.3", "999", "1,000", "1,840"]


MESSAGES = {"messages": 18, "bytes_per_step": 1_023_000_000, "seconds": 0.033, "reason": None}


def exchanged(root: Path, name: str, ms: float, told: dict[str, Any] | None, **options: Any) -> list[cells.Group]:
    """Make a summary of BERT at batch 32 on four devices, with one repeat of `ms` milliseconds a step."""
    speeds, beside = {"1n4g": [4 * 32 * 1000 / ms]}, {"network": told}
    return [group_of(summarized(root, speeds, repeats=1, benchmark=name, options=options, beside=beside))]


def test_what_the_network_explains(tmp_path: Path) -> None:
    groups = exchanged(tmp_path, "bert", 154, MESSAGES)
    without = exchanged(tmp_path, "bert__no_gradient_sync", 114, None, gradient_sync=False)
    (one,) = step_breakdown.exchanges(groups, without)
    bandwidths = one.alone["algorithm_gb_per_s"], one.alone["bus_gb_per_s"]
    assert bandwidths == pytest.approx((31.0, 46.5)), "1.5 times, of four replicas"
    assert (one.communication_s, one.alone["explained_s"]) == pytest.approx((0.04, 0.033))
    (alone,) = step_breakdown.exchanges(groups, [])
    assert alone.alone["explained_s"] is None
    write_tables(Scope(groups, without), tmp_path / "tables")
    (row,) = read_csv(tmp_path / "tables/network.csv")
    assert (row["messages"], row["bytes_per_step"], row["alone_s"]) == ("18", "1023000000", "0.033")
    assert float(row["communication_s"]) == pytest.approx(0.04) and float(row["bus_gb_per_s"]) == pytest.approx(46.5)
    slow = exchanged(tmp_path / "slow", "bert", 154, {**MESSAGES, "seconds": 0.06})
    (hidden,) = step_breakdown.exchanges(slow, without)
    assert hidden.alone["explained_s"] == pytest.approx(0.04), "the step hides the rest"


def test_a_reason_stands_for_the_figures(tmp_path: Path) -> None:
    groups = exchanged(tmp_path, "bert", 154, {**dict.fromkeys(MESSAGES), "reason": "not here"})
    table = step_breakdown.network(Scope(groups, groups))
    assert table and table.lines[0].entries[4].reason == "not here"
