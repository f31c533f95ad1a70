"""Compare pairs of cells: by how much they differ, how sure that is, and whether this machine can tell.

Only this file makes tested pairs; the page, the tables and the sentences print their verdicts. The test is chosen from
the design of the repeats, one for all pairs of a benchmark. The variance of A/A runs enters the test.
"""

from collections.abc import Sequence
from dataclasses import replace

from throughline import ratios
from throughline.report.analysis import noise
from throughline.report.analysis.asked_pairs import asked_pairs, untested
from throughline.report.analysis.cells import Cell, Group, in_rounds
from throughline.report.analysis.comparison import Pair, adjusted
from throughline.report.analysis.differences import unlike
from throughline.study.config import block_name


def judge(groups: Sequence[Group], everything: Sequence[Group] = ()) -> list[Pair]:
    """Return all comparisons of one benchmark, with their verdicts.

    They compare frameworks, precisions, topologies, and the benchmark with those among `everything` that differ from it
    in one option only, which this one has switched on.
    """
    asked = asked_pairs(groups, everything)
    return tested(asked, twice_measured(groups, everything, asked))


def twice_measured(groups: Sequence[Group], everything: Sequence[Group], asked: Sequence[Pair]) -> list[Pair]:
    """Return the A/A pairs of the blocks of these groups, and of the benchmarks that they are compared with."""
    compared = {block_name(cell.group.benchmark) for pair in asked for cell in (pair.base, pair.other)}
    blocks = compared | {block_name(group.benchmark) for group in groups}
    return list(noise.measured_twice([g for g in everything or groups if block_name(g.benchmark) in blocks]))


def of_cells(base: Cell, other: Cell, again: Sequence[Pair]) -> Pair:
    """Return the comparison of two measured cells that nobody else compares."""
    return tested([untested(base, other)], again)[0]


def tested(pairs: Sequence[Pair], again: Sequence[Pair], *, elsewhere: bool = False) -> list[Pair]:
    """Test pairs together, beside the A/A pairs `again`. Pairs that must not be compared have no test.

    elsewhere: one side of each pair was measured at another time or place. Then its surroundings may differ, and the
    repeats share no rounds.
    """
    if not elsewhere:
        pairs = [replace(pair, unlike=unlike(pair.base, pair.other)) for pair in pairs]
    alike = [pair for pair in pairs if not pair.unlike]
    rounds = not elsewhere and in_rounds(cell for pair in alike for cell in (pair.base, pair.other))
    judged = []
    for pair in pairs:
        cells = pair.base, pair.other
        found = noise.noise_of(cells, again)
        test = None if pair.unlike else ratios.tested(pair.before, pair.after, paired=rounds, noise=found)
        floor, margin = noise.floor_of(cells, again), min(cell.group.summary.margin for cell in cells)
        judged.append(replace(pair, tested=test, in_rounds=rounds, floor=floor, margin=margin))
    return adjusted(judged)
