"""The links of an acceptance: pairs.csv, a matrix of all pairs of nodes, and what remains with smaller messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from matplotlib.figure import Figure as Plot
from matplotlib.patches import Rectangle

from throughline import statistics
from throughline.numbers import percent, reading
from throughline.records.acceptance import Acceptance, FleetFigure
from throughline.report.render import plots, tables
from throughline.report.render.plots import PAGE, Theme
from throughline.report.render.tables import NOT_KNOWN, Entry, Table
from throughline.report.topic import Topic
from throughline.study.acceptance import PlaceKind

INTRO = (
    "The all-reduce of each pair of nodes: bus bandwidth with the largest message, and the time of the smallest one. A "
    "node has no link to itself. The table shows what remains with smaller messages. pairs.csv has every pair at "
    "every size."
)
NUMBERED = 16
"""In the matrix of so many nodes at most, each field has its figure."""
COLUMNS = (
    "first_node", "second_node", "message_bytes", "bus_bandwidth_gb_per_s", "lowest_repeat", "highest_repeat",
    "repeats", "time_us", "distance_from_others", "expected_gb_per_s", "expected_source", "share_of_expected",
    "verdict",
)  # fmt: skip
BESIDE: dict[PlaceKind, str] = {"all": "all nodes together", "node": "inside a node"}
"""What stands beside the pairs in the table of message sizes."""


def pairs(acceptance: Acceptance) -> pd.DataFrame:
    """Return a line for each pair of nodes at each message size. Latency judges the smallest message."""
    latency = _latency(acceptance)
    slow = {standing.place for standing in latency.standings if standing.slow} if latency else set()
    ranks = 2 * acceptance.devices
    rows = []
    for figure in _bandwidths(acceptance, "pair"):
        size, (expected, source) = figure.size or 0, _expected(acceptance, figure)
        is_smallest = latency is not None and latency.size == size
        for pair in figure.standings:
            is_slow = pair.slow or (is_smallest and pair.place in slow)
            rows.append(
                (
                    *pair.place.nodes,
                    size,
                    pair.median,
                    pair.low,
                    pair.high,
                    len(pair.repeats),
                    2 * (ranks - 1) / ranks * size / pair.median / 1e3,
                    pair.distance,
                    expected,
                    source,
                    pair.median / expected if expected else None,
                    "slow" if is_slow else "as its peers" if figure.judged or is_smallest else "not judged",
                )
            )
    return pd.DataFrame(rows, columns=COLUMNS).sort_values([*COLUMNS[:3]], kind="stable")


def _bandwidths(acceptance: Acceptance, kind: PlaceKind) -> list[FleetFigure]:
    """Return the bus bandwidths of one kind of place, the smallest messages first."""
    figures = [figure for figure in acceptance.figures if (figure.figure, figure.kind) == ("bus_bandwidth", kind)]
    return sorted(figures, key=lambda figure: figure.size or 0)


def _latency(acceptance: Acceptance) -> FleetFigure | None:
    figures = acceptance.figures
    return next((figure for figure in figures if (figure.figure, figure.kind) == ("latency", "pair")), None)


def _expected(acceptance: Acceptance, figure: FleetFigure) -> tuple[float | None, str | None]:
    """Return what is expected of a pair: what somebody promises or has published, otherwise what the hardware can."""
    for wanted in (*acceptance.expected, *acceptance.published):
        if (wanted.at, wanted.figure, wanted.size, wanted.unit) == ("pair", figure.figure, figure.size, figure.unit):
            return wanted.expected, wanted.source
    return figure.limit, figure.limit_source


def section(acceptance: Acceptance) -> dict[str, Any] | None:
    """Return the links as the page prints them; None if no pair was measured."""
    figures = _bandwidths(acceptance, "pair")
    if not figures:
        return None
    largest = figures[-1]
    slow = ", ".join(str(pair.place) for pair in largest.standings if pair.slow) or "none"
    words = f"{len(largest.standings)} pairs, {largest.unit}; slow: {slow}"
    return {
        "topic": Topic("links", "Links between nodes", INTRO),
        "table": sizes(acceptance),
        "plots": [plots.inline(matrix(acceptance, PAGE), "links", "Links between nodes", words)],
        "remarks": list(_remarks(acceptance, largest)),
    }


def _remarks(acceptance: Acceptance, largest: FleetFigure) -> Iterator[str]:
    """Yield what is expected of a pair, and the time of the smallest message: of the median pair, and the slowest."""
    expected, source = _expected(acceptance, largest)
    if expected:
        yield f"expected: {reading(expected)} GB/s ({source})"
    if latency := _latency(acceptance):
        worst = max(latency.standings, key=lambda pair: pair.median)
        yield (
            f"time of an all-reduce of {latency.size:,} bytes: {reading(_median(latency))} {latency.unit} (median of "
            f"the pairs), {reading(worst.median)} {latency.unit} between {worst.place} (the slowest)"
        )


def sizes(acceptance: Acceptance) -> Table:
    """Return a line for each message size: pairs, all nodes, and the devices inside a node."""
    figures = _bandwidths(acceptance, "pair")
    best, unit = _median(figures[-1]), figures[-1].unit
    beside = {
        words: {figure.size: reading(_median(figure)) for figure in _bandwidths(acceptance, kind)}
        for kind, words in BESIDE.items()
    }
    beside = {words: speeds for words, speeds in beside.items() if speeds}
    rows: list[list[str | Entry]] = []
    for figure in figures:
        middle, worst = _median(figure), min(figure.standings, key=lambda pair: pair.median)
        slowest = Entry.words(f"{reading(worst.median)} ({worst.place})", chip="slower" if worst.slow else "")
        others = [speeds.get(figure.size, NOT_KNOWN) for speeds in beside.values()]
        rows.append([f"{figure.size:,}", reading(middle), percent(1 - middle / best, 0), slowest, *others])
    heads = ["message, bytes", f"pairs, {unit}", "less than the largest message", "slowest pair"]
    return tables.texts([*heads, *beside], rows, style="grid")


def _median(figure: FleetFigure) -> float:
    return statistics.median([standing.median for standing in figure.standings]) or 0.0


def matrix(acceptance: Acceptance, theme: Theme) -> Plot:
    """Draw a square for each pair: the fuller its colour, the faster it is. Slow pairs have a frame."""
    nodes, figure = acceptance.nodes, _bandwidths(acceptance, "pair")[-1]
    most = max(pair.median for pair in figure.standings)
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
    for pair in figure.standings:
        first, second = (at[node] for node in pair.place.nodes)
        for x, y in ((first, second), (second, first)):
            look: dict[str, Any] = {"facecolor": theme.colour(0), "alpha": 0.1 + 0.6 * pair.median / most}
            axes.add_patch(Rectangle((x - 0.46, y - 0.46), 0.92, 0.92, lw=0, **look))
            if pair.slow:
                frame: dict[str, Any] = {"facecolor": "none", "edgecolor": theme.colour(1), "lw": 2}
                axes.add_patch(Rectangle((x - 0.46, y - 0.46), 0.92, 0.92, **frame))
            if len(nodes) <= NUMBERED:
                weight = "bold" if pair.slow else "normal"
                axes.text(
                    x, y, reading(pair.median), ha="center", va="center", fontsize=7, color=theme.ink, weight=weight
                )
    return drawn
