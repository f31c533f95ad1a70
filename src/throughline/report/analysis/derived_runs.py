"""What a derived benchmark (`<name>__aa`, `__synthetic`, `__no_gradient_sync`) says about its origin.

Each sentence follows the verdicts of its pairs: a median above 1 is no cost and no gain.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from throughline.numbers import percent, span
from throughline.report.analysis import judged_pairs
from throughline.report.analysis.cells import Group
from throughline.report.analysis.judged_pairs import Pair
from throughline.report.analysis.noise import Floor, Twice
from throughline.report.analysis.sides import Side, differences

Both = tuple[Side, Side]
OTHERWISE = {
    "synthetic": "but with synthetic batches, so nothing is read",
    "no_gradient_sync": "but the ranks exchange no gradients, so each trains a model of its own",
}
"""Map an extra to what it does otherwise."""
WHAT = {"synthetic": "reading the data", "no_gradient_sync": "the exchange"}
"""Map an extra to what it leaves out."""


def sentences(groups: Sequence[Group], everything: Sequence[Group]) -> Iterator[str]:
    """Yield what the groups of one derived benchmark say; nothing for any other benchmark."""
    benchmark = groups[0].benchmark if groups else ""
    name, _, extra = benchmark.partition("__")
    origin = {_key(side): side for side in _sides(group for group in everything if group.benchmark == name)}
    twice = [(origin[_key(side)], side) for side in _sides(groups) if extra and _key(side) in origin]
    unlike = [differences(*both) for both in twice]
    alike = [both for both, differing in zip(twice, unlike, strict=True) if not differing]
    if len(alike) < len(twice):
        reason = next(differing[0] for differing in unlike if differing)
        yield f"{len(twice) - len(alike)} of {len(twice)} are not compared with {name}: {reason}."
    again = judged_pairs.twice_measured(groups, everything, ())
    if extra == "aa" and alike:
        yield _measured_again(name, len(alike), [one for one in again if one.again.group.benchmark == benchmark])
    elif extra in OTHERWISE:
        pairs = _pairs(alike if extra == "synthetic" else [b for b in alike if b[0].row.topology.world > 1], again)
        if pairs:
            yield f"The same configurations as {name}, {OTHERWISE[extra]}: {_judged(pairs)}. {_so(extra, pairs)}"


def _sides(groups: Iterable[Group]) -> list[Side]:
    return [side for group in groups for row in group.rows if (side := Side(group, row)).value]


def _key(side: Side) -> tuple[str, str, str]:
    return side.group.name, side.row.framework, str(side.row.topology)


def _measured_again(name: str, alike: int, again: Sequence[Twice]) -> str:
    """Say by how much the A/A runs differ, as the floor of verdicts counts it."""
    same = f"The same configurations as {name}, measured again"
    if not again:
        return f"{same}: not within a day, so no verdict counts them."
    floor = Floor(name, max(abs(twice.log) for twice in again), len(again))
    late = f"; {alike - len(again)} more were not measured within a day" if alike > len(again) else ""
    return (
        f"{same}: the two differ by up to {percent(floor.share, 1)} ({floor.compared} compared{late}). A difference "
        "that does not lie beyond those of its frameworks here counts as noise."
    )


def _pairs(alike: Sequence[Both], again: Sequence[Twice]) -> list[Pair]:
    """Return the comparisons with the original benchmark, judged together."""
    pairs = [pair for both in alike if (pair := judged_pairs.of_sides(*both, again))]
    return judged_pairs.adjusted(pairs)


def _judged(pairs: Sequence[Pair]) -> str:
    """Return how many pairs have which verdict, and the largest gain or how far apart the ratios lie."""
    counts = Counter(pair.words for pair in pairs)
    verdicts = ", ".join(f"{count} of {len(pairs)} {words}" for words, count in counts.items())
    gains = [pair for pair in pairs if pair.verdict == "faster" and pair.tested]
    if gains:
        most = max(gains, key=lambda pair: pair.tested.ratio if pair.tested else 0.0)
        return f"{verdicts}; the most is {_named(most)} with {_times(most)} times the throughput"
    ratios = [pair.tested.ratio if pair.tested else pair.ratio for pair in pairs]
    if len(pairs) == 1:
        return f"{verdicts}, with {_times(pairs[0])} times the throughput"
    return f"{verdicts}, with {span((min(ratios), max(ratios)), 3)} times the throughput"


def _named(pair: Pair) -> str:
    assert pair.sides
    return f"{pair.sides[1].row.framework} {pair.sides[1].row.topology}"


def _times(pair: Pair) -> str:
    if pair.tested is None:
        return f"{pair.ratio:.3f}"
    return f"{pair.tested.ratio:.{judged_pairs.places(pair.tested)}f} ({pair.interval})"


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
