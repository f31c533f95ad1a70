"""Show comparisons: every pair of a benchmark with its ratio and verdict."""

from collections.abc import Iterator
from dataclasses import replace

from throughline import ratios
from throughline.numbers import percent, reading
from throughline.report.analysis.comparison import Pair, places, too_few, would_tell
from throughline.report.render import tested_ratios
from throughline.report.render.tables import CSV, NOT_KNOWN, PAGE, Column, Entry, Table
from throughline.report.topic import Scope, Topic

TESTS = {True: "paired t-test of rounds", False: "Welch's t-test"}
"""Map whether the repeats ran in rounds to the test."""


def _of_test(key: str, name: str) -> Column:
    """Return the column of a number of the test, for the CSV."""
    return Column(key, read=lambda pair: pair.tested and getattr(pair.tested, name), forms=(CSV,))


def _tested_ratio(pair: Pair) -> Entry:
    tested = pair.tested
    return Entry(f"{tested.ratio:.{places(tested)}f}", tested.ratio) if tested else Entry(NOT_KNOWN)


COLUMNS = (
    Column("compared", "compared", read=lambda pair: pair.what),
    Column("where", "where", read=lambda pair: pair.where),
    Column(
        heading="medians",
        read=lambda pair: f"{reading(pair.other.median)} against {reading(pair.base.median)}",
        forms=(PAGE,),
    ),
    Column("ratio", "ratio", "of the medians", lambda pair: Entry(
        f"{pair.ratio:.{places(pair.tested) if pair.tested else 3}f}", pair.ratio)),
    Column("ratio_at_least", read=lambda pair: pair.range and pair.range[0], forms=(CSV,)),
    Column("ratio_at_most", read=lambda pair: pair.range and pair.range[1], forms=(CSV,)),
    Column("tested_ratio", "tested ratio", read=_tested_ratio),
    _of_test("tested_at_least", "low"),
    _of_test("tested_at_most", "high"),
    Column("corrected_at_least", read=lambda pair: pair.corrected and pair.corrected[0], forms=(CSV,)),
    Column("corrected_at_most", read=lambda pair: pair.corrected and pair.corrected[1], forms=(CSV,)),
    replace(tested_ratios.INTERVAL, read=lambda pair: pair.interval or NOT_KNOWN),
    Column("test", read=lambda pair: TESTS[pair.in_rounds] if pair.tested else None, forms=(CSV,)),
    _of_test("p", "p"),
    Column("p_holm", read=lambda pair: pair.adjusted, forms=(CSV,)),
    Column("family", read=lambda pair: pair.family if pair.tested else None, forms=(CSV,)),
    Column("pairs_tested", read=lambda pair: pair.tests, forms=(CSV,)),
    Column("margin", read=lambda pair: pair.margin, forms=(CSV,)),
    Column("smallest_difference", read=lambda pair: pair.floor.share if pair.floor else None, forms=(CSV,)),
    Column("a_a_pairs", read=lambda pair: pair.floor.compared if pair.floor else 0, forms=(CSV,)),
    Column("verdict", "verdict", read=lambda pair: Entry.words(pair.words, chip=pair.verdict.replace(" ", "-"))),
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
        test = TESTS[tested[0].in_rounds]
        design = "all repeats ran in complete rounds" if tested[0].in_rounds else "the repeats are no complete rounds"
        margin = percent(max(pair.margin for pair in tested), 1)
        yield (
            f"All pairs have the same test, a {test} on logarithms, because {design}. The intervals of a family of "
            f"questions hold all of their true ratios together with {percent(1 - ratios.SURE)} (Bonferroni). A "
            f"difference is conclusive if p, after Holm's correction (1979) for its family, is below "
            f"{percent(ratios.SURE)}. Holm's correction is sharper: a difference may be conclusive although its "
            f"interval contains 1. There is no difference if the {percent(ratios.INTERVAL)} interval of a pair "
            f"alone lies within {margin} (margin), or within that of the A/A runs if it is wider."
        )
    if few := too_few(scope.pairs):
        yield few
    elif more := would_tell(scope.pairs):
        difference, deviation, repeats = more
        yield (
            f"At the noise of the inconclusive pairs ({percent(deviation, 1)} per repeat at most), about "
            f"{repeats} repeats would detect differences of {percent(difference)} in 9 of 10 cases (runs.repeats)."
        )


TOPIC = Topic("comparisons", "Comparisons", order=180, table=table)
