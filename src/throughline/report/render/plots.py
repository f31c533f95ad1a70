"""The look of all plots, their axes over devices, and plots as files or as parts of a page.

The same figure gives the same bytes of SVG every time.
"""

import io
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Plot
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from matplotlib.transforms import offset_copy

from throughline.files import atomic
from throughline.numbers import reading
from throughline.report.analysis.cells import Cell, Group
from throughline.spec import Topology

CROWDED = 8  # with more device counts than this, the ticks have no names of topologies
WIDE = 8  # if the largest device count is at least so many times the smallest, both axes are logarithmic
GAP = 27.0  # points between two names at the ends of lines
TWO_LINES = 16.0  # with fewer points than this between two names, the labels have no figures
TICK = 8.5  # the font size of the ticks' names
LETTER = 0.6  # the mean width of a bold letter, divided by the font size
LETTER_INCHES = 0.072  # the width of a letter of a bar's name
SMALL_LETTER = 0.5  # the same for letters that are not bold
BELOW = 10.0  # points from the top of the axes to the middle of the first name: the legend is above them
MARGINS = (0.74, 1.36, 0.68, 0.58)  # inches kept free on the left, right (labels), bottom and top
Label = tuple[float, float, str, str, str, str | None]
"""The label at the end of a line: the end's place (devices, value), name, figure, colour and marker."""
MARKERS = "os^DvpPX*<>"
"""Their number has no divisor in common with the number of colours, 6: the first 66 pairs of both are different."""
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (5, 1.5, 1, 1.5)), (0, (2.5, 1.2)))
"""Line styles; they follow each other as the markers do. Marker and style tell lines apart without colours. Only ideal
lines are dotted."""
COORDINATES = {"d", "x", "y", "transform", "points"}  # attributes whose numbers the page rounds to a tenth of a point
SVG = "{http://www.w3.org/2000/svg}"
XLINK = "{http://www.w3.org/1999/xlink}"


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
PAGE = Theme(
    *("#010101", "#010102", "#010103", "#010104", tuple(f"#01020{index}" for index in range(6)), (4.7, 3.5)),
    background=False,
    fonts="none",
)
"""Its colours only mark places: matplotlib accepts them, and then `inline` puts the page's variables there."""
VARIABLES = ("ink", "muted", "line", "surface", *(f"series-{index}" for index in range(6)))


def svg(figure: Plot, theme: Theme) -> str:
    """Return the figure as SVG text, without date or program name."""
    stream = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": theme.fonts, "svg.hashsalt": "throughline"}):
        face = theme.surface if theme.background else "none"
        figure.savefig(stream, format="svg", facecolor=face, metadata={"Date": None, "Creator": None})
    return stream.getvalue()


def save(figure: Plot, path: Path) -> None:
    """Write the figure to `path` with .svg and to `path` with .png."""
    with atomic(path.with_name(f"{path.name}.svg")) as temporary:
        temporary.write_text(svg(figure, LIGHT), encoding="utf-8", newline="\n")
    with atomic(path.with_name(f"{path.name}.png")) as temporary:
        figure.savefig(temporary, format="png", dpi=160, facecolor=LIGHT.surface, metadata={"Software": None})


def inline(drawn: Plot, identity: str, title: str, description: str) -> Markup:
    """Return `drawn` as a small inline SVG element. `identity` makes its ids unique on the page."""
    root = ET.fromstring(svg(drawn, PAGE))
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag.removeprefix(SVG) in {"metadata", "style"}:
                parent.remove(child)
    used = set(re.findall(r"(?:url\(#|href=\")#?([\w-]+)", ET.tostring(root, encoding="unicode")))
    for element in root.iter():
        element.tag = element.tag.removeprefix(SVG)
        element.text = (element.text or "").strip() or None
        element.tail = None
        attributes = dict(element.attrib)
        element.attrib.clear()
        for name, value in attributes.items():
            if name == f"{XLINK}href":
                element.set("href", f"#{identity}-{value.removeprefix('#')}")
            elif name in COORDINATES:
                element.set(name, re.sub(r"(\.\d)\d+", r"\1", value))
            elif name != "id":
                style = re.sub(r"url\(#([\w-]+)\)", rf"url(#{identity}-\1)", value)
                element.set(name, re.sub(r"font-family: [^;]+; ", "", style))  # the page has its own
            elif value in used:
                element.set("id", f"{identity}-{value}")
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    root.attrib |= {"class": "plot", "role": "img", "aria-labelledby": f"{identity}-title {identity}-desc"}
    for tag, text in (("desc", description), ("title", title)):
        child = ET.Element(tag, {"id": f"{identity}-{tag}"})
        child.text = text
        root.insert(0, child)
    text = ET.tostring(root, encoding="unicode")
    for stand_in, variable in zip(
        (PAGE.ink, PAGE.muted, PAGE.grid, PAGE.surface, *PAGE.series), VARIABLES, strict=True
    ):
        text = text.replace(stand_in, f"var(--{variable})")
    return Markup(text)


def series(group: Group, framework: str, value: Callable[[Cell], float | None] | None = None, name: str = "") -> Series:
    """Return the measured cells of one framework as points: their throughputs, or a `value`; None leaves a cell out."""
    cells = group.series(framework)
    if value is None:
        return Series(name or framework, tuple(Point(cell.topology, cell.median, cell.repeats) for cell in cells))
    known = ((cell.topology, value(cell)) for cell in cells)
    return Series(name or framework, tuple(Point(topology, found) for topology, found in known if found))


def blank(theme: Theme, heading: str, unit: str) -> tuple[Plot, Axes]:
    """Return a figure with one titled pair of axes."""
    figure = Plot(figsize=theme.size)
    axes = figure.add_axes(inside(theme.size, 0, 1))
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
    """Write the legend above the axes."""
    look: dict[str, Any] = {"handlelength": 1.0, "borderpad": 0.2, "columnspacing": 1.4, "ncols": columns}
    look |= {"fontsize": 8, "frameon": False, "labelcolor": theme.ink}
    axes.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), **look)


def inside(size: tuple[float, float], index: int, panels: int) -> tuple[float, float, float, float]:
    """Return left, bottom, width and height of a panel's axes as shares of a figure of `size` inches.

    Panels stand above each other; the panel with index 0 is on top.
    """
    (width, height), (left, right, bottom, top) = size, MARGINS
    share = height / panels
    low = ((panels - 1 - index) * share + bottom) / height
    return left / width, low, (width - left - right) / width, (share - bottom - top) / height


def style(axes: Axes, theme: Theme, heading: str, unit: str, left: float = MARGINS[0]) -> None:
    """Set titles, grid and colours of a pair of axes that begin `left` inches from the figure's left side."""
    room = 72 * (theme.size[0] - left)
    size = min(11.0, room / (LETTER * len(heading or " ")))
    # With y given, matplotlib does not lay out the axis once more to look whether the title covers its ticks.
    title: dict[str, Any] = {"loc": "left", "y": 1.0, "pad": 21, "fontweight": "bold", "parse_math": False}
    axes.set_title(heading, fontsize=size, color=theme.ink, **title)
    axes.set_ylabel(unit, color=theme.muted, fontsize=9)
    axes.set_xlabel("devices", color=theme.muted, fontsize=9)
    axes.tick_params(colors=theme.muted, labelsize=TICK, length=0, pad=5)
    axes.grid(axis="y", color=theme.grid, lw=0.8)
    axes.set_axisbelow(True)
    axes.patch.set_visible(False)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(theme.grid)


def device_axis(axes: Axes, topologies: Iterable[Topology], theme: Theme, share_scale: bool = True) -> None:
    """Set a tick at each measured device count, with its topologies. Use logarithmic axes if counts lie far apart."""
    names: dict[int, set[Topology]] = {}
    for topology in topologies:
        names.setdefault(topology.world, set()).add(topology)
    worlds = sorted(names)
    if not worlds:
        return
    if worlds[-1] / worlds[0] >= WIDE:
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
    every = {world: [str(name) for name in sorted(names[world]) if named or name.simulated] for world in worlds}
    shown = _with_room(axes, every)
    axes.set_xticks(worlds, ["\n".join([str(world), *shown[world]]) for world in worlds])
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))


def _with_room(axes: Axes, names: Mapping[int, Sequence[str]]) -> dict[int, Sequence[str]]:
    """Return the names of ticks without those that would cover a neighbour's. The first and the last one stay.

    names: the lines below each tick, by its place on the axis.
    """
    points = 72 / axes.figure.dpi
    places = {place: points * float(axes.transData.transform((place, axes.get_ylim()[0]))[0]) for place in names}
    half = {place: 0.5 * TICK * LETTER * max(map(len, lines), default=0) for place, lines in names.items()}
    last = max(names)
    kept, shown = None, dict[int, Sequence[str]]()
    for place, lines in names.items():
        others = [other for other in (kept, last if place != last else None) if other is not None]
        free = all(abs(places[place] - places[other]) > half[place] + half[other] for other in others)
        shown[place] = lines if free or place == last else []
        kept = place if shown[place] else kept
    return shown


def dashes(marker: str) -> Any:
    """Return the line style of the series with this marker."""
    return DASHES[MARKERS.index(marker) % len(DASHES)]


def line(
    axes: Axes, series: Series, colour: str, theme: Theme, marker: str, text: str = "", marked: bool = True
) -> Label:
    """Draw a series as a line with markers. A series that was not measured here is thin, with hollow markers.

    `marked` is False if the caller draws the markers. Returns the label at the line's end: the series' name, and `text`
    or else its last value, with the source of a series that was not measured here.
    """
    worlds = [point.topology.world for point in series.points]
    medians = [point.median for point in series.points]
    measured: dict[str, Any] = {"ls": dashes(marker), "lw": 1.6, "mec": theme.surface, "mew": 1.0}
    elsewhere: dict[str, Any] = {"ls": "--", "lw": 1.2, "mfc": theme.surface, "mew": 1.2}
    look = measured if series.source == MEASURED else elsewhere
    axes.plot(worlds, medians, marker=marker if marked else None, color=colour, ms=6, zorder=3, **look)
    whose = "" if series.source == MEASURED else f"{series.source}: "
    return worlds[-1], medians[-1], series.name, whose + (text or reading(medians[-1])), colour, marker


def repeats(axes: Axes, point: Point, colour: str, theme: Theme, marker: str) -> None:
    """Draw the median as a marker, the range as a whisker, and each repeat as a dot beside it."""
    world = point.topology.world
    axes.vlines(world, point.low, point.high, color=colour, lw=1.4, zorder=4)
    axes.plot([world], [point.median], marker, color=colour, ms=6.5, mec=theme.surface, mew=1.0, zorder=5)
    for index, repeat in enumerate(point.repeats):
        beside = offset_copy(axes.transData, axes.get_figure(root=True), x=7.5 + 2.3 * index, units="points")
        look: dict[str, Any] = {"ls": "", "marker": ".", "ms": 3.0, "alpha": 0.6, "mew": 0, "zorder": 4}
        axes.add_line(Line2D([world], [repeat], color=colour, transform=beside, **look))  # faster than axes.plot


def finish(figure: Plot, axes: Axes, labels: Sequence[Label], theme: Theme, legend: str) -> Plot:
    """Write the legend above the axes, and each line's label at its end; without a line, that nothing was measured.

    Call it when everything else is drawn, because the places depend on the axes' limits.
    """
    if legend:
        look: dict[str, Any] = {"xycoords": "axes fraction", "xytext": (0, 8), "textcoords": "offset points"}
        size = min(8.0, 72 * (theme.size[0] - MARGINS[0]) / (SMALL_LETTER * len(legend)))
        axes.annotate(legend, (0, 1), **look, fontsize=size, color=theme.muted)
    if labels:
        _labels(axes, labels, theme)
    else:
        axes.set_xticks([])
        axes.set_yticks([])
        axes.text(0.5, 0.5, "no measured value", transform=axes.transAxes, ha="center", color=theme.muted)
    return figure


def _labels(axes: Axes, labels: Sequence[Label], theme: Theme) -> None:
    """Write names at the right ends of their lines, moved apart so that no name covers another.

    If many lines end there, the names are smaller.
    """
    if axes.get_yscale() == "linear" and axes.get_autoscaley_on():
        axes.set_ylim(0, 1.06 * axes.dataLim.ymax)
    axes.autoscale_view()
    scale = 72 / axes.figure.get_dpi()
    ordered = sorted(labels, key=lambda label: label[1])
    own_places = [float(axes.transData.transform((x, value))[1]) * scale for x, value, *_ in ordered]
    bottom, top = axes.bbox.y0 * scale, axes.bbox.y1 * scale
    gap = min(GAP, (top - bottom) / len(ordered))
    places = spread_out(own_places, gap, top - BELOW)
    two = gap >= TWO_LINES
    size = min(1.0, gap / (23 if two else 12))
    right = axes.get_xlim()[1]
    look: dict[str, Any] = {"textcoords": "offset points", "va": "center", "annotation_clip": False}
    look |= {"linespacing": 1.25, "parse_math": False}
    for y, wanted, (_, value, name, text, colour, marker) in zip(places, own_places, ordered, strict=True):
        offset = (15, y - wanted)
        if marker:
            above = y - wanted + (6 * size if two else 0)
            key = offset_copy(axes.transData, axes.get_figure(root=True), x=8, y=above, units="points")
            axes.plot([right], [value], marker, color=colour, ms=5, mew=0, transform=key, clip_on=False)
        shown = f"{name}\n" if two else name
        axes.annotate(shown, (right, value), offset, fontsize=9 * size, color=colour, fontweight="bold", **look)
        if two:
            axes.annotate(f"\n{text}", (right, value), offset, fontsize=8.5 * size, color=theme.muted, **look)


def spread_out(places: Sequence[float], gap: float, top: float) -> list[float]:
    """Return `places`, which rise, moved so that they are at least `gap` apart and none is above `top`."""
    result = list(places)
    for index in range(1, len(result)):
        result[index] = max(result[index], result[index - 1] + gap)
    limit = top
    for index in reversed(range(len(result))):
        result[index] = min(result[index], limit)
        limit = result[index] - gap
    return result
