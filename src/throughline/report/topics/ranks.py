"""Name the rank that is slow: each rank's own step and matrix product beside those of the other ranks of its cell."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from matplotlib.figure import Figure as Plot

from throughline.numbers import milliseconds, percent, scaled
from throughline.outliers import LEAST_PARTS
from throughline.report.analysis import slow_ranks
from throughline.report.analysis.cells import Group, Row
from throughline.report.analysis.slow_ranks import NO_PRODUCT, NO_SOLO, Own, RankStanding
from throughline.report.render import plots as draws
from throughline.report.render import table_files, tables
from throughline.report.render.plots import Theme
from throughline.report.render.tables import Entry, Table
from throughline.report.topic import LOSS, Drawing, Finding, Scope, Topic

SHOWN = 8
"""So many ranks of a cell are on the page: those that stand out, then the slowest. The CSV has all."""
NAMED = 3
"""A sentence names no more ranks than this."""
HEADER = [
    "framework", "topology", "precision, batch", "rank", "node", "device", "own step, ms", "from the others",
    "waits, ms", "matrix product, FLOP/s", "from the others", "verdict",
]  # fmt: skip
INTRO = (
    "If ranks exchange in every step, all of them take as long as the slowest one. So these figures are of each rank "
    "by itself: its step in the runs whose ranks keep their gradients (extra `no_gradient_sync`), and a large matrix "
    "product after the window. The distance is from the median of the other ranks, and negative if the rank is "
    "slower. Behind it stands the range over the repeats. A rank waits so long in each step for the slowest. A rank "
    "is called slow if it is always slower, by more than 2 %, and if chance hardly explains that: neither how far it "
    "is from the others, nor that all repeats name the same rank. So a verdict needs repeats: about three with 8 "
    "ranks, five with 3. Two ranks have no verdict, because nobody can tell which of them is wrong."
)


def csv(scope: Scope) -> Table | None:
    """Return a line for each rank of each cell, unrounded; None if nothing is known of single ranks."""
    rows = [
        {
            "benchmark": standing.group.benchmark,
            "precision": standing.group.precision,
            **table_files.batch_columns(standing.group, standing.row),
            "framework": standing.row.framework,
            "topology": str(standing.row.topology),
            "rank": standing.rank,
            "node": standing.node,
            "device": standing.device,
            **_columns("solo_step", "_s", standing.solo),
            "waits_s": standing.waits_s,
            **_columns("matmul", "_flops_per_s", standing.product),
            "slow_in": ", ".join(standing.slow) or None,
        }
        for standing in scope.ranks
    ]
    return tables.records(rows, whole=("rank", "node", "device")) if rows else None


def _columns(name: str, unit: str, own: Own | None) -> dict[str, Any]:
    """Return a figure of a rank as columns of the CSV. Distances are shares of the others' median speed."""
    if own is None:
        return dict.fromkeys(f"{name}{end}" for end in (unit, *ENDS))
    low, high = own.distances or (None, None)
    known = own.standing.distance, low, high, own.coverage, own.standing.p_holm
    return {f"{name}{unit}": own.standing.median, **dict(zip((f"{name}{end}" for end in ENDS), known, strict=True))}


ENDS = ("_distance", "_distance_min", "_distance_max", "_coverage", "_p")


def table(scope: Scope) -> Table | None:
    """Return the ranks of each cell: those that stand out, and the slowest of the others."""
    rows: list[list[str | Entry]] = [
        [
            standing.row.shown,
            str(standing.row.topology),
            f"{standing.group.precision}, {standing.group.batch_of(standing.row)}",
            *(Entry(str(number), number) for number in (standing.rank, standing.node, standing.device)),
            _value(standing.solo, milliseconds, NO_SOLO),
            _distance(standing.solo, NO_SOLO),
            Entry.of(standing.waits_s, milliseconds, NO_SOLO),
            _value(standing.product, scaled, NO_PRODUCT),
            _distance(standing.product, NO_PRODUCT),
            _verdict(standing),
        ]
        for _, _, ranks in _comparable(scope.ranks)
        for standing in _shown(ranks)
    ]
    return tables.texts(HEADER, rows) if rows else None


def _value(own: Own | None, read: Any, reason: str) -> Entry:
    return Entry.of(own.standing.median if own else None, read, reason)


def _distance(own: Own | None, reason: str) -> Entry:
    if own is None or own.standing.distance is None:
        return Entry(reason=reason)
    ends = f" ({_signed(own.distances[0])} to {_signed(own.distances[1])})" if own.distances else ""
    return Entry(f"{_signed(own.standing.distance)}{ends}", own.standing.distance)


def _signed(share: float) -> str:
    return f"{100 * share:+.1f} %"


def _verdict(standing: RankStanding) -> str:
    if standing.slow:
        return f"slow: {', '.join(standing.slow)}"
    owns = [own for own in (standing.solo, standing.product) if own and own.distances]
    judged = any(own.standing.p_holm is not None for own in owns)
    return "as the others" if judged else "no verdict"


def remarks(scope: Scope) -> Iterator[str]:
    """Yield what the table leaves out, and which steps have no verdict."""
    if any(len(ranks) > SHOWN for _, _, ranks in _by_cell(scope.ranks)):
        yield f"Of a cell with more than {SHOWN} ranks, the table has the {SHOWN} slowest. ranks.csv has all."
    if any(standing.solo and slow_ranks.unequal_work(standing.group) for standing in scope.ranks):
        yield (
            "Without padding, each rank computes as many tokens as its own data have. So its own step depends on its "
            "data, and has no verdict."
        )


def _comparable(standings: Iterable[RankStanding]) -> list[tuple[Group, Row, list[RankStanding]]]:
    """Return the cells of three ranks or more. Of two that differ, nobody can tell which one is slow."""
    return [cell for cell in _by_cell(standings) if len(cell[2]) >= LEAST_PARTS]


def _by_cell(standings: Iterable[RankStanding]) -> list[tuple[Group, Row, list[RankStanding]]]:
    cells: dict[tuple[int, int], tuple[Group, Row, list[RankStanding]]] = {}
    for standing in standings:
        key = id(standing.group), id(standing.row)
        cells.setdefault(key, (standing.group, standing.row, []))[2].append(standing)
    return list(cells.values())


def _shown(ranks: Sequence[RankStanding]) -> list[RankStanding]:
    """Return the ranks that the page shows, in their order."""
    worst = sorted(ranks, key=lambda standing: (not standing.slow, standing.distance))[:SHOWN]
    return sorted(worst, key=lambda standing: standing.rank)


def findings(scope: Scope) -> Iterator[Finding]:
    """Yield one warning about the ranks that stand out, the slowest first."""
    slow = sorted((standing for standing in scope.ranks if standing.slow), key=lambda standing: standing.distance)
    if slow:
        more = f" {len(slow) - NAMED} more are in the table." if len(slow) > NAMED else ""
        yield Finding(f"{' '.join(map(words, slow[:NAMED]))}{more} All other ranks wait for a slow rank.", LOSS)


def words(standing: RankStanding) -> str:
    """Say which rank is slow, and by how much."""
    figures = {"its own step": standing.solo, "its matrix product": standing.product}
    parts = [f"{name} is {_slower(own)}" for name, own in figures.items() if own and own.standing.slow]
    group, row = standing.group, standing.row
    return (
        f"{row.shown} {row.topology}, {group.precision}, {group.batch_text}: rank {standing.rank} (node "
        f"{standing.node}, device {standing.device}) is slow: {' and '.join(parts)}."
    )


def _slower(own: Own) -> str:
    standing = own.standing
    text = f"{percent(-(standing.distance or 0.0), 1)} slower than {standing.others} others"
    if standing.others_range:
        text += f" (range of the others {' to '.join(map(_signed, standing.others_range))})"
    return text


def drawings(scope: Scope) -> Iterator[Drawing]:
    """Yield a small plot for each cell: the distance of each rank from the others."""
    for group in scope.groups:
        cells = [(row, ranks) for of, row, ranks in _comparable(scope.ranks) if of is group]
        if cells:
            heading = f"{group.benchmark}: each rank beside the others"
            told = " ".join(f"{row.shown} {row.topology}: {_told(ranks)}." for row, ranks in cells)
            yield Drawing(f"{group.name}_ranks", heading, partial(draw, group, cells), told, group)


def _told(ranks: Sequence[RankStanding]) -> str:
    worst = min(ranks, key=lambda standing: standing.distance)
    slow = ", ".join(str(standing.rank) for standing in ranks if standing.slow) or "none"
    return f"slow ranks: {slow}; the farthest is rank {worst.rank}, {_signed(worst.distance)}"


def draw(group: Group, cells: Sequence[tuple[Row, Sequence[RankStanding]]], theme: Theme) -> Plot:
    """Draw a point for each rank in a line for each cell; slow ranks have their number."""
    names = [f"{row.shown} {row.topology}" for row, _ in cells]
    left, right, bottom, top = min(0.25 + 0.072 * max(map(len, names)), theme.size[0] / 2), 0.3, 0.55, 0.6
    width, height = theme.size[0], bottom + top + 0.4 * len(cells)
    figure = Plot(figsize=(width, height))
    corners = (left / width, bottom / height, 1 - (left + right) / width, 0.4 * len(cells) / height)
    axes = figure.add_axes(corners)
    draws.style(axes, theme, f"{group.benchmark}: each rank beside the others, {group.precision}", "", left)
    axes.set_xlabel("% from the median of the other ranks; left is slower", color=theme.muted, fontsize=9)
    axes.grid(visible=False, axis="y")
    axes.grid(axis="x", color=theme.grid, lw=0.8)
    axes.axvline(0, color=theme.muted, lw=0.8)
    for line, (_, ranks) in enumerate(cells):
        for index, (name, marker) in enumerate((("solo", "o"), ("product", "s"))):
            owns = [(standing.rank, own) for standing in ranks if (own := getattr(standing, name))]
            points = [(rank, 100 * own.standing.distance, own.standing.slow) for rank, own in owns
                      if own.standing.distance is not None]  # fmt: skip
            at = line - 0.12 + 0.24 * index
            look: dict[str, Any] = {"ls": "", "marker": marker, "ms": 4, "alpha": 0.75, "color": theme.colour(index)}
            label = ("own step", "matrix product")[index] if points and not line else None
            axes.plot([x for _, x, _ in points], [at] * len(points), label=label, **look)
            for rank, x, slow in points:
                if slow:
                    axes.annotate(str(rank), (x, at), (0, 4), textcoords="offset points", fontsize=8, ha="center",
                                  color=theme.ink, fontweight="bold")  # fmt: skip
    axes.set_yticks(range(len(cells)), names, parse_math=False)
    axes.set_ylim(len(cells) - 0.5, -0.5)
    legend: dict[str, Any] = {"fontsize": 8, "frameon": False, "labelcolor": theme.ink, "ncols": 2}
    axes.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), handlelength=1.0, **legend)
    return figure


TOPIC = Topic(
    "ranks",
    "Which rank is slow",
    INTRO,
    order=35,
    csv=csv,
    table=table,
    drawings=drawings,
    remarks=remarks,
    findings=findings,
)
