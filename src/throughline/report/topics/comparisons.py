"""Show comparisons: every pair of a benchmark with its ratio and verdict."""

from collections.abc import Iterator
from operator import attrgetter

from throughline.numbers import percent, reading
from throughline.report.analysis.comparison import places, too_few, would_tell
from throughline.report.render.tables import CSV, NOT_KNOWN, PAGE, Column, Entry, Table, ends_in_csv, in_csv, interval
from throughline.report.topic import Scope, Topic

TESTS = {True: "paired t-test of rounds", False: "Welch's t-test"}
"""Map whether the repeats ran in rounds to the test."""


COLUMNS = (
    Column("compared", "compared", read=lambda pair: pair.what),
    Column("where", "where", read=lambda pair: pair.where),
    Column(heading="medians", forms=(PAGE,),
           read=lambda pair: f"{reading(pair.other.median)} against {reading(pair.base.median)}"),
    Column("ratio", "ratio", "of the medians", lambda pair: Entry(
        f"{pair.ratio:.{places(pair.tested) if pair.tested else 3}f}", pair.ratio)),
    *ends_in_csv("ratio_at_least", "ratio_at_most", attrgetter("range")),
    Column("tested_ratio", "tested ratio", read=lambda pair: pair.tested and Entry(
        f"{pair.tested.ratio:.{places(pair.tested)}f}", pair.tested.ratio), reason="there is no test"),
    *ends_in_csv("tested_at_least", "tested_at_most", lambda pair: pair.tested and (pair.tested.low, pair.tested.high)),
    *ends_in_csv("corrected_at_least", "corrected_at_most", attrgetter("corrected")),
    interval(lambda pair: pair.interval or NOT_KNOWN),
    in_csv("test", lambda pair: TESTS[pair.in_rounds] if pair.tested else None),
    in_csv("p", attrgetter("p")),
    in_csv("p_holm", attrgetter("adjusted")),
    in_csv("family", lambda pair: pair.family if pair.tested else None),
    in_csv("pairs_tested", attrgetter("tests")),
    in_csv("margin", attrgetter("margin")),
    in_csv("smallest_difference", lambda pair: pair.floor.share if pair.floor else None),
    in_csv("a_a_pairs", lambda pair: pair.floor.compared if pair.floor else 0),
    Column("verdict", "verdict", read=Entry.verdict),
    Column("because", "because", read=lambda pair: pair.reason),
)  # fmt: skip


def table(scope: Scope) -> Table:
    """Return a line for each pair, with its verdict."""
    return Table.of(scope.pairs, COLUMNS, forms=(PAGE, CSV), notes=[*_notes(scope)])


def _notes(scope: Scope) -> Iterator[str]:
    """Say what can be told apart, and what the figures mean."""
    floors = dict.fromkeys(pair.floor for pair in scope.pairs)
    yield from (f"{floor.text}." for floor in floors if floor)
    if None in floors:
        yield (
            "A pair without an A/A run of its environment and workload within a day has a verdict about these runs "
            "only: whether the same runs would differ tomorrow is not known. extras: [aa] measures it."
        )
    tested = [pair for pair in scope.pairs if pair.tested]
    if tested:
        design = "all repeats ran in complete rounds" if tested[0].in_rounds else "the repeats are no complete rounds"
        margin = percent(max(pair.margin for pair in tested), 1)
        yield f"Test: {TESTS[tested[0].in_rounds]} on logarithms, because {design}. Margin: {margin}."
    if few := too_few(scope.pairs):
        yield few
    elif more := would_tell(scope.pairs):
        difference, deviation, repeats = more
        yield (
            f"At the noise of the inconclusive pairs ({percent(deviation, 1)} per repeat at most), about "
            f"{repeats} repeats would detect differences of {percent(difference)} in 9 of 10 cases (runs.repeats)."
        )


TOPIC = Topic("comparisons", "Comparisons", order=180, table=table)
