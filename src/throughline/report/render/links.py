"""The links of an acceptance: pairs.csv, a matrix of all pairs of nodes, and what remains with smaller messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure as Plot
from matplotlib.patches import Rectangle

from throughline import statistics
from throughline.numbers import percent, reading
from throughline.records.acceptance import Acceptance, ExpectedFigure, FleetFigure, Standing
from throughline.report.render import plots, tables
from throughline.report.render.plots import PAGE, Theme
from throughline.report.render.tables import CSV, NOT_KNOWN, Column, Entry, Line, Table
from throughline.report.topic import Topic

INTRO = (
    "The all-reduce of each pair of nodes: bus bandwidth with the largest message, and the time of the smallest one. A "
    "node has no link to itself. The table shows what remains with smaller messages. pairs.csv has every pair at "
    "every size."
)
NUMBERED = 16
"""In the matrix of so many nodes at most, each field has its figure."""


@dataclass(frozen=True)
class Link:
    """One pair of nodes at one message size. distance: from the other pairs; expected: in GB/s, with its source."""

    pair: Standing
    size: int
    expected: float | None
    source: str | None
    time_us: float
    verdict: str


def links(acceptance: Acceptance) -> list[Link]:
    """Return every pair at every message size."""
    bandwidths = _bandwidths(acceptance, "pair")
    latency = _smallest(acceptance)
    slow_in_time = {one.place for one in latency.standings if one.slow} if latency else set()
    ranks = 2 * acceptance.devices
    found = []
    for figure in bandwidths:
        size = figure.size or 0
        expected, source = _expected(acceptance, figure)
        is_smallest = latency is not None and latency.size == size
        for one in figure.standings:
            slow = one.slow or (is_smallest and one.place in slow_in_time)
            verdict = "slow" if slow else "as its peers" if figure.judged or is_smallest else "not judged"
            time_us = 2 * (ranks - 1) / ranks * size / one.median / 1e3
            found.append(Link(one, size, expected, source, time_us, verdict))
    return sorted(found, key=lambda link: (link.pair.place.nodes, link.size))


def _bandwidths(acceptance: Acceptance, kind: str) -> list[FleetFigure]:
    """Return the bus bandwidths of one kind of place, the smallest messages first."""
    found = [one for one in acceptance.figures if (one.figure, one.kind) == ("bus_bandwidth", kind)]
    return sorted(found, key=lambda figure: figure.size or 0)


def _smallest(acceptance: Acceptance) -> FleetFigure | None:
    return next((one for one in acceptance.figures if (one.figure, one.kind) == ("latency", "pair")), None)


def _expected(acceptance: Acceptance, figure: FleetFigure) -> tuple[float | None, str | None]:
    """Return what is expected of a pair: what somebody promises or has published, otherwise what the hardware can."""
    said: Sequence[ExpectedFigure] = [*acceptance.expected, *acceptance.published]
    for one in said:
        if (one.at, one.figure, one.size, one.unit) == ("pair", figure.figure, figure.size, figure.unit):
            return one.expected, one.source
    return figure.limit, figure.limit_source


def csv(acceptance: Acceptance) -> Table:
    """Return a line for each pair of nodes at each message size, unrounded."""
    columns = [Column(key, whole=key in WHOLE) for key in KEYS]
    rows = (
        (
            *link.pair.place.nodes,
            link.size,
            link.pair.median,
            link.pair.low,
            link.pair.high,
            len(link.pair.repeats),
            link.time_us,
            link.pair.distance,
            link.expected,
            link.source,
            link.pair.median / link.expected if link.expected else None,
            link.verdict,
        )
        for link in links(acceptance)
    )
    return Table(columns, [Line([Entry(value=value) for value in row]) for row in rows], forms=(CSV,))


WHOLE = ("first_node", "second_node", "message_bytes", "repeats")
KEYS = (
    "first_node", "second_node", "message_bytes", "bus_bandwidth_gb_per_s", "lowest_repeat", "highest_repeat",
    "repeats", "time_us", "distance_from_others", "expected_gb_per_s", "expected_source", "share_of_expected",
    "verdict",
)  # fmt: skip


def section(acceptance: Acceptance) -> dict[str, Any] | None:
    """Return the links as the page prints them; None if no pair was measured."""
    every = links(acceptance)
    if not every:
        return None
    largest = max(link.size for link in every)
    shown = [link for link in every if link.size == largest]
    words = f"{len(shown)} pairs, {_unit(acceptance)}; slow: {_slow(shown)}"
    plot = matrix(acceptance, PAGE)
    return {
        "topic": Topic("links", "Links between nodes", INTRO),
        "table": sizes(acceptance),
        "plots": [plots.inline(plot, "links", "Links between nodes", words)],
        "remarks": [*_expected_in_words(shown[0]), *_latency_in_words(acceptance)],
    }


def _unit(acceptance: Acceptance) -> str:
    return _bandwidths(acceptance, "pair")[-1].unit


def _slow(shown: Sequence[Link]) -> str:
    return ", ".join(str(link.pair.place) for link in shown if link.verdict == "slow") or "none"


def _expected_in_words(link: Link) -> Iterator[str]:
    if link.expected:
        yield f"expected: {reading(link.expected)} GB/s ({link.source})"


def _latency_in_words(acceptance: Acceptance) -> Iterator[str]:
    """Yield the time of the smallest message: of the median pair, and of the slowest one."""
    figure = _smallest(acceptance)
    if figure:
        times = {one.place: one.median for one in figure.standings}
        worst = max(times, key=times.__getitem__)
        middle = statistics.median(list(times.values())) or 0.0
        yield (
            f"time of an all-reduce of {figure.size:,} bytes: {reading(middle)} {figure.unit} (median of the pairs), "
            f"{reading(times[worst])} {figure.unit} between {worst} (the slowest)"
        )


def sizes(acceptance: Acceptance) -> Table:
    """Return a line for each message size: pairs, all nodes, and the devices inside a node."""
    names = {"pair": "pairs", "all": "all nodes together", "node": "inside a node"}
    kinds = {kind: of for kind in names if (of := {one.size: one for one in _bandwidths(acceptance, kind)})}
    largest = max(kinds["pair"], key=lambda size: size or 0)
    best = _median(kinds["pair"][largest])
    rows: list[list[str | Entry]] = []
    for size, figure in kinds["pair"].items():
        worst = min(figure.standings, key=lambda one: one.median)
        middle = _median(figure)
        rows.append(
            [
                f"{size:,}",
                reading(middle),
                percent(1 - middle / best, 0),
                Entry.words(f"{reading(worst.median)} ({worst.place})", chip="slower" if worst.slow else ""),
                *(
                    reading(_median(of[size])) if size in of else NOT_KNOWN
                    for kind, of in kinds.items()
                    if kind != "pair"
                ),
            ]
        )
    unit = _unit(acceptance)
    heads = ["message, bytes", f"pairs, {unit}", "less than the largest message", "slowest pair"]
    return tables.texts([*heads, *(names[kind] for kind in kinds if kind != "pair")], rows, style="grid")


def _median(figure: FleetFigure) -> float:
    return statistics.median([one.median for one in figure.standings]) or 0.0


def matrix(acceptance: Acceptance, theme: Theme) -> Plot:
    """Draw a square for each pair: the fuller its colour, the faster it is. Slow pairs have a frame."""
    nodes, figure = acceptance.nodes, _bandwidths(acceptance, "pair")[-1]
    most = max(one.median for one in figure.standings)
    side = max(3.2, min(theme.size[0], 0.45 * len(nodes) + 1.1))
    drawn = Plot(figsize=(side, side))
    axes = drawn.add_axes((0.7 / side, 0.5 / side, (side - 0.8) / side, (side - 1.0) / side))
    plots.style(axes, theme, f"bus bandwidth, {figure.unit}, of pairs of nodes", "", 0.7)
    axes.grid(visible=False)
    axes.set_xlabel("node", color=theme.muted, fontsize=9)
    axes.set_xlim(-0.5, len(nodes) - 0.5)
    axes.set_ylim(len(nodes) - 0.5, -0.5)
    axes.set_xticks(range(len(nodes)), [str(node) for node in nodes])
    axes.set_yticks(range(len(nodes)), [f"node {node}" for node in nodes])
    at = {node: place for place, node in enumerate(nodes)}
    for one in figure.standings:
        first, second = (at[node] for node in one.place.nodes)
        for x, y in ((first, second), (second, first)):
            look: dict[str, Any] = {"facecolor": theme.colour(0), "alpha": 0.1 + 0.6 * one.median / most}
            axes.add_patch(Rectangle((x - 0.46, y - 0.46), 0.92, 0.92, lw=0, **look))
            if one.slow:
                frame: dict[str, Any] = {"facecolor": "none", "edgecolor": theme.colour(1), "lw": 2}
                axes.add_patch(Rectangle((x - 0.46, y - 0.46), 0.92, 0.92, **frame))
            if len(nodes) <= NUMBERED:
                weight = "bold" if one.slow else "normal"
                axes.text(
                    x, y, reading(one.median), ha="center", va="center", fontsize=7, color=theme.ink, weight=weight
                )
    return drawn
