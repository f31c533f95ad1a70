"""Compare pairs of cells: by how much they differ, how sure that is, and whether this machine can tell.

Only this file makes tested pairs; the page, the tables and the sentences print their verdicts. The test is chosen from
the design of the repeats, one for all pairs of a benchmark. A/A runs (the extra `aa`) measure one configuration twice.
How much they differ is the noise of a machine: it enters the test, and judges only runs of its own environment,
workload and day.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from throughline import ratios
from throughline.ratios import Noise
from throughline.report.analysis.asked_pairs import asked_pairs, untested
from throughline.report.analysis.cells import Cell, Group, in_rounds
from throughline.report.analysis.comparison import Floor, Pair, adjusted
from throughline.report.analysis.differences import differences, unlike
from throughline.study.config import block_name

AA = "__aa"
NEAR = timedelta(days=1)
"""An A/A run judges only runs within this time of it."""


def judge(groups: Sequence[Group], everything: Sequence[Group] = ()) -> list[Pair]:
    """Return all comparisons of one benchmark, with their verdicts.

    They compare frameworks, precisions, topologies, and the benchmark with those among `everything` that differ from it
    in one option only, which this one has switched on.
    """
    asked = asked_pairs(groups, everything)
    return tested(asked, twice_measured(groups, everything, asked))


def twice_measured(groups: Sequence[Group], everything: Sequence[Group], asked: Sequence[Pair] = ()) -> list[Pair]:
    """Return the A/A pairs of the blocks of these groups, and of the benchmarks that they are compared with."""
    compared = [cell.group for pair in asked for cell in (pair.base, pair.other)]
    blocks = {block_name(group.benchmark) for group in [*compared, *groups]}
    return list(measured_twice([g for g in everything or groups if block_name(g.benchmark) in blocks]))


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
        noise = noise_of(cells, again)
        test = None if pair.unlike else ratios.tested(pair.before, pair.after, paired=rounds, noise=noise)
        floor, margin = floor_of(cells, again), min(cell.group.summary.margin for cell in cells)
        judged.append(replace(pair, tested=test, in_rounds=rounds, floor=floor, margin=margin))
    return adjusted(judged)


def measured_twice(groups: Sequence[Group]) -> Iterator[Pair]:
    """Yield the cells that were measured twice, in the same environment and within a day: the A/A pairs."""

    def key(cell: Cell) -> tuple[str, str, str, str]:
        return cell.group.name, cell.framework, str(cell.topology), cell.group.benchmark.removesuffix(AA)

    cells = [cell for group in groups for cell in group.measured]
    first = {key(cell): cell for cell in cells if not cell.group.benchmark.endswith(AA)}
    for again in (cell for cell in cells if cell.group.benchmark.endswith(AA)):
        origin = first.get(key(again))
        if origin and not differences(origin, again) and _near(origin, again):
            paired = in_rounds((origin, again))
            test = ratios.tested(origin.repeats, again.repeats, paired=paired)
            pair = untested(origin, again, "aa", "again", origin.where)
            yield replace(pair, tested=test, in_rounds=paired)


def floor_of(cells: Iterable[Cell], again: Sequence[Pair]) -> Floor | None:
    """Return the widest A/A ratio that belongs to one of two cells, with the framework of that cell."""
    cells = list(cells)
    own = [pair for pair in again if any(_belongs(pair, cell, of_framework=True) for cell in cells)]
    names = dict.fromkeys(pair.base.framework for pair in own)
    return Floor(" and ".join(names), max(abs(pair.log) for pair in own), len(own)) if own else None


def noise_of(cells: Iterable[Cell], again: Sequence[Pair]) -> Noise | None:
    """Return by how much whole measurements differ beyond their repeats, from the A/A runs of all frameworks."""
    cells = list(cells)
    belong = [pair for pair in again if any(_belongs(pair, cell) for cell in cells)]
    return ratios.between_measurements([pair.tested for pair in belong if pair.tested])


def _belongs(pair: Pair, cell: Cell, *, of_framework: bool = False) -> bool:
    """True if an A/A pair was measured in the environment, with the workload and within a day of a cell.

    of_framework: it has to be of the same framework, too.
    """
    return all(
        (one.framework == cell.framework or not of_framework)
        and one.group.summary.model == cell.group.summary.model
        and one.group.summary.parameters == cell.group.summary.parameters
        and _near(one, cell)
        and not differences(one, cell)
        for one in (pair.base, pair.other)
    )


def _near(first: Cell, second: Cell) -> bool:
    """True if at most a day lies between two measurements; False if a summary does not tell when they took place."""
    records = first.record, second.record
    try:
        starts = [datetime.fromisoformat(record.started) for record in records if record.started]
        ends = [datetime.fromisoformat(record.ended) for record in records if record.ended]
        return len(starts) == len(ends) == 2 and max(starts) - min(ends) <= NEAR
    except (ValueError, TypeError):
        return False
