"""The look of all plots, their axes over devices, and plots as files or as parts of a page.

The same figure gives the same bytes of SVG every time.
"""

import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import matplotlib
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Plot
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from matplotlib.transforms import offset_copy

from throughline.files import atomic, write_text
from throughline.numbers import reading
from throughline.spec import Topology

CROWDED = 8  # with more device counts than this, the ticks have no names of topologies
NEAR = 0.11  # two ticks that are nearer than this share of the axis have no room for two names
WIDE = 8  # if the largest device count is at least so many times the smallest, both axes are logarithmic
LETTER = 0.6  # the mean width of a bold letter, divided by the font size
LETTER_INCHES = 0.072  # the width of a letter of a bar's name
MARGINS = (0.66, 1.3, 0.62, 0.5)  # inches kept free on the left, right (legend), bottom and top
Label = tuple[float, float, str, str, str, str | None]
"""What the legend says of a line: its end (devices, value), name, figure, colour and marker."""
MARKERS = "os^DvpPX*<>"
"""Their number has no divisor in common with the number of colours, 6: the first 66 pairs of both are different."""
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (5, 1.5, 1, 1.5)), (0, (2.5, 1.2)))
"""Line styles; they follow each other as the markers do. Marker and style tell lines apart without colours. Only ideal
lines are dotted."""
MEASURED = "measured here"


@dataclass(frozen=True)
class Point:
    """A median on a topology, with the repeats behind it if they are known."""

    topology: Topology
    median: float
    repeats: tuple[float, ...] = ()

    @property
    def low(self) -> float:
        return min(self.repeats, default=self.median)

    @property
    def high(self) -> float:
        return max(self.repeats, default=self.median)


@dataclass(frozen=True)
class Series:
    """One line of a plot, from the smallest topology on. source: who measured it."""

    name: str
    points: tuple[Point, ...]
    source: str = MEASURED


@dataclass(frozen=True)
class Theme:
    """Colours as #rrggbb: text, quieter text, grid lines, background, and one per series."""

    ink: str = "#1f2328"
    muted: str = "#6b7280"
    grid: str = "#e3e6ea"
    surface: str = "#ffffff"
    # Okabe and Ito's colours, darker: readable as text, and safe with all common kinds of colour blindness.
    series: tuple[str, ...] = ("#0072b2", "#c4540a", "#00805d", "#9c4a82", "#2b83b8", "#946300")
    size: tuple[float, float] = (6.4, 4.0)  # inches
    background: bool = True
    fonts: str = "path"  # text becomes outlines, which look the same everywhere; with "none" it stays text

    def colour(self, index: int) -> str:
        return self.series[index % len(self.series)]

    def marker(self, index: int) -> str:
        return MARKERS[index % len(MARKERS)]


LIGHT = Theme()
PAGE = replace(LIGHT, size=(4.3, 2.8), background=False, fonts="none")
VARIABLES = {
    PAGE.ink: "ink",
    PAGE.muted: "muted",
    PAGE.grid: "line",
    PAGE.surface: "surface",
    **{colour: f"series-{index}" for index, colour in enumerate(PAGE.series)},
}
"""Map each colour to the page's variable that takes its place, so that a plot follows the reader's dark mode."""


def svg(figure: Plot, theme: Theme) -> str:
    """Return the figure as SVG text, without date or program name."""
    stream = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": theme.fonts, "svg.hashsalt": "throughline"}):
        face = theme.surface if theme.background else "none"
        figure.savefig(stream, format="svg", facecolor=face, metadata={"Date": None, "Creator": None})
    return stream.getvalue()


def save(figure: Plot, path: Path) -> None:
    """Write the figure to `path` with .svg and to `path` with .png."""
    write_text(path.with_name(f"{path.name}.svg"), svg(figure, LIGHT))
    with atomic(path.with_name(f"{path.name}.png")) as temporary:
        figure.savefig(temporary, format="png", dpi=160, facecolor=LIGHT.surface, metadata={"Software": None})


def inline(drawn: Plot, identity: str, title: str) -> Markup:
    """Return `drawn` as a small inline SVG element. `identity` makes its ids unique on the page.

    Numbers of coordinates are rounded to a tenth of a point, and the font is that of the page.
    """
    text = svg(drawn, PAGE)
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", text, flags=re.DOTALL)
    used = set(re.findall(r'(?:url\(#|href="#)([\w-]+)', text))
    text = re.sub(r' id="([^"]*)"', lambda found: f' id="{identity}-{found[1]}"' if found[1] in used else "", text)
    text = re.sub(r'xlink:href="#|url\(#', lambda found: f"{found[0].removeprefix('xlink:')}{identity}-", text)
    text = re.sub(r' (?:d|x|y|transform|points)="[^"]*"', lambda found: re.sub(r"(\.\d)\d+", r"\1", found[0]), text)
    text = re.sub(r"\s*\n\s*", " ", text).replace("> <", "><")
    text = re.sub(r"font-family: [^;]+; ", "", text)
    for colour, variable in VARIABLES.items():
        text = text.replace(colour, f"var(--{variable})")
    (view,) = re.findall(r'viewBox="[^"]*"', text[: text.index(">")])
    name = Markup('<title id="{}-title">{} (the tables hold its numbers)</title>').format(identity, title)
    start = f'<svg class="plot" role="img" {view} aria-labelledby="{identity}-title">'
    return Markup(start) + name + Markup(text[text.index(">") + 1 :])


def blank(theme: Theme, heading: str, unit: str) -> tuple[Plot, Axes]:
    """Return a figure with one titled pair of axes."""
    (width, height), (left, right, bottom, top) = theme.size, MARGINS
    figure = Plot(figsize=theme.size)
    corners = (left / width, bottom / height, (width - left - right) / width, (height - bottom - top) / height)
    axes = figure.add_axes(corners)
    style(axes, theme, heading, unit)
    return figure, axes


def lying(
    names: Sequence[str], theme: Theme, heading: str, each: float, right: float = 0.3, top: float = 0.6
) -> tuple[Plot, Axes]:
    """Return a figure with a horizontal line of `each` inches for each name. right, top: inches kept free there."""
    left, bottom = min(0.25 + LETTER_INCHES * max(map(len, names)), theme.size[0] / 2), 0.55
    width, height = theme.size[0], bottom + top + each * len(names)
    figure = Plot(figsize=(width, height))
    corners = (left / width, bottom / height, 1 - (left + right) / width, each * len(names) / height)
    axes = figure.add_axes(corners)
    style(axes, theme, heading, "", left)
    axes.grid(visible=False, axis="y")
    axes.grid(axis="x", color=theme.grid, lw=0.8)
    axes.set_yticks(range(len(names)), names, parse_math=False)
    axes.set_ylim(len(names) - 0.4, -0.6)
    return figure, axes


def legend_above(axes: Axes, theme: Theme, columns: int) -> None:
    """Write the legend above the axes, with one line for each label."""
    handles, labels = axes.get_legend_handles_labels()
    lines = dict(zip(labels, handles, strict=True))
    look: dict[str, Any] = {"handlelength": 1.0, "borderpad": 0.2, "columnspacing": 1.4, "ncols": columns}
    look |= {"fontsize": 8, "frameon": False, "labelcolor": theme.ink}
    axes.legend(lines.values(), lines.keys(), loc="lower left", bbox_to_anchor=(-0.02, 1.0), **look)


def style(axes: Axes, theme: Theme, heading: str, unit: str, left: float = MARGINS[0]) -> None:
    """Set titles, grid and colours of a pair of axes that begin `left` inches from the figure's left side."""
    room = 72 * (theme.size[0] - left)
    size = min(10.5, room / (LETTER * len(heading or " ")))
    # With y given, matplotlib does not lay out the axis once more to look whether the title covers its ticks.
    title: dict[str, Any] = {"loc": "left", "y": 1.0, "pad": 19, "fontweight": "bold", "parse_math": False}
    axes.set_title(heading, fontsize=size, color=theme.ink, **title)
    axes.set_ylabel(unit, color=theme.muted, fontsize=9)
    axes.set_xlabel("devices", color=theme.muted, fontsize=9)
    axes.tick_params(colors=theme.muted, labelsize=8.5, length=0, pad=4)
    axes.grid(axis="y", color=theme.grid, lw=0.8)
    axes.set_axisbelow(True)
    axes.patch.set_visible(False)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(theme.grid)


def device_axis(axes: Axes, topologies: Iterable[Topology]) -> None:
    """Set a tick at each measured device count, with its topologies. Use logarithmic axes if counts lie far apart.

    A name that would cover that of the tick before it is left out.
    """
    names: dict[int, set[Topology]] = {}
    for topology in topologies:
        names.setdefault(topology.world, set()).add(topology)
    worlds = sorted(names)
    if not worlds:
        return
    if worlds[-1] / worlds[0] >= WIDE:
        axes.set_xscale("log", base=2)
        axes.set_xlim(worlds[0] / 1.3, worlds[-1] * 1.5)
        axes.set_yscale("log", base=2)
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        margin = 0.18 * (worlds[-1] - worlds[0]) or 0.6
        axes.set_xlim(worlds[0] - margin, worlds[-1] + margin)
    shown, end = [], -1.0
    for world in worlds:
        place = float((axes.get_xaxis_transform() + axes.transAxes.inverted()).transform((world, 0.0))[0])
        shortest = (str(name).replace("simulated", "sim.") for name in sorted(names[world]))
        lines = [text for text in shortest if len(worlds) <= CROWDED or "sim." in text]
        has_room = place - end >= NEAR
        shown.append("\n".join([str(world), *lines]) if has_room else "")
        end = place if has_room else end
    axes.xaxis.set_major_locator(FixedLocator([float(world) for world in worlds]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(worlds, shown)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))


def dashes(marker: str) -> Any:
    """Return the line style of the series with this marker."""
    return DASHES[MARKERS.index(marker) % len(DASHES)]


def line(
    axes: Axes, series: Series, colour: str, theme: Theme, marker: str, text: str = "", marked: bool = True
) -> Label:
    """Draw a series as a line with markers. A series that was not measured here is thin, with hollow markers.

    `marked` is False if the caller draws the markers. Returns what the legend says: the series' name, and `text` or
    else its last value, with the source of a series that was not measured here.
    """
    worlds = [point.topology.world for point in series.points]
    medians = [point.median for point in series.points]
    measured: dict[str, Any] = {"ls": dashes(marker), "lw": 1.6, "mec": theme.surface, "mew": 1.0}
    elsewhere: dict[str, Any] = {"ls": "--", "lw": 1.2, "mfc": theme.surface, "mew": 1.2}
    look = measured if series.source == MEASURED else elsewhere
    axes.plot(worlds, medians, marker=marker if marked else None, color=colour, ms=6, zorder=3, **look)
    whose = "" if series.source == MEASURED else f"{series.source}: "
    return worlds[-1], medians[-1], series.name, whose + (text or reading(medians[-1])), colour, marker


def repeats(axes: Axes, series: Series, colour: str, theme: Theme, marker: str) -> None:
    """Draw each median as a marker, its range as a whisker, and each repeat as a dot beside it."""
    worlds, medians = [p.topology.world for p in series.points], [p.median for p in series.points]
    axes.vlines(worlds, [p.low for p in series.points], [p.high for p in series.points], color=colour, lw=1.4, zorder=4)
    axes.plot(worlds, medians, marker, color=colour, ms=6.5, mec=theme.surface, mew=1.0, zorder=5)
    for index in range(max(len(point.repeats) for point in series.points)):
        dots = [(p.topology.world, p.repeats[index]) for p in series.points if index < len(p.repeats)]
        beside = offset_copy(axes.transData, axes.get_figure(root=True), x=7.5 + 3.0 * index, units="points")
        look: dict[str, Any] = {"ls": "", "marker": "o", "ms": 2.6, "mew": 0, "zorder": 4}
        axes.add_line(Line2D(*zip(*dots, strict=True), color=colour, transform=beside, **look))


def finish(figure: Plot, axes: Axes, labels: Sequence[Label], theme: Theme, legend: str) -> Plot:
    """Explain the plot above the axes, and name its lines on the right; without a line, say that nothing was measured.

    The highest line has the first name. Where many lines end, the names are smaller, and then without figures. Call it
    when everything else is drawn, because the places depend on the axes' limits.
    """
    if legend:
        look: dict[str, Any] = {"xycoords": "axes fraction", "xytext": (0, 7), "textcoords": "offset points"}
        size = min(8.0, 72 * (theme.size[0] - MARGINS[0]) / (0.5 * len(legend)))
        axes.annotate(legend, (0, 1), **look, fontsize=size, color=theme.muted)
    if not labels:
        axes.set_xticks([])
        axes.set_yticks([])
        axes.text(0.5, 0.5, "no measured value", transform=axes.transAxes, ha="center", color=theme.muted)
        return figure
    if axes.get_yscale() == "linear" and axes.get_autoscaley_on():
        axes.set_ylim(0, 1.06 * axes.dataLim.ymax)
    ordered = sorted(labels, key=lambda label: -label[1])
    room = 72 * (theme.size[1] - MARGINS[3]) / len(ordered)
    with_figures = room >= 18
    key: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.02), "borderaxespad": 0.2, "frameon": False}
    key |= {"labelcolor": [label[4] for label in ordered], "handlelength": 1.7, "handletextpad": 0.5}
    key |= {"labelspacing": 0.35, "prop": {"size": min(8.5, room / (2.9 if with_figures else 1.6))}}
    box = axes.legend(
        [Line2D([], [], color=label[4], marker=label[5] or "", ls="-", lw=1.4, ms=4.5) for label in ordered],
        [f"{label[2]}\n{label[3]}" if with_figures else label[2] for label in ordered],
        **key,
    )
    for text in box.get_texts():
        text.set_parse_math(False)
    return figure
