"""Which framework of a benchmark is the fastest, and what its tests do not tell apart from it."""

from collections.abc import Mapping, Sequence
from typing import Any

from throughline.report.analysis import advice
from throughline.report.analysis.asked_pairs import best_of_others, fastest, without_figure
from throughline.report.analysis.cells import Group, Row
from throughline.report.analysis.judged_pairs import Pair
from throughline.report.analysis.sides import Side


def leader(groups: Sequence[Group], pairs: Sequence[Pair]) -> Row | None:
    """Return the row with the highest median, if its framework is the fastest of the benchmark; else None.

    That takes a test for every other framework, at that framework's own best place, which finds it slower beyond the
    A/A runs. All of them have to be proven equal, and their settings have to be those of the same work. They need a
    figure on its topology in its precision, too: fewer devices are slower for other reasons. A benchmark with a single
    framework has no leader.
    """
    first = fastest(groups)
    if first is None or first.row.proof != "equal" or without_figure(groups, first):
        return None
    others = best_of_others(groups, first)
    wins = all(other.row.proof == "equal" and _same_work(first, other) for other in others)
    return first.row if others and wins and not not_beaten(first, others, pairs, beyond_runs=True) else None


def not_beaten(first: Side, others: Sequence[Side], pairs: Sequence[Pair], *, beyond_runs: bool) -> list[str]:
    """Return the frameworks of `others` that no pair finds slower than `first`.

    beyond_runs: a verdict about these runs alone does not count.
    """
    beaten = set()
    for pair in pairs:
        if pair.sides and (pair.floor or not beyond_runs):
            base, other = (side.row for side in pair.sides)
            if other is first.row and pair.verdict == "faster":
                beaten.add(id(base))
            if base is first.row and pair.verdict == "slower":
                beaten.add(id(other))
    return [other.row.framework for other in others if id(other.row) not in beaten]


def _same_work(one: Side, other: Side) -> bool:
    return not advice.other_work(_settings(one), _settings(other))


def _settings(side: Side) -> Mapping[str, Any] | None:
    summary = side.group.summary
    return (summary.settings or {}).get(side.row.framework) if summary else None
