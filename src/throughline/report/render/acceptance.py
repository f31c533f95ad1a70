"""results/acceptance.json as its page and tables show it: who is slow, beside whom, and the links between nodes."""

from collections.abc import Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, get_args

from matplotlib.figure import Figure as Plot
from matplotlib.patches import Rectangle

from throughline import statistics
from throughline.acceptance import verdict
from throughline.numbers import percent, reading, signed
from throughline.records.acceptance import Acceptance, ExpectedFigure, Finding, FleetFigure, PlaceVerdict, Standing
from throughline.report.render import plots, table_files, tables
from throughline.report.render.tables import NOT_KNOWN, PAGE, Column, Entry, Table, ends_in_csv, in_csv
from throughline.report.topic import Topic, section
from throughline.study.acceptance import PlaceKind

PLACES = (
    "Every device, node and link beside its peers: the median of its repeats, its distance from the median of the "
    "others, and the range of these others. A place is called slow if it is slower than its peers by more than the "
    "tolerance, and stands out among all places and figures."
)
PUBLISHED = (
    "Published figures are often the best of many tries, so a sound place may reach less. The verdict does not depend "
    "on them."
)
LINKS = (
    "The bus bandwidth of an all-reduce by message size, and that of each pair of nodes with the largest message. "
    "pairs.csv has every pair at every size, and the time that it took."
)
ORDER = get_args(PlaceVerdict)
"""The order of places on the page: those that are slow or in doubt stand first."""
NUMBERED = 16
"""In the matrix of so many nodes at most, each field has its figure."""
BESIDE: dict[PlaceKind, str] = {"all": "all nodes together", "node": "inside a node"}
"""What stands beside the pairs in the table of message sizes."""
Line = tuple[FleetFigure, Standing]
"""A figure, and a place in it."""


def _others(low: float | None, high: float | None) -> str:
    return NOT_KNOWN if low is None or high is None else f"{signed(low)} to {signed(high)}"


def _verdict(line: Line) -> Entry:
    standing = line[1]
    text = f"because of {standing.because}" if standing.verdict == "explained" else standing.verdict
    return Entry.words(text, chip="slower" if standing.slow else "")


COLUMNS = (
    Column("place", "place", read=lambda line: str(line[1].place)),
    Column("figure", "figure", read=lambda line: line[0].words),
    Column("size", "size", "rows, elements or bytes", lambda line: line[0].size, "{:,}".format,
           "the figure has no size", whole=True),
    Column("unit", "unit", read=lambda line: line[0].unit),
    Column("median", "median", read=lambda line: line[1].median, show=reading),
    *ends_in_csv("lowest_repeat", "highest_repeat", lambda line: (line[1].low, line[1].high)),
    Column("repeats", "repeats", read=lambda line: len(line[1].repeats)),
    Column("distance_from_others", "distance from the others", "", lambda line: line[1].distance, signed,
           "it has no peers"),
    *ends_in_csv("others_lowest", "others_highest", lambda line: (line[1].others_low, line[1].others_high)),
    Column(heading="range of the others", forms=(PAGE,), read=lambda line: _others(
        line[1].others_low, line[1].others_high)),
    in_csv("p", lambda line: line[1].p),
    in_csv("p_holm", lambda line: line[1].p_holm),
    Column("limit_of_hardware", "limit of the hardware", "", lambda line: line[0].limit, reading,
           "no source says what the hardware can reach"),
    Column("slow", "verdict", read=_verdict),
)  # fmt: skip


def sections(acceptance: Acceptance) -> Iterator[dict[str, Any]]:
    """Yield the acceptance as the page prints it: the verdict, what is expected, the links, and all places."""
    findings = tables.texts(list(map(_finding, acceptance.findings)))
    when = [f"Measured from {acceptance.started} to {acceptance.ended}"] * bool(acceptance.ended)
    yield section(Topic("verdict", "The verdict"), findings, [*verdict.notes(acceptance), *when])
    if acceptance.expected:
        yield section(Topic("expected", "What is expected"), tables.texts(list(map(_wanted, acceptance.expected))))
    if acceptance.published:
        rows = [_wanted(figure, is_promised=False) for figure in acceptance.published]
        yield section(Topic("published", "Beside what others have published", PUBLISHED), tables.texts(rows))
    if of_links := links(acceptance):
        yield of_links
    tolerance = f"tolerance: {percent(acceptance.tolerance, 1)} (accept.tolerance)"
    lines = sorted(_lines(acceptance), key=lambda line: ORDER.index(line[1].verdict))
    yield section(Topic("places", "All places", PLACES), Table.of(lines, COLUMNS).in_form(PAGE), [tolerance])


def _lines(acceptance: Acceptance) -> list[Line]:
    return [(figure, standing) for figure in acceptance.figures for standing in figure.standings]


def _finding(finding: Finding) -> dict[str, str | Entry | None]:
    slow = []
    for figure in finding.slow:
        where = "" if figure.place == finding.place else f" ({figure.place})"
        others = _others(figure.others_low, figure.others_high)
        slow.append(f"{figure.words}{where}: {signed(figure.distance)} (the others: {others})")
    facts = [f"{fact.fact}: {fact.here} here, {fact.others} in the others" for fact in finding.facts]
    nothing = "nothing that was observed" if finding.slow else ""  # what was refused has no peers
    return {
        "where": str(finding.place),
        "what is slower": "\n".join(slow) or finding.sentence,
        "what is the cause": finding.because,
        "what differs there": "\n".join(facts) or nothing,
    }


def _wanted(figure: ExpectedFigure, is_promised: bool = True) -> dict[str, str | Entry | None]:
    """Return a line for a figure that is expected or published, beside the slowest place."""
    word, chip = ("short", "slower") if figure.short else ("reached", "faster")
    if figure.reached is None:
        word, chip = "not measured", "inconclusive"
    size = f" ({figure.size:,})" if figure.size else ""
    return {
        "figure": f"{figure.words}{size}, {figure.at}",
        **({"verdict": Entry.words(word, chip)} if is_promised else {}),
        "expected" if is_promised else "published": f"{reading(figure.expected)} {figure.unit}",
        "slowest place": f"{reading(figure.reached)} {figure.unit}" if figure.reached else None,
        "where": figure.place or None,
        "share": percent(figure.share, 1) or None,
        "source": figure.source,
    }


def write(acceptance: Acceptance, places: Path, pairs: Path) -> None:
    """Write all places, and all pairs at all message sizes, as CSV with unrounded figures."""
    table_files.write_csv(Table.of(_lines(acceptance), COLUMNS), places)
    table_files.write_csv(Table.of(_pairs(acceptance), [Column(key, read=itemgetter(key)) for key in PAIR]), pairs)


PAIR = (
    "first_node", "second_node", "message_bytes", "bus_bandwidth_gb_per_s", "lowest_repeat", "highest_repeat",
    "repeats", "time_us", "distance_from_others", "expected_gb_per_s", "expected_source", "share_of_expected",
    "verdict",
)  # fmt: skip
"""The columns of pairs.csv."""


def _pairs(acceptance: Acceptance) -> list[dict[str, Any]]:
    """Return a row for each pair of nodes at each message size. Latency judges the smallest message."""
    latencies = [figure for figure in acceptance.figures if (figure.figure, figure.kind) == ("latency", "pair")]
    slow = {standing.place for figure in latencies for standing in figure.standings if standing.slow}
    ranks, rows = 2 * acceptance.devices, []
    for figure in _bandwidths(acceptance, "pair"):
        size, (expected, source) = figure.size or 0, _expected(acceptance, figure)
        is_smallest = size in [latency.size for latency in latencies]
        for pair in figure.standings:
            is_slow = pair.slow or (is_smallest and pair.place in slow)
            seconds = 2 * (ranks - 1) / ranks * size / pair.median / 1e3
            word = "slow" if is_slow else "as its peers" if figure.judged or is_smallest else "not judged"
            share = pair.median / expected if expected else None
            figures = pair.median, pair.low, pair.high, len(pair.repeats), seconds, pair.distance
            row = *pair.place.nodes, size, *figures, expected, source, share, word
            rows.append(dict(zip(PAIR, row, strict=True)))
    return sorted(rows, key=lambda row: [row[key] for key in PAIR[:3]])


def _bandwidths(acceptance: Acceptance, kind: PlaceKind) -> list[FleetFigure]:
    """Return the bus bandwidths of one kind of place, the smallest messages first."""
    figures = [figure for figure in acceptance.figures if (figure.figure, figure.kind) == ("bus_bandwidth", kind)]
    return sorted(figures, key=lambda figure: figure.size or 0)


def _expected(acceptance: Acceptance, figure: FleetFigure) -> tuple[float | None, str | None]:
    """Return what is expected of a pair: what somebody promises or has published, otherwise what the hardware can."""
    for wanted in (*acceptance.expected, *acceptance.published):
        if (wanted.at, wanted.figure, wanted.size, wanted.unit) == ("pair", figure.figure, figure.size, figure.unit):
            return wanted.expected, wanted.source
    return figure.limit, figure.limit_source


def links(acceptance: Acceptance) -> dict[str, Any] | None:
    """Return the links as the page prints them: all message sizes, and a matrix; None if no pair was measured."""
    figures = _bandwidths(acceptance, "pair")
    if not figures:
        return None
    expected, source = _expected(acceptance, figures[-1])
    remarks = [f"expected: {reading(expected)} GB/s ({source})"] if expected else []
    drawn = plots.inline(matrix(acceptance, plots.PAGE), "links", "Links between nodes")
    return section(Topic("links", "Links between nodes", LINKS), _sizes(acceptance, figures), remarks, [drawn])


def _sizes(acceptance: Acceptance, figures: Sequence[FleetFigure]) -> Table | None:
    """Return a line for each message size: pairs, all nodes, and the devices inside a node."""
    beside = {
        words: {figure.size: reading(_median(figure)) for figure in _bandwidths(acceptance, kind)}
        for kind, words in BESIDE.items()
    }
    rows = []
    for figure in figures:
        middle, worst = _median(figure), min(figure.standings, key=lambda pair: pair.median)
        slowest = Entry.words(f"{reading(worst.median)} ({worst.place})", chip="slower" if worst.slow else "")
        rows.append(
            {
                "message, bytes": f"{figure.size:,}",
                f"pairs, {figures[-1].unit}": reading(middle),
                "below the largest message": percent(1 - middle / _median(figures[-1])),
                "slowest pair": slowest,
                **{words: speeds.get(figure.size) for words, speeds in beside.items() if speeds},
            }
        )
    return tables.texts(rows, style="grid")


def _median(figure: FleetFigure) -> float:
    return statistics.median([standing.median for standing in figure.standings]) or 0.0


def matrix(acceptance: Acceptance, theme: plots.Theme) -> Plot:
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
            corner, alpha = (x - 0.46, y - 0.46), 0.1 + 0.6 * pair.median / most
            axes.add_patch(Rectangle(corner, 0.92, 0.92, facecolor=theme.colour(0), alpha=alpha, lw=0))
            if pair.slow:
                axes.add_patch(Rectangle(corner, 0.92, 0.92, fill=False, edgecolor=theme.colour(1), lw=2))
            if len(nodes) <= NUMBERED:
                text: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 7, "color": theme.ink}
                axes.text(x, y, reading(pair.median), weight="bold" if pair.slow else "normal", **text)
    return drawn
