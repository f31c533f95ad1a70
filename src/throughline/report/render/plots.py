"""Plots of one benchmark: throughput and speedup over devices, and precisions side by side.

The same figures are written as files (SVG and PNG) and set into the report, there with the page's own colours. An SVG
of the same figures has the same bytes every time.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from throughline.files import atomic
from throughline.report.analysis.cells import PRECISIONS, Group, Row
from throughline.report.render import markup
from throughline.topology import Topology

CROWDED = 8  # with more device counts than this, ticks do not name the topologies
WIDE = 8  # from this ratio of device counts on, both axes are logarithmic
MARGINS = (0.74, 1.36, 0.68, 0.58)  # inches kept free on the left, right (labels), bottom and top
Label = tuple[float, float, str, str, str]  # where a line ends (devices, value), its name, figure and colour
MARKERS = ("o", "s", "^", "D", "v", "p")


@dataclass(frozen=True)
class Theme:
    """Colours as #rrggbb: text, quieter text, grid lines, background, and one per series."""

    ink: str = "#1f2328"
    muted: str = "#6b7280"
    grid: str = "#e3e6ea"
    surface: str = "#ffffff"
    # After Okabe and Ito, darker: told apart with every common kind of colour blindness, and readable as text.
    series: tuple[str, ...] = ("#0072b2", "#c4540a", "#00805d", "#9c4a82", "#2b83b8", "#946300")
    size: tuple[float, float] = (6.4, 4.0)  # inches
    background: bool = True
    fonts: str = "path"  # text as outlines: looks the same everywhere; "none": text stays text

    def colour(self, index: int) -> str:
        return self.series[index % len(self.series)]


LIGHT = Theme()


def write(groups: Sequence[Group], folder: Path) -> None:
    """Write <group>_throughput, <group>_speedup and precisions, as .svg and .png, into `folder`.

    A group without a single measured value gets figures that say so.
    """
    for group in groups:
        save(throughput(group, LIGHT), folder / f"{group.name}_throughput")
        save(speedup(group, LIGHT), folder / f"{group.name}_speedup")
    save(precisions(groups, LIGHT), folder / "precisions")


def svg(figure: Figure, theme: Theme) -> str:
    """The figure as SVG text, without date or program name."""
    stream = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": theme.fonts, "svg.hashsalt": "throughline"}):
        figure.savefig(
            stream,
            format="svg",
            facecolor=theme.surface if theme.background else "none",
            metadata={"Date": None, "Creator": None},
        )
    return stream.getvalue()


def throughput(group: Group, theme: Theme) -> Figure:
    """Samples/s over devices: medians as a line, every repeat a point, the range a whisker, ideal scaling dotted."""
    figure, axes = blank(theme, f"{group.benchmark}: throughput, {settings(group)}", "samples/s")
    labels = []
    for index, framework in enumerate(group.frameworks):
        rows = group.series(framework)
        if not rows:
            continue
        colour = theme.colour(index)
        worlds = [row.topology.world for row in rows]
        medians = [_median(row) for row in rows]
        if worlds[0] == 1 and worlds[-1] > 1:
            axes.plot([1, worlds[-1]], [medians[0], medians[0] * worlds[-1]], ":", color=colour, lw=1.0, alpha=0.7)
        axes.plot(worlds, medians, "-", color=colour, lw=1.6, zorder=3)
        for row in rows:
            _repeats(axes, row, colour, theme, MARKERS[index % len(MARKERS)])
        labels.append((worlds[-1], medians[-1], framework, markup.reading(medians[-1]), colour))
    rows = [row for framework in group.frameworks for row in group.series(framework)]
    _device_axis(axes, rows, theme)
    if any(row.topology.world == 1 for row in rows) and len(rows) > 1:
        _legend(axes, theme, "dots: repeats; dotted: ideal, the framework's own 1n1g times devices")
    _direct_labels(axes, labels, theme)
    return _or_nothing(figure, axes, bool(rows), theme)


def speedup(group: Group, theme: Theme) -> Figure:
    """Median over the same framework's 1n1g median, over devices, with the ideal line."""
    figure, axes = blank(theme, f"{group.benchmark}: speedup, {settings(group)}", "speedup over 1n1g")
    labels, shown = [], []
    for index, framework in enumerate(group.frameworks):
        rows = [row for row in group.series(framework) if row.cell and row.cell.speedup]
        if not rows:
            continue
        shown += rows
        colour = theme.colour(index)
        worlds = [row.topology.world for row in rows]
        values = [row.cell.speedup or 0.0 for row in rows if row.cell]
        axes.plot(
            worlds, values, "-", marker=MARKERS[index % len(MARKERS)], color=colour, lw=1.6, ms=6, mec=theme.surface,
            mew=1.0, zorder=3,
        )  # fmt: skip
        last = rows[-1].cell
        text = f"{values[-1]:.2f}× ({markup.percent(last.efficiency if last else None)})"
        labels.append((worlds[-1], values[-1], framework, text, colour))
    _device_axis(axes, shown, theme)
    most = max((row.topology.world for row in shown), default=1)
    if most > 1:
        axes.plot([1, most], [1, most], ":", color=theme.muted, lw=1.2, zorder=2)
        _legend(axes, theme, "dotted: ideal; in brackets: efficiency, speedup over devices")
    _direct_labels(axes, labels, theme)
    return _or_nothing(figure, axes, bool(shown), theme)


def precisions(groups: Sequence[Group], theme: Theme, only: str | None = None) -> Figure:
    """Samples/s per device over devices, a panel per framework (or `only` one), a line per precision and batch size.

    All panels have the same axes, also those that are drawn one by one.
    """
    measured = [row for group in groups for name in group.frameworks for row in group.series(name)]
    frameworks = [only] if only else list(dict.fromkeys(row.framework for row in measured)) or [""]
    top = max((row.cell.max / row.topology.world for row in measured if row.cell and row.cell.max), default=1.0)
    size = (theme.size[0], theme.size[1] * (1 if len(frameworks) == 1 else 0.82 * len(frameworks)))
    figure = Figure(figsize=size)
    for index, framework in enumerate(frameworks):
        axes = figure.add_axes(_inside(size, index, len(frameworks)))
        heading = f"{groups[0].benchmark if groups else ''}: throughput per device, {framework}"
        style(axes, theme, heading.removesuffix(", "), "samples/s per device")
        _device_axis(axes, measured, theme, share_scale=False)
        axes.set_ylim(0, top * 1.12)
        labels = [
            _precision(axes, group, group.series(framework), order, theme)
            for order, group in enumerate(groups)
            if group.series(framework)
        ]
        _legend(axes, theme, "a flat line scales without loss; whiskers: range of the repeats")
        _direct_labels(axes, labels, theme)
        _or_nothing(figure, axes, bool(labels), theme)
    return figure


def _precision(axes: Axes, group: Group, rows: Sequence[Row], order: int, theme: Theme) -> Label:
    """One line of `precisions`: colour by precision, marker by the group's place."""
    colour = theme.colour(PRECISIONS.index(group.precision))
    worlds = [row.topology.world for row in rows]
    values = [_median(row) / row.topology.world for row in rows]
    axes.plot(
        worlds, values, "-", marker=MARKERS[order % len(MARKERS)], color=colour, lw=1.6, ms=6, mec=theme.surface,
        mew=1.0, zorder=3,
    )  # fmt: skip
    for row, world in zip(rows, worlds, strict=True):
        if row.cell and row.cell.min and row.cell.max:
            axes.vlines(world, row.cell.min / world, row.cell.max / world, color=colour, lw=1.2, zorder=2)
    return worlds[-1], values[-1], f"{group.precision}, batch {group.batch}", markup.reading(values[-1]), colour


def settings(group: Group) -> str:
    """What a figure's title says of its group."""
    return f"{group.precision}, batch {group.batch} per device" + ("" if group.exchanges else ", no exchange")


def blank(theme: Theme, heading: str, unit: str) -> tuple[Figure, Axes]:
    """A figure with one titled pair of axes."""
    figure = Figure(figsize=theme.size)
    axes = figure.add_axes(_inside(theme.size, 0, 1))
    style(axes, theme, heading, unit)
    return figure, axes


def _inside(size: tuple[float, float], index: int, panels: int) -> tuple[float, float, float, float]:
    """Left, bottom, width and height of a panel's axes as shares of a figure of `size` inches, the first on top."""
    (width, height), (left, right, bottom, top) = size, MARGINS
    share = height / panels
    return (
        left / width,
        ((panels - 1 - index) * share + bottom) / height,
        (width - left - right) / width,
        (share - bottom - top) / height,
    )


def style(axes: Axes, theme: Theme, heading: str, unit: str) -> None:
    """Titles, grid and colours of a pair of axes."""
    axes.set_title(heading, loc="left", fontsize=11, color=theme.ink, pad=21, fontweight="bold", parse_math=False)
    axes.set_ylabel(unit, color=theme.muted, fontsize=9)
    axes.set_xlabel("devices", color=theme.muted, fontsize=9)
    axes.tick_params(colors=theme.muted, labelsize=8.5, length=0, pad=5)
    axes.grid(axis="y", color=theme.grid, lw=0.8)
    axes.set_axisbelow(True)
    axes.patch.set_visible(False)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(theme.grid)


def _device_axis(axes: Axes, rows: Sequence[Row], theme: Theme, share_scale: bool = True) -> None:
    """Ticks at the measured device counts, each with its topologies; logarithmic where the counts lie far apart."""
    names: dict[int, list[Topology]] = {}
    for row in rows:
        if row.topology not in names.setdefault(row.topology.world, []):
            names[row.topology.world].append(row.topology)
    worlds = sorted(names)
    if not worlds:
        return
    wide = worlds[-1] / worlds[0] >= WIDE
    if wide:
        axes.set_xscale("log", base=2)
        axes.set_xlim(worlds[0] / 1.3, worlds[-1] * 1.5)
        if share_scale:
            axes.set_yscale("log", base=2)
            axes.yaxis.set_minor_locator(NullLocator())
    else:
        margin = 0.18 * (worlds[-1] - worlds[0]) or 0.6
        axes.set_xlim(worlds[0] - margin, worlds[-1] + margin)
    axes.xaxis.set_major_locator(FixedLocator([float(world) for world in worlds]))
    axes.xaxis.set_minor_locator(NullLocator())
    named = len(worlds) <= CROWDED
    shown = {world: [str(name) for name in sorted(names[world]) if named or name.simulated] for world in worlds}
    axes.set_xticks(worlds, ["\n".join([str(world), *shown[world]]) for world in worlds])
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))


def _repeats(axes: Axes, row: Row, colour: str, theme: Theme, marker: str) -> None:
    """The median as a marker, the range as a whisker, each repeat as a dot beside it."""
    cell, world = row.cell, row.topology.world
    if not cell or not cell.min or not cell.max:
        return
    axes.vlines(world, cell.min, cell.max, color=colour, lw=1.4, zorder=4)
    axes.plot([world], [_median(row)], marker, color=colour, ms=6.5, mec=theme.surface, mew=1.0, zorder=5)
    values = [value for value in cell.values if value]
    for index, value in enumerate(values):
        axes.plot(
            [world], [value], ".", color=colour, ms=3.0, alpha=0.6, mew=0, zorder=4,
            transform=axes.transData + _shift(axes, 7.5 + 2.3 * index),
        )  # fmt: skip


def _shift(axes: Axes, points: float) -> matplotlib.transforms.Transform:
    figure = axes.figure
    return matplotlib.transforms.ScaledTranslation(points / 72, 0, figure.dpi_scale_trans)


def _direct_labels(axes: Axes, labels: Sequence[Label], theme: Theme, gap: float = 27.0) -> None:
    """Names at the right end of their lines instead of a legend, pushed apart so that none covers another.

    Comes last, when everything is drawn: places depend on the axes' limits.
    """
    if not labels:
        return
    if axes.get_yscale() == "linear" and axes.get_autoscaley_on():
        axes.set_ylim(0, 1.06 * axes.dataLim.ymax)
    axes.autoscale_view()
    scale = 72 / axes.figure.get_dpi()
    ordered = sorted(labels, key=lambda label: label[1])
    own_places = [float(axes.transData.transform((x, value))[1]) * scale for x, value, *_ in ordered]
    bottom, top = axes.bbox.y0 * scale, axes.bbox.y1 * scale
    places = spread_out(own_places, min(gap, (top - bottom) / len(ordered)), top)
    right = axes.get_xlim()[1]
    for y, own, (_, value, name, text, colour) in zip(places, own_places, ordered, strict=True):
        axes.annotate(
            f"{name}\n", (right, value), xytext=(6, y - own), textcoords="offset points", va="center", fontsize=9,
            color=colour, fontweight="bold", annotation_clip=False, linespacing=1.25,
            parse_math=False,
        )  # fmt: skip
        axes.annotate(
            f"\n{text}", (right, value), xytext=(6, y - own), textcoords="offset points", va="center", fontsize=8.5,
            color=theme.muted, annotation_clip=False, linespacing=1.25,
        )  # fmt: skip


def spread_out(places: Sequence[float], gap: float, top: float) -> list[float]:
    """`places` (rising) moved as little as needed to lie at least `gap` apart, none above `top`."""
    result = list(places)
    for index in range(1, len(result)):
        result[index] = max(result[index], result[index - 1] + gap)
    limit = top
    for index in reversed(range(len(result))):
        result[index] = min(result[index], limit)
        limit = result[index] - gap
    return result


def _legend(axes: Axes, theme: Theme, text: str) -> None:
    axes.annotate(
        text, (0, 1), xycoords="axes fraction", xytext=(0, 8), textcoords="offset points", fontsize=8, color=theme.muted
    )


def _or_nothing(figure: Figure, axes: Axes, measured: bool, theme: Theme) -> Figure:
    if not measured:
        axes.set_xticks([])
        axes.set_yticks([])
        axes.text(0.5, 0.5, "no measured value", transform=axes.transAxes, ha="center", color=theme.muted)
    return figure


def _median(row: Row) -> float:
    return row.cell.median_speed or 0.0 if row.cell else 0.0


def save(figure: Figure, path: Path) -> None:
    """Write `path` with .svg and with .png."""
    with atomic(path.with_name(f"{path.name}.svg")) as temporary:
        temporary.write_text(svg(figure, LIGHT), encoding="utf-8", newline="\n")
    with atomic(path.with_name(f"{path.name}.png")) as temporary:
        figure.savefig(temporary, format="png", dpi=160, facecolor=LIGHT.surface, metadata={"Software": None})
