"""Name the rank that is slow: each rank's own step and matrix product beside those of the other ranks of its cell."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from matplotlib.figure import Figure as Plot

from throughline.numbers import milliseconds, percent, scaled
from throughline.outliers import LEAST_PARTS
from throughline.report.analysis import slow_ranks
from throughline.report.analysis.cells import Cell, Group
from throughline.report.analysis.notes import Note
from throughline.report.analysis.slow_ranks import Own, RankStanding
from throughline.report.render import plots as draws
from throughline.report.render import table_files
from throughline.report.render.plots import Theme
from throughline.report.render.tables import CSV, PAGE, Column, Entry, Table
from throughline.report.topic import Drawing, Scope, Topic

SHOWN = 8
"""So many ranks of a cell are on the page: those that stand out, then the slowest. The CSV has all."""
NAMED = 3
"""So many ranks of a group have a warning beside its results."""
NO_SOLO = "only runs without exchange time each rank by itself (extra no_gradient_sync)"
NO_PRODUCT = "the records have no matrix product of each rank"
INTRO = (
    "If ranks exchange in every step, all of them take as long as the slowest one. So these figures are of each rank "
    "by itself: its step in the runs whose ranks keep their gradients (extra `no_gradient_sync`), and a large matrix "
    "product after the window. The distance is from the median of the other ranks, and negative if the rank is "
    "slower. Behind it stands the range over the repeats. A rank waits so long in each step for the slowest. A rank "
    "is called slow if it is always slower, by more than 2 %, and if chance hardly explains that: neither how far it "
    "is from the others, nor that all repeats name the same rank. So a verdict needs repeats: about three with 8 "
    "ranks, five with 3. Two ranks have no verdict, because nobody can tell which of them is wrong."
)


def _figure(
    heading: str, name: str, key: str, unit: str, show: Callable[[Any], str], reason: str
) -> tuple[Column, ...]:
    """Return the columns of a rank's own figure and of its distance from the others, as a share of their median."""

    def column(key: str, heading: str, value: Callable[[Own], Any], show: Callable[[Any], str] = str) -> Column:
        def read(standing: RankStanding) -> Entry:
            own = getattr(standing, name)
            found = value(own) if own else None
            return found if isinstance(found, Entry) else Entry.of(found, show, reason)

        return Column(key, heading, read=read, forms=(PAGE, CSV) if heading else (CSV,))

    def distance(own: Own) -> Entry | None:
        if own.standing.distance is None:
            return None
        ends = f" ({_signed(own.distances[0])} to {_signed(own.distances[1])})" if own.distances else ""
        return Entry(f"{_signed(own.standing.distance)}{ends}", own.standing.distance)

    return (
        column(f"{key}_{unit}", heading, lambda own: own.standing.median, show),
        column(f"{key}_distance", "from the others", distance),
        column(f"{key}_distance_min", "", lambda own: own.distances and own.distances[0]),
        column(f"{key}_distance_max", "", lambda own: own.distances and own.distances[1]),
        column(f"{key}_coverage", "", lambda own: own.coverage),
        column(f"{key}_p", "", lambda own: own.standing.p_holm),
    )


def _signed(share: float) -> str:
    return f"{100 * share:+.1f} %"


def _verdict(standing: RankStanding) -> Entry:
    if standing.slow:
        slow = ", ".join(standing.slow)
        return Entry(f"slow: {slow}", slow)
    owns = [own for own in (standing.solo, standing.product) if own and own.distances]
    return Entry("as the others" if any(own.standing.p_holm is not None for own in owns) else "no verdict")


COLUMNS = (
    *table_files.IDENTITY,
    Column("rank", "rank", read=lambda standing: standing.rank, whole=True),
    Column("node", "node", read=lambda standing: standing.node, whole=True),
    Column("device", "device", read=lambda standing: standing.device, whole=True),
    *_figure("own step, ms", "solo", "solo_step", "s", milliseconds, NO_SOLO),
    Column("waits_s", "waits, ms", read=lambda standing: Entry.of(standing.waits_s, milliseconds, NO_SOLO)),
    *_figure("matrix product, FLOP/s", "product", "matmul", "flops_per_s", scaled, NO_PRODUCT),
    Column("slow_in", "verdict", read=_verdict),
)


def csv(scope: Scope) -> Table | None:
    """Return a line for each rank of each cell; None if nothing is known of single ranks."""
    return Table.of(scope.ranks, COLUMNS, forms=(CSV,)) if scope.ranks else None


def table(scope: Scope) -> Table | None:
    """Return the ranks of each cell: those that stand out, and the slowest of the others."""
    shown, notes = [], dict[str, None]()
    for ranks in _comparable(scope.ranks).values():
        worst = sorted(ranks, key=lambda standing: (not standing.slow, standing.distance))[:SHOWN]
        shown += sorted(worst, key=lambda standing: standing.rank)
        if len(ranks) > SHOWN:
            notes[f"Of a cell with more than {SHOWN} ranks, the table has the {SHOWN} slowest. ranks.csv has all."] = (
                None
            )
    if any(standing.solo and slow_ranks.unequal_work(standing.cell.group) for standing in scope.ranks):
        notes[
            "Without padding, each rank computes as many tokens as its own data have. So its own step depends on its "
            "data, and has no verdict."
        ] = None
    return Table.of(shown, COLUMNS, forms=(PAGE,), notes=[*notes]) if shown else None


def _comparable(standings: Iterable[RankStanding]) -> dict[Cell, list[RankStanding]]:
    """Return the cells of three ranks or more. Of two that differ, nobody can tell which one is slow."""
    cells: dict[Cell, list[RankStanding]] = {}
    for standing in standings:
        cells.setdefault(standing.cell, []).append(standing)
    return {cell: ranks for cell, ranks in cells.items() if len(ranks) >= LEAST_PARTS}


def notes(scope: Scope, group: Group) -> Iterator[Note]:
    """Yield a warning for each of the ranks that stand out, the slowest first."""
    slow = [standing for standing in scope.ranks if standing.slow and standing.cell.group is group]
    for standing in sorted(slow, key=lambda standing: standing.distance)[:NAMED]:
        figures = {"its own step": standing.solo, "its matrix product": standing.product}
        parts = []
        for name, place in ((name, own.standing) for name, own in figures.items() if own and own.standing.slow):
            text = f"{name} is {percent(-(place.distance or 0.0), 1)} slower than {place.others} others"
            if place.others_low is not None and place.others_high is not None:
                text += f" (range of the others {_signed(place.others_low)} to {_signed(place.others_high)})"
            parts.append(text)
        where = f"rank {standing.rank} (node {standing.node}, device {standing.device})"
        yield Note(standing.cell.name, f"{where} is slow, and all others wait for it: {' and '.join(parts)}", "warning")


def drawings(scope: Scope) -> Iterator[Drawing]:
    """Yield a small plot for each group: the distance of each rank from the others."""
    for group in scope.groups:
        cells = {cell: ranks for cell, ranks in _comparable(scope.ranks).items() if cell.group is group}
        if cells:
            told = []
            for cell, ranks in cells.items():
                worst = min(ranks, key=lambda standing: standing.distance)
                slow = ", ".join(str(standing.rank) for standing in ranks if standing.slow) or "none"
                farthest = f"the farthest is rank {worst.rank}, {_signed(worst.distance)}"
                told.append(f"{cell.name}: slow ranks: {slow}; {farthest}.")
            heading = f"{group.benchmark}: each rank beside the others"
            yield Drawing(f"{group.name}_ranks", heading, partial(draw, group, cells), " ".join(told), group)


def draw(group: Group, cells: dict[Cell, list[RankStanding]], theme: Theme) -> Plot:
    """Draw a point for each rank in a line for each cell; slow ranks have their number."""
    heading = f"{group.benchmark}: each rank beside the others, {group.precision}"
    figure, axes = draws.lying([cell.name for cell in cells], theme, heading, 0.4)
    axes.set_xlabel("% from the median of the other ranks; left is slower", color=theme.muted, fontsize=9)
    axes.axvline(0, color=theme.muted, lw=0.8)
    for line, ranks in enumerate(cells.values()):
        for index, (name, marker, label) in enumerate((("solo", "o", "own step"), ("product", "s", "matrix product"))):
            places = [(ranked.rank, own.standing) for ranked in ranks if (own := getattr(ranked, name))]
            points = {rank: 100 * place.distance for rank, place in places if place.distance is not None}
            at = line - 0.12 + 0.24 * index
            look: dict[str, Any] = {"ls": "", "marker": marker, "ms": 4, "alpha": 0.75, "color": theme.colour(index)}
            axes.plot([*points.values()], [at] * len(points), label=label if points and not line else None, **look)
            for rank, place in places:
                if place.slow and rank in points:
                    text: dict[str, Any] = {"fontsize": 8, "ha": "center", "color": theme.ink, "fontweight": "bold"}
                    axes.annotate(str(rank), (points[rank], at), (0, 4), textcoords="offset points", **text)
    draws.legend_above(axes, theme, 2)
    return figure


TOPIC = Topic("ranks", "Which rank is slow", INTRO, order=35, csv=csv, table=table, drawings=drawings, notes=notes)
