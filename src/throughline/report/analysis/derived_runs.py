"""What a derived benchmark (`<name>__aa`, `__synthetic`, `__no_gradient_sync`) says about its origin.

Each sentence follows the verdicts of its pairs: a median above 1 is no cost and no gain.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from throughline.numbers import percent, span
from throughline.report.analysis import judged_pairs
from throughline.report.analysis.asked_pairs import untested
from throughline.report.analysis.cells import Cell, Group
from throughline.report.analysis.comparison import Floor, Pair
from throughline.report.analysis.differences import differences

OTHERWISE = {
    "synthetic": "but with synthetic batches, so nothing is read",
    "no_gradient_sync": "but the ranks exchange no gradients, so each trains a model of its own",
}
"""Map an extra to what it does otherwise."""
WHAT = {"synthetic": "reading the data", "no_gradient_sync": "the exchange"}
"""Map an extra to what it leaves out."""


def derived(cell: Cell, extra: str, everything: Iterable[Group]) -> tuple[Cell | None, list[str]]:
    """Return the same cell in an extra's benchmark, and what differs; None if it was not measured there."""
    for group in everything:
        if (group.benchmark, group.name) == (f"{cell.group.benchmark}__{extra}", cell.group.name):
            there = group.cell(cell.framework, cell.topology)
            if there and there.ok:
                return there, differences(cell, there)
    return None, []


def sentences(groups: Sequence[Group], everything: Sequence[Group]) -> Iterator[str]:
    """Yield what the groups of one derived benchmark say; nothing for any other benchmark."""
    benchmark = groups[0].benchmark if groups else ""
    name, _, extra = benchmark.partition("__")
    origins = [cell for group in everything if extra and group.benchmark == name for cell in group.measured]
    found = [(cell, *derived(cell, extra, groups)) for cell in origins]
    twice = [(cell, there, unlike) for cell, there, unlike in found if there]
    alike = [(cell, there) for cell, there, unlike in twice if not unlike]
    if len(alike) < len(twice):
        reason = next(unlike[0] for _, _, unlike in twice if unlike)
        yield f"{len(twice) - len(alike)} of {len(twice)} are not compared with {name}: {reason}."
    again = judged_pairs.twice_measured(groups, everything, ())
    if extra == "aa" and alike:
        yield _measured_again(name, len(alike), [pair for pair in again if pair.other.group.benchmark == benchmark])
    elif extra in OTHERWISE:
        exchanging = [both for both in alike if extra == "synthetic" or both[0].topology.world > 1]
        pairs = judged_pairs.tested([untested(*both) for both in exchanging], again)
        if pairs:
            yield f"The same configurations as {name}, {OTHERWISE[extra]}: {_judged(pairs)}. {_so(extra, pairs)}"


def _measured_again(name: str, alike: int, again: Sequence[Pair]) -> str:
    """Say by how much the A/A runs differ, as the floor of verdicts counts it."""
    same = f"The same configurations as {name}, measured again"
    if not again:
        return f"{same}: not within a day, so no verdict counts them."
    floor = Floor(name, max(abs(pair.log) for pair in again), len(again))
    late = f"; {alike - len(again)} more were not measured within a day" if alike > len(again) else ""
    return (
        f"{same}: the two differ by up to {percent(floor.share, 1)} ({floor.compared} compared{late}). A difference "
        "that does not lie beyond those of its frameworks here counts as noise."
    )


def _judged(pairs: Sequence[Pair]) -> str:
    """Return how many pairs have which verdict, and the largest gain or how far apart the ratios lie."""
    counts = Counter(pair.words for pair in pairs)
    verdicts = ", ".join(f"{count} of {len(pairs)} {words}" for words, count in counts.items())
    gains = [pair for pair in pairs if pair.verdict == "faster" and pair.tested]
    if gains:
        most = max(gains, key=lambda pair: pair.tested.ratio if pair.tested else 0.0)
        name = f"{most.other.framework} {most.other.topology}"
        return f"{verdicts}; the most is {name} with {most.times} times the throughput"
    ratios = [pair.tested.ratio if pair.tested else pair.ratio for pair in pairs]
    if len(pairs) == 1:
        return f"{verdicts}, with {pairs[0].times} times the throughput"
    return f"{verdicts}, with {span((min(ratios), max(ratios)), 3)} times the throughput"


def _so(extra: str, pairs: Sequence[Pair]) -> str:
    """Return what follows from the verdicts."""
    gains = any(pair.verdict == "faster" for pair in pairs)
    if any(pair.tested is None for pair in pairs):
        unknown = "a test needs three repeats on each side"
    else:
        unknown = "it cannot be distinguished from noise"
    if extra == "synthetic" and gains:
        return "That is the cost of reading the data."
    if extra == "no_gradient_sync" and gains:
        return "This is no speedup of a training: it is the most that a faster exchange could give."
    if all(pair.gains is False for pair in pairs):
        return f"So {WHAT[extra]} costs nothing that these runs show."
    return f"What {WHAT[extra]} costs is not known: {unknown}."
