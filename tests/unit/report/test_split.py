"""A step's time is split into compute, communication and input, from the differences of repeats with their noise."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.text import Text

from report_fixture import write_series
from throughline import numbers
from throughline.records import Summary, read_summary
from throughline.report.analysis import cells, derived_runs, summary
from throughline.report.render import page, table_files, throughput_plots
from throughline.report.render.plots import PAGE
from throughline.report.topic import Scope, Topic
from throughline.report.topics import step_breakdown, throughput, write_plots, write_tables
from throughline.report.topics import step_breakdown as topic


def measured(root: Path, name: str, values: dict[str, list[float]], **changes: object) -> Summary:
    """Make a summary of BERT at batch 32. `values` are ms per step, one for each repeat."""
    worlds = {topology: int(topology[2]) for topology in values}
    speeds = {topology: [32 * worlds[topology] * 1000 / ms for ms in steps] for topology, steps in values.items()}
    records = write_series(root, speeds, benchmark=name, **changes)
    place = root / name / "bz32_fp32.json"
    summary.write(records, place, repeats=3)
    return read_summary(place)


@pytest.fixture
def study(tmp_path: Path) -> tuple[list[cells.Group], list[cells.Group]]:
    """Results of a machine on which the second repeat of everything is 10 ms slower."""
    whole = measured(tmp_path, "bert", {"1n1g": [100, 110, 101], "1n4g": [150, 160, 151]})
    kept = measured(
        tmp_path,
        "bert__no_gradient_sync",
        {"1n1g": [101, 109, 102], "1n4g": [110, 121, 112]},
        options={"gradient_sync": False},
    )
    made = measured(
        tmp_path, "bert__synthetic", {"1n1g": [95, 105, 97], "1n4g": [152, 159, 156]}, options={"data": "synthetic"}
    )
    return cells.groups([whole]), cells.groups([kept, made])


def csv(topic: Topic, scope: Scope) -> pd.DataFrame:
    """Return what a topic writes as CSV."""
    table = topic.csv(scope)
    assert table
    return table_files.csv(table)


def test_the_split_is_the_median_of_the_differences(study: tuple[list[cells.Group], list[cells.Group]]) -> None:
    (group,), derived = study
    one, four = step_breakdown.split(group, derived)
    assert one.step_s == pytest.approx(0.101) and four.step_s == pytest.approx(0.151)
    part = four.parts["communication"]
    assert (part.median_s, part.low_s, part.high_s) == pytest.approx((0.039, 0.039, 0.040))
    assert one.parts["input"].shown_s == pytest.approx(0.005) and one.rest == "compute"
    assert one.rest_s == pytest.approx(0.096)
    assert four.rest_s == pytest.approx(0.151 - 0.039)


def test_negative_differences_are_0_and_the_noise_is_said(
    study: tuple[list[cells.Group], list[cells.Group]],
) -> None:
    (group,), derived = study
    one, four = step_breakdown.split(group, derived)
    input_ = four.parts["input"]
    assert (input_.median_s, input_.shown_s, input_.doubt) == (pytest.approx(-0.002), 0, "within the noise")
    alone = one.parts["communication"]
    assert (alone.shown_s, alone.doubt) == (0, "a single rank exchanges nothing")
    assert step_breakdown.Part(0.01, 0.01, 0.01, 1).doubt == "one pair, so its noise is not known"
    assert step_breakdown.Part(0.01, 0.009, 0.011, 3).doubt == ""


def test_what_no_run_tells_stays_with_compute(study: tuple[list[cells.Group], list[cells.Group]]) -> None:
    (group,), derived = study
    assert step_breakdown.split(group, []) == []
    (four,) = step_breakdown.split(group, derived[:1])[1:]
    assert (list(four.parts), four.rest) == (["communication"], "compute and input")
    rows = csv(topic, Scope([group], derived[:1]))
    assert rows["compute_s"].isna().all() and rows["input_s"].isna().all()
    assert rows["communication_s"].tolist() == pytest.approx([0.0, 0.039])


def test_other_machines_split_nothing_and_it_is_said(
    tmp_path: Path, study: tuple[list[cells.Group], list[cells.Group]]
) -> None:
    (group,), derived = study
    other = {"kind": "cpu", "name": "another", "count": 2, "fp16_native": None}
    kept = measured(
        tmp_path, "bert__no_gradient_sync", {"1n1g": [50, 50, 50]}, options={"gradient_sync": False}, device_found=other
    )
    (one,) = step_breakdown.split(group, cells.groups([kept]))
    assert one.parts == {} and "the runs without it are not comparable: device is cuda" in one.notes[0]
    assert not list(topic.drawings(Scope([group], cells.groups([kept]))))
    old = {"torch": "2.12.0", "transformers": "5.23.0", "driver": "580.10"}
    data = {"data": {"content_digest": "cd" * 32, "rows": 2048}}
    for name, changes, said in (
        ("software", {"framework_versions": old}, "torch is 2.13.0 and 2.12.0"),
        ("data", {"beside": data}, "the data differ"),
    ):
        kept = measured(
            tmp_path / name, "bert__no_gradient_sync", {"1n1g": [101, 109, 102], "1n4g": [110, 121, 112]},
            options={"gradient_sync": False}, **changes,
        )  # fmt: skip
        one, four = step_breakdown.split(group, [*cells.groups([kept]), *derived[1:]])
        assert list(four.parts) == ["input"] and four.rest == "compute and communication"
        assert said in four.notes[0]
        rows = csv(topic, Scope([group], cells.groups([kept])))
        assert rows["communication_s"].isna().all() and said in rows["notes"][0]
        (text,) = derived_runs.sentences(cells.groups([kept]), [group, *cells.groups([kept])])
        assert text.startswith("2 of 2 are not compared with bert: ") and said in text


def test_runs_without_exchange_are_marked_wherever_they_have_a_speedup(
    tmp_path: Path, study: tuple[list[cells.Group], list[cells.Group]]
) -> None:
    groups, derived = study
    write_tables(Scope(derived[:1]), tmp_path / "tables")
    for name in ("throughput.md", "throughput.tex"):
        assert "torch (no exchange)" in (tmp_path / "tables" / name).read_text()
    assert set(csv(throughput.TOPIC, Scope(derived[:1]))["gradient_sync"]) == {False}
    assert set(csv(throughput.TOPIC, Scope(groups))["gradient_sync"]) == {True}
    assert "no exchange" in throughput_plots.settings(derived[0])


@pytest.mark.slow
def test_files_and_page(tmp_path: Path, study: tuple[list[cells.Group], list[cells.Group]]) -> None:
    groups, derived = study
    write_plots(Scope(groups, derived), tmp_path / "plots")
    write_tables(Scope(groups, derived), tmp_path / "tables")
    assert {path.name for path in (tmp_path / "plots").iterdir()} >= {"bz32_fp32_split.svg", "bz32_fp32_split.png"}
    assert "communication_s" in (tmp_path / "tables/split.csv").read_text()
    page.write(tmp_path, sorted(tmp_path.glob("*/bz*.json")), [], None, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert text.count("bert: where a step's time goes") + text.count("bert: where a step&#39;s time goes") == 1
    assert "torch 1n4g: 151 ms a step; compute 74.2 %, communication 25.8 %, input 0.0 %." in text
    assert "This is no speedup of a training" in text


def test_the_table_has_the_range_of_every_part(study: tuple[list[cells.Group], list[cells.Group]]) -> None:
    groups, derived = study
    table = topic.table(Scope(groups, derived))
    assert table
    header, (one, four) = table_files.printed(table)
    assert header[3:] == ["step, ms", "compute, ms", "communication, ms", "input, ms"]
    assert one == ["torch", "1n1g", "fp32, 32", "101", "96 (95 %)",
                   "0, a single rank exchanges nothing", "5 (5 %), 4 to 5"]  # fmt: skip
    assert four[4:] == ["112 (74 %)", "39 (26 %), 39 to 40", "0 (0 %), -5 to 1, within the noise"]
    table = topic.table(Scope(groups, derived[:1]))
    assert table
    four = table_files.printed(table)[1][1]
    assert four[4:] == ["112 (74 %), compute and input", "39 (26 %), 39 to 40", "n/a"]


def test_many_bars_have_room_for_their_names(
    tmp_path: Path, study: tuple[list[cells.Group], list[cells.Group]]
) -> None:
    """A bar is as high with sixteen bars as with two, no name covers another, and a range is drawn for each part."""
    (group,), derived = study
    few = step_breakdown.split(group, derived)
    many = [
        replace(one, cell=replace(one.cell, framework=f"mxnet-horovod-{index}")) for index in range(8) for one in few
    ]
    for bars in (few, many):
        figure = topic.draw(group, bars, PAGE)
        figure.draw_without_rendering()
        (axes,) = figure.axes
        names = axes.get_yticklabels()
        assert [name.get_text() for name in names] == [one.cell.name for one in bars]
        boxes = sorted((name.get_window_extent() for name in names), key=lambda box: box.y0)
        assert all(below.y1 < above.y0 for below, above in itertools.pairwise(boxes))
        assert all(box.x0 >= 0 for box in boxes)
        (title,) = (text for text in axes.findobj(Text) if text.get_text().startswith("bert: a step's time"))
        assert title.get_window_extent().x1 <= figure.bbox.x1
        measured = [part for one in bars for part in one.parts.values() if not part.control]
        assert len([line for line in axes.lines if line.get_marker() == "|"]) == len(measured)


def test_long_and_short_times_are_read_alike() -> None:
    read = [numbers.milliseconds(seconds) for seconds in (0.0001234, 0.0123, 0.9994, 0.9996, 1.84)]
    assert read == ["0.123", "12.3", "999", "1,000", "1,840"]
