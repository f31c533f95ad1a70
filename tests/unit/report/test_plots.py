"""Plots exist for every group, have the same bytes every time, and never interpret hostile names."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from matplotlib.text import Text

from report_fixture import jitter, record, spec, write_record, write_series, write_study, write_summaries
from throughline.records import read_summary
from throughline.report.analysis import cells, summary
from throughline.report.render import plots as draws
from throughline.report.render import throughput_plots
from throughline.report.render.plots import LIGHT, PAGE, Point, Series, inline, svg
from throughline.report.topic import Scope
from throughline.report.topics import write_plots
from throughline.spec import Topology


def groups_of(root: Path) -> list[cells.Group]:
    return cells.groups([read_summary(path) for path in write_summaries(root, write_study(root))])


@pytest.mark.slow
def test_files_and_determinism(tmp_path: Path) -> None:
    groups = groups_of(tmp_path)
    write_plots(Scope(groups), tmp_path / "one")
    write_plots(Scope(groups), tmp_path / "two")
    names = {path.name for path in (tmp_path / "one").iterdir()}
    assert names == {
        f"{stem}.{suffix}"
        for suffix in ("svg", "png")
        for stem in (
            *("bz32_fp32_beside", "bz64_fp16_beside"),
            *(f"{g}_{what}" for g in ("bz32_fp32", "bz96_fp32", "bz64_fp16") for what in ("throughput", "speedup")),
        )
    }
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name
    text = (tmp_path / "one/bz32_fp32_throughput.svg").read_text(encoding="utf-8")
    assert "<dc:date>" not in text
    ET.fromstring(text)


def test_a_group_without_values_is_drawn_as_that(tmp_path: Path) -> None:
    path = write_record(tmp_path, record(spec(), None, status="oom", reason="too large"))
    (group,) = cells.groups([summary.summarize([path], repeats=1)])
    for figure in (throughput_plots.throughput(group, PAGE), throughput_plots.speedup(group, PAGE)):
        assert "no measured value" in svg(figure, PAGE)


def test_every_repeat_is_a_point(tmp_path: Path) -> None:
    (group,) = cells.groups([summary.summarize(write_series(tmp_path, {"1n1g": jitter(100.0, 5)}), repeats=5)])
    axes = throughput_plots.throughput(group, LIGHT).axes[0]
    dots = [line for line in axes.lines if line.get_marker() == "."]
    assert sorted(float(line.get_ydata()[0]) for line in dots) == sorted(jitter(100.0, 5))


def test_names_are_not_mathematics(tmp_path: Path) -> None:
    found = summary.summarize(write_series(tmp_path, {"1n1g": [100.0]}), repeats=1)
    hostile = r"$\frac{1}{"
    named = {"benchmark": hostile, "frameworks": {hostile: found.frameworks["torch"]}}
    (group,) = cells.groups([found.model_copy(update=named)])
    for draw in (throughput_plots.throughput, throughput_plots.speedup):
        assert hostile in svg(draw(group, PAGE), PAGE)


def test_one_number_of_devices_in_two_topologies(tmp_path: Path) -> None:
    paths = write_series(tmp_path, {"1n4g": jitter(400.0), "2n2g": jitter(380.0), "1n1g": jitter(100.0)})
    (group,) = cells.groups([summary.summarize(paths, repeats=5)])
    text = svg(throughput_plots.throughput(group, PAGE), PAGE)
    assert "1n4g" in text
    assert "2n2g" in text


@pytest.mark.slow
def test_inline_figures_share_no_names_and_load_nothing(tmp_path: Path) -> None:
    group = groups_of(tmp_path)[0]
    one, two = (
        inline(throughput_plots.throughput(group, PAGE), name, "<title>", "& what it shows") for name in ("a", "b")
    )
    first, second = (ET.fromstring(text) for text in (one, two))
    ids = [{element.get("id") for element in root.iter()} - {None} for root in (first, second)]
    assert ids[0]
    assert not ids[0] & ids[1]
    assert "http" not in one
    assert "<style" not in one
    assert "#0101" not in one
    assert "var(--ink)" in one
    assert "&lt;title&gt;" in one


def test_labels_do_not_cover_each_other() -> None:
    assert draws.spread_out([10.0, 11.0, 50.0], 5.0, 100.0) == [10.0, 15.0, 50.0]
    assert draws.spread_out([90.0, 98.0, 99.0], 10.0, 100.0) == [80.0, 90.0, 100.0]
    assert draws.spread_out([], 10.0, 100.0) == []


def test_many_lines_have_names_that_fit(tmp_path: Path) -> None:
    """The names become smaller, and then lose their figures. A long title becomes smaller as well."""

    def drawn(lines: int, heading: str = "speed") -> tuple[float, str, set[float]]:
        figure, axes = draws.blank(PAGE, heading, "samples/s")
        points = [Point(Topology.parse(f"1n{devices}g"), 100.0 * devices) for devices in (1, 2)]
        every = [Series(f"line-{index}", tuple(points)) for index in range(lines)]
        labels = [draws.line(axes, one, PAGE.ink, PAGE, "o") for one in every]
        draws.finish(figure, axes, labels, PAGE, "")
        names = {text.get_fontsize() for text in axes.texts if "line-" in text.get_text()}
        (title,) = (text for text in axes.findobj(Text) if text.get_text() == heading)
        return title.get_fontsize(), svg(figure, PAGE), names

    few, some, many = drawn(3), drawn(9), drawn(40, heading="many " * 20)
    assert few[2] == {9.0} and few[0] == 11.0
    assert all(size < 9.0 for size in some[2]) and "200.0" in some[1]
    assert "200.0" not in many[1] and all(f"line-{index}" in many[1] for index in range(40))
    assert many[0] < 7.0


def test_points_that_were_not_measured_here_are_drawn_differently(tmp_path: Path) -> None:
    """A synthetic published series beside a measured one is dashed and hollow, named with its source, without
    repeats."""
    (group,) = cells.groups([summary.summarize(write_series(tmp_path, {"1n1g": jitter(100.0)}), repeats=5)])
    source = "published: somebody"
    points = tuple(Point(Topology(nodes, 1), 90.0 * nodes) for nodes in (1, 2))
    figure = throughput_plots.throughput(group, PAGE, [Series("theirs", points, source)])
    (line,) = (line for line in figure.axes[0].lines if line.get_linestyle() == "--")
    assert list(line.get_ydata()) == [90.0, 180.0] and line.get_markerfacecolor() == PAGE.surface
    text = svg(figure, PAGE)
    assert ">theirs<" in text and f"{source}: " in text and "hollow: not measured here" in text and "2n1g" in text
    assert "hollow" not in svg(throughput_plots.throughput(group, PAGE), PAGE)


def test_eight_frameworks_can_be_told_apart_without_colours(tmp_path: Path) -> None:
    names = [f"framework-{index}" for index in range(8)]
    paths = [
        path for name in names for path in write_series(tmp_path, {"1n1g": [100.0], "1n2g": [190.0]}, framework=name)
    ]
    (group,) = cells.groups([summary.summarize(paths, repeats=1)])
    for draw in (throughput_plots.throughput, throughput_plots.speedup):
        text = svg(draw(group, PAGE), PAGE)
        assert all(name in text for name in names)
    axes = throughput_plots.speedup(group, PAGE).axes[0]
    lines = [line for line in axes.lines if len(line.get_xdata()) == 2 and line.get_marker() in draws.MARKERS]
    assert len({line.get_marker() for line in lines}) == len(lines) == 8
    dashed = set(re.findall(r"stroke-dasharray: ([\d.,]+)", svg(throughput_plots.speedup(group, PAGE), PAGE)))
    assert len(dashed) == len(draws.DASHES)  # one style is solid, and the ideal line is dotted


def test_dots_are_explained_where_there_is_one_number_of_devices(tmp_path: Path) -> None:
    (group,) = cells.groups([summary.summarize(write_series(tmp_path, {"1n1g": jitter(100.0)}), repeats=5)])
    assert ">dots: repeats<" in svg(throughput_plots.throughput(group, PAGE), PAGE)


def test_a_long_legend_fits(tmp_path: Path) -> None:
    figure, axes = draws.blank(PAGE, "speed", "samples/s")
    draws.finish(figure, axes, [], PAGE, "words " * 20)
    (legend,) = (text for text in axes.texts if text.get_text().startswith("words"))
    assert legend.get_fontsize() < 6
