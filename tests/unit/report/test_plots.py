"""Plots exist for every group, have the same bytes every time, and never interpret hostile names."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from matplotlib.text import Text

from report_fixture import group_of, jitter, scoped, summarized, write_failed, write_study, write_summaries
from throughline.records import read_summary
from throughline.report.analysis import summary
from throughline.report.render import plots as draws
from throughline.report.render.plots import LIGHT, PAGE, Point, Series, inline, svg
from throughline.report.topics import throughput, write_plots
from throughline.spec import Topology


@pytest.mark.slow
def test_files_and_determinism(tmp_path: Path) -> None:
    scope = scoped(*map(read_summary, write_summaries(tmp_path, write_study(tmp_path))))
    write_plots(scope, tmp_path / "one")
    write_plots(scope, tmp_path / "two")
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
    group = group_of(summary.summarize(write_failed(tmp_path, "oom"), repeats=1))
    for figure in (throughput.plot(group, PAGE), throughput.speedup(group, PAGE)):
        assert "no measured value" in svg(figure, PAGE)


def test_repeats_are_dots_and_a_speedup_has_its_range(tmp_path: Path) -> None:
    group = group_of(summarized(tmp_path, {"1n1g": 100.0, "1n2g": 190.0}))
    figure = throughput.plot(group, LIGHT)
    dots: list[Any] = [line for line in figure.axes[0].lines if line.get_markersize() < 4]
    assert [tuple(line.get_ydata()) for line in dots] == [*zip(jitter(100.0), jitter(190.0), strict=True)]
    assert ">dots: repeats; dotted: ideal<" in svg(throughput.plot(group, PAGE), PAGE)
    (ends,) = [part.get_segments()[0][:, 1] for part in throughput.speedup(group, LIGHT).axes[0].collections]
    assert list(ends) == pytest.approx(group.measured[1].record.speedup_range)


@pytest.mark.slow
def test_inline_figures_share_no_names_load_nothing_and_take_names_as_they_are(tmp_path: Path) -> None:
    hostile = r"$\frac{1}{"
    group = group_of(summarized(tmp_path, {"1n4g": 400.0, "2n2g": 380.0, "1n1g": 100.0}))
    figure, axes = draws.blank(PAGE, hostile, "<b>")
    points = tuple(Point(Topology(1, devices), 100.0 * devices) for devices in (1, 2))
    draws.finish(figure, axes, [draws.line(axes, Series(hostile, points), PAGE.ink, PAGE, "o")], PAGE, "")
    one, two = (inline(figure, name, "<title>") for name in ("a", "b"))
    ids = [{element.get("id") for element in ET.fromstring(text).iter()} - {None} for text in (one, two)]
    assert ids[0] and not ids[0] & ids[1]
    assert one.count(hostile) == 2 and "&lt;title&gt;" in one and "&lt;b&gt;" in one
    drawn = inline(throughput.plot(group, PAGE), "c", "")
    for text in (one, drawn):
        assert not re.search(r"http|<style|<metadata|font-family|#[0-9a-f]{6}", text) and "var(--ink)" in text
    assert "1n4g" in drawn and "2n2g" in drawn


def test_many_lines_have_names_that_fit() -> None:
    """The names become smaller, and then lose their figures. A long title or explanation becomes smaller as well."""

    def drawn(lines: int, heading: str = "speed") -> tuple[float, str, set[float]]:
        figure, axes = draws.blank(PAGE, heading, "samples/s")
        points = tuple(Point(Topology.parse(f"1n{devices}g"), 100.0 * devices) for devices in (1, 2))
        every = [Series(f"line-{index}", points) for index in range(lines)]
        labels = [draws.line(axes, one, PAGE.ink, PAGE, "o") for one in every]
        draws.finish(figure, axes, labels, PAGE, f"({heading})")
        key = axes.get_legend()
        assert key
        words, title = (text for text in axes.findobj(Text) if heading in text.get_text())
        assert lines < 40 or max(title.get_fontsize(), words.get_fontsize()) < 6.5
        return title.get_fontsize(), svg(figure, PAGE), {text.get_fontsize() for text in key.get_texts()}

    few, some, many = drawn(3), drawn(9), drawn(40, heading="many " * 20)
    assert few[2] == {8.5} and few[0] == 10.5
    assert all(size < 8.5 for size in some[2]) and "200.0" in some[1]
    assert "200.0" not in many[1] and all(f"line-{index}" in many[1] for index in range(40))


def test_points_that_were_not_measured_here_are_drawn_differently(tmp_path: Path) -> None:
    """A synthetic published series beside a measured one is dashed and hollow, named with its source, without
    repeats."""
    group = group_of(summarized(tmp_path, {"1n1g": 100.0}))
    source = "published: somebody"
    points = tuple(Point(Topology(nodes, 1), 90.0 * nodes) for nodes in (1, 2))
    figure = throughput.plot(group, PAGE, [Series("theirs", points, source)])
    (line,) = (line for line in figure.axes[0].lines if line.get_linestyle() == "--")
    assert list(line.get_ydata()) == [90.0, 180.0] and line.get_markerfacecolor() == PAGE.surface
    text = svg(figure, PAGE)
    assert ">theirs<" in text and f"{source}: " in text and "hollow: not measured here" in text and "2n1g" in text
    assert "hollow" not in svg(throughput.plot(group, PAGE), PAGE)


def test_eight_frameworks_can_be_told_apart_without_colours(tmp_path: Path) -> None:
    names = [f"framework-{index}" for index in range(8)]
    places = {"1n1g": 100.0, "1n2g": 190.0}
    speeds = {f"{name} {topology}": [speed] for name in names for topology, speed in places.items()}
    group = group_of(summarized(tmp_path, speeds))
    for draw in (throughput.plot, throughput.speedup):
        text = svg(draw(group, PAGE), PAGE)
        assert all(name in text for name in names)
    axes: Any = throughput.speedup(group, PAGE).axes[0]
    lines = [line for line in axes.lines if len(line.get_xdata()) == 2 and line.get_marker() in draws.MARKERS]
    assert len({line.get_marker() for line in lines}) == len(lines) == 8
    dashed = set(re.findall(r"stroke-dasharray: ([\d.,]+)", svg(throughput.speedup(group, PAGE), PAGE)))
    assert len(dashed) == len(draws.DASHES)  # one style is solid, and the ideal line is dotted
