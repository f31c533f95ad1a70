"""Name the rank that is slow: each rank's own step and matrix product beside those of the other ranks of its cell."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from operator import attrgetter
from typing import Any

from matplotlib.figure import Figure as Plot

from throughline.grouping import grouped
from throughline.numbers import milliseconds, percent, scaled, signed
from throughline.outliers import LEAST_PARTS
from throughline.report.analysis import slow_ranks
from throughline.report.analysis.advice import Note
from throughline.report.analysis.cells import Cell, Group
from throughline.report.analysis.slow_ranks import Own, RankStanding
from throughline.report.render import plots as draws
from throughline.report.render import table_files
from throughline.report.render.tables import CSV, PAGE, Column, Entry, Table, ends_in_csv, in_csv
from throughline.report.topic import Drawing, Scope, Topic

SHOWN = 8
"""So many ranks of a cell are on the page: those that stand out, then the slowest. The CSV has all."""
NAMED = 3
"""So many ranks of a group have a warning beside its results."""
NO_SOLO = "only runs without exchange time each rank by itself (extra no_gradient_sync)"
NO_VERDICT = "no verdict"
NO_PRODUCT = "the records have no matrix product of each rank"
INTRO = (
    "If ranks exchange in every step, all of them take as long as the slowest one. So these figures are of each rank "
    "by itself: its step in the runs whose ranks keep their gradients (extra `no_gradient_sync`), and a large matrix "
    "product after the window. The distance is from the median of the other ranks, and negative if the rank is slower; "
    "behind it stands the range over the repeats. A rank is called slow if it is always slower, by more than 2 %, and "
    "chance hardly explains how far it is from the others and that all repeats name it. That takes about three repeats "
    "with 8 ranks and five with 3. Two ranks have no verdict, because nobody can tell which of them is wrong."
)
MORE = f"Of a cell with more than {SHOWN} ranks, the table has the {SHOWN} slowest. ranks.csv has all."
UNEQUAL = (
    "Without padding, each rank computes as many tokens as its own data have. So its own step depends on its data, and "
    "has no verdict."
)


def _figure(name: str, key: str, unit: str, heading: str, show: Callable[[Any], str], reason: str) -> Iterator[Column]:
    """Yield the columns of a rank's own figure and of its distance from the others, as a share of their median."""

    def of_own(read: Callable[[Own], Any]) -> Callable[[RankStanding], Any]:
        return lambda standing: read(own) if (own := getattr(standing, name)) else None

    def distance(own: Own) -> Entry | None:
        share, ends = own.standing.distance, own.distances
        if share is None:
            return None
        return Entry(signed(share) + (f" ({signed(ends[0])} to {signed(ends[1])})" if ends else ""), share)

    yield Column(f"{key}_{unit}", heading, "", of_own(attrgetter("standing.median")), show, reason, forms=(PAGE, CSV))
    yield Column(f"{key}_distance", "from the others", "", of_own(distance), reason=reason, forms=(PAGE, CSV))
    yield from ends_in_csv(f"{key}_distance_min", f"{key}_distance_max", of_own(attrgetter("distances")))
    yield in_csv(f"{key}_coverage", of_own(attrgetter("coverage")))
    yield in_csv(f"{key}_p", of_own(attrgetter("standing.p_holm")))


def _verdict(standing: RankStanding) -> Entry:
    if standing.slow:
        slow = ", ".join(standing.slow)
        return Entry(f"slow: {slow}", slow)
    owns = [own for own in (standing.solo, standing.product) if own and own.distances]
    return Entry("as the others" if any(own.standing.p_holm is not None for own in owns) else NO_VERDICT)


COLUMNS = (
    *table_files.IDENTITY,
    *(Column(name, name, read=attrgetter(name), whole=True) for name in ("rank", "node", "device")),
    *_figure("solo", "solo_step", "s", "own step, ms", milliseconds, NO_SOLO),
    Column("waits_s", "waits, ms", "", attrgetter("waits_s"), milliseconds, NO_SOLO),
    *_figure("product", "matmul", "flops_per_s", "matrix product, FLOP/s", scaled, NO_PRODUCT),
    Column("slow_in", "verdict", read=_verdict),
)


def csv(scope: Scope) -> Table | None:
    """Return a line for each rank of each cell; None if nothing is known of single ranks."""
    return Table.if_any(scope.ranks, COLUMNS, forms=(CSV,))


def table(scope: Scope) -> Table | None:
    """Return the ranks of each cell: those that stand out, and the slowest of the others."""
    shown, cells = [], _comparable(scope.ranks).values()
    for ranks in cells:
        worst = sorted(ranks, key=lambda standing: (not standing.slow, standing.distance))[:SHOWN]
        shown += sorted(worst, key=lambda standing: standing.rank)
    unequal = any(standing.solo and slow_ranks.unequal_work(standing.cell.group) for standing in scope.ranks)
    notes = [MORE] * any(len(ranks) > SHOWN for ranks in cells) + [UNEQUAL] * unequal
    return Table.if_any(shown, COLUMNS, forms=(PAGE,), notes=notes)


def _comparable(standings: Iterable[RankStanding]) -> dict[Cell, list[RankStanding]]:
    """Return the cells of three ranks or more with a verdict or own steps.

    Of two ranks that differ, nobody can tell which one is slow. Matrix products without a verdict tell nothing.
    """
    return {
        cell: ranks
        for cell, ranks in grouped(standings, lambda standing: standing.cell).items()
        if len(ranks) >= LEAST_PARTS and any(rank.solo or _verdict(rank).text != NO_VERDICT for rank in ranks)
    }


def notes(scope: Scope, group: Group) -> Iterator[Note]:
    """Yield a warning for each of the ranks that stand out, the slowest first."""
    slow = [standing for standing in scope.ranks if standing.slow and standing.cell.group is group]
    for standing in sorted(slow, key=lambda standing: standing.distance)[:NAMED]:
        rank = f"rank {standing.rank} (node {standing.node}, device {standing.device})"
        by = f"{percent(-standing.distance, 1)} slower than the others ({', '.join(standing.slow)})"
        yield Note(standing.cell.name, f"{rank} is {by}, and all of them wait for it", "warning")


def drawings(scope: Scope) -> Iterator[Drawing]:
    """Yield a small plot for each group: the distance of each rank from the others."""
    for group in scope.groups:
        if cells := {cell: ranks for cell, ranks in _comparable(scope.ranks).items() if cell.group is group}:
            heading = f"{group.benchmark}: each rank beside the others"
            yield Drawing(f"{group.name}_ranks", heading, partial(draw, group, cells), group)


def draw(group: Group, cells: dict[Cell, list[RankStanding]], theme: draws.Theme) -> Plot:
    """Draw a point for each rank in a line for each cell; slow ranks have their number."""
    heading = f"{group.benchmark}: each rank beside the others, {group.precision}"
    figure, axes = draws.lying([cell.name for cell in cells], theme, heading, 0.4)
    axes.set_xlabel("% from the median of the other ranks; left is slower", color=theme.muted, fontsize=9)
    axes.axvline(0, color=theme.muted, lw=0.8)
    for line, ranks in enumerate(cells.values()):
        for index, (name, label) in enumerate((("solo", "own step"), ("product", "matrix product"))):
            places = {ranked.rank: own.standing for ranked in ranks if (own := getattr(ranked, name))}
            points = {rank: 100 * place.distance for rank, place in places.items() if place.distance is not None}
            at = line - 0.12 + 0.24 * index
            look: dict[str, Any] = {"ls": "", "marker": "os"[index], "ms": 4, "alpha": 0.75}
            if points:
                axes.plot([*points.values()], [at] * len(points), label=label, color=theme.colour(index), **look)
            for rank in (rank for rank in points if places[rank].slow):
                text: dict[str, Any] = {"fontsize": 8, "ha": "center", "color": theme.ink, "fontweight": "bold"}
                axes.annotate(str(rank), (points[rank], at), (0, 4), textcoords="offset points", **text)
    draws.legend_above(axes, theme, 2)
    return figure


TOPIC = Topic("ranks", "Which rank is slow", INTRO, order=35, csv=csv, table=table, drawings=drawings, notes=notes)
