"""Which of several parts that should be equal (devices, nodes, pairs of nodes, ranks) is slower than the others.

A part is slow if three things are true of one of its figures:

* it stands out: its p is below 3 % after Holm's correction for all parts and all figures that are judged together. So
  equal parts give an alarm by chance in at most 5 % of all calls.
* the difference matters: it is slower than the median of the others by more than `tolerance`;
* it is always there: every repeat is slower than the median of all parts in the same round, by half the tolerance. So
  a part that is slow in two of three repeats is not called slow.

And the slow parts are a minority: if half of them are slow, nobody can tell what is usual.

The p is that of a studentized distance from the rest (Student's t). Suspects leave one after the other, the farthest
first, and each is compared with those that remain (generalized extreme studentized deviate, Rosner 1983). So two slow
parts do not hide each other, as long as fewer than a third of the parts are slow.

Few parts do not tell how much equal parts differ. So the variance of the rest is moderated (Smyth 2004): it is averaged
with an expected one, which counts as `PRIOR_DEGREES` degrees of freedom. Equal parts are expected to differ by a
standard deviation of half the tolerance, and by the noise of their repeats. With a single repeat nobody knows the
noise. Then nothing is expected, and only the differences of the others count.
docs/explanation/method-acceptance.md has the error rates.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Generic, TypeVar

from throughline import statistics

if TYPE_CHECKING:
    import numpy as np

Part = TypeVar("Part", bound=Hashable)
Name = TypeVar("Name", bound=Hashable)
TOLERANCE = 0.02
"""A part that is slower by no more than this share is not called slow, however sure the difference is."""
SURE = 0.03
"""The level of the test, over everything that is judged together. It is below 5 % because suspects are searched for."""
LEAST_PARTS = 3
"""Of two parts that differ, nobody can tell which one is wrong."""
PRIOR_DEGREES = 4
"""How many degrees of freedom the expected variance counts for."""
Prior = tuple[float, int]
"""The variance that is expected of equal parts' medians, and the degrees of freedom that it counts for."""
LIGHT_TAILS = 200.0
"""Student's t with so many degrees of freedom is a normal distribution."""


@dataclass(frozen=True)
class Peers(Generic[Part]):
    """The values of one figure: each part's repeats, by their number.

    Repeats with the same number ran in the same round, as far as there are rounds. less: less is better, as of a time.
    tolerance: the share by which sound parts may differ.
    """

    values: Mapping[Part, Mapping[int, float]]
    less: bool = False
    tolerance: float = TOLERANCE


@dataclass(frozen=True)
class Standing:
    """How a part stands among the others in one figure.

    others: those that are not slow themselves. distance: its speed over the median speed of the others, minus 1, so
    -0.04 is 4 % slower. others_low, others_high: the lowest and highest distance of the others from their own median.
    coverage: the probability that its lowest and its highest repeat hold its true median. p_holm: adjusted for
    everything that was judged together. p, p_holm: None if there are too few parts.
    """

    repeats: tuple[float, ...]
    median: float
    low: float
    high: float
    coverage: float | None
    others: int
    others_median: float | None
    others_low: float | None
    others_high: float | None
    distance: float | None
    p: float | None
    p_holm: float | None
    slow: bool


def judge(figures: Mapping[Name, Peers[Part]]) -> dict[Name, dict[Part, Standing]]:
    """Judge every part in every figure, all of them as one family. A figure with fewer than three parts has no p."""
    known = {
        name: replace(peers, values={part: values for part, values in peers.values.items() if values})
        for name, peers in figures.items()
    }
    found = {name: _suspicion(peers) for name, peers in known.items() if len(peers.values) >= LEAST_PARTS}
    tests = [(name, part) for name, (p, _) in found.items() for part in p]
    holm = dict(zip(tests, statistics.holm([found[name][0][part] for name, part in tests]), strict=True))
    judged: dict[Name, dict[Part, Standing]] = {}
    for name, peers in known.items():
        middles = {part: median(values.values()) for part, values in peers.values.items()}
        speeds = {part: 1 / middle if peers.less else middle for part, middle in middles.items()}
        p, always = found.get(name, ({}, {}))
        sure = {
            part
            for part in p
            if holm[name, part] < SURE
            and always[part]
            and speeds[part] < (1 - peers.tolerance) * median(speeds[other] for other in speeds if other != part)
        }
        if 2 * len(sure) >= len(speeds):  # no majority says what is usual
            sure = set()
        usual = sorted(speeds[part] for part in speeds.keys() - sure)
        judged[name] = {
            part: _standing(peers, part, speed, usual, part in sure, p.get(part), holm.get((name, part)))
            for part, speed in speeds.items()
        }
    return judged


def most_slow(parts: int) -> int:
    """Return how many slow ones of so many parts can be told from the rest. If more are slow, they pass for usual."""
    return max(1, (parts - 1) // 3)


def _standing(
    peers: Peers[Part],
    part: Part,
    speed: float,
    usual: Sequence[float],
    slow: bool,
    p: float | None,
    holm: float | None,
) -> Standing:
    """Return how one part stands. usual: the speeds of all parts that are not slow, the lowest first."""
    values = tuple(peers.values[part].values())
    at = len(usual) if slow else bisect_left(usual, speed)
    others = [*usual[:at], *usual[at + 1 :]]
    middle = statistics.median(others)
    return Standing(
        repeats=values,
        median=median(values),
        low=min(values),
        high=max(values),
        coverage=statistics.range_coverage(len(values)),
        others=len(others),
        others_median=(1 / middle if peers.less else middle) if middle else None,
        others_low=others[0] / middle - 1 if middle else None,
        others_high=others[-1] / middle - 1 if middle else None,
        distance=speed / middle - 1 if middle else None,
        p=p,
        p_holm=holm,
        slow=slow,
    )


def _suspicion(peers: Peers[Part]) -> tuple[dict[Part, float], dict[Part, bool]]:
    """Return the p of each part, of one side (only slow parts have a small one), and whether all repeats are slow."""
    import numpy as np

    centred = _centred(peers)
    repeated = [values for values in centred.values() if len(values) >= 2]
    middles = np.array([median(values) for values in centred.values()])
    prior = (math.log1p(peers.tolerance) / 2) ** 2 + _noise(repeated), PRIOR_DEGREES if repeated else 0
    p = _one_after_the_other(middles, prior, _tails(repeated))
    always = {part: max(values) < math.log1p(-peers.tolerance / 2) for part, values in centred.items()}
    return dict(zip(centred, p, strict=True)), always


def _centred(peers: Peers[Part]) -> dict[Part, list[float]]:
    """Return the logarithms of the speeds without what all parts share in a round, such as a warmer hour."""
    sign = -1 if peers.less else 1
    logs = {
        part: {repeat: sign * math.log(value) for repeat, value in values.items()}
        for part, values in peers.values.items()
    }
    rounds = sorted({repeat for values in logs.values() for repeat in values})
    middles = {repeat: median(values[repeat] for values in logs.values() if repeat in values) for repeat in rounds}
    whole = [repeat for repeat in rounds if all(repeat in values for values in logs.values())]
    if len(whole) < len(rounds):  # the median of a round in which parts are missing depends on which ones they are
        middles = dict.fromkeys(rounds, median(value for values in logs.values() for value in values.values()))
    return {part: [value - middles[repeat] for repeat, value in values.items()] for part, values in logs.items()}


def _noise(several: Sequence[Sequence[float]]) -> float:
    """Return the variance of a part's median from the noise of its repeats: at most pi / 2 times that of a mean, if the
    noise is normal. several: the values of the parts that have more than one."""
    if not several:
        return 0.0
    total = sum((value - sum(values) / len(values)) ** 2 for values in several for value in values)
    variance = total / sum(len(values) - 1 for values in several)
    return math.pi / 2 * variance * sum(1 / len(values) for values in several) / len(several)


def _tails(several: Sequence[Sequence[float]]) -> float:
    """Return the degrees of freedom of the t distribution whose tails are as heavy as those of the parts' medians.

    A t distribution with f degrees of freedom has an excess kurtosis of 6 / (f - 4). The median of r values lies in a
    tail only if half of them do, so its tails are those of a single value to the power (r + 1) / 2. several: as above.
    """
    away = [value - sum(values) / len(values) for values in several for value in values]
    second = sum(value**2 for value in away) / len(away) if away else 0.0
    if not second:
        return LIGHT_TAILS
    excess = sum(value**4 for value in away) / len(away) / second**2 - 3
    repeats = sum(map(len, several)) / len(several)
    # The mean of r values takes a share of a single outlier with it: what remains of its excess is smaller.
    shrunk = 1 - 1 / repeats
    excess = excess / shrunk**2 if shrunk else excess
    degrees = 4 + 6 / excess if excess > 0 else LIGHT_TAILS
    return min(LIGHT_TAILS, degrees * (repeats + 1) / 2)


def _one_after_the_other(middles: np.ndarray, prior: Prior, tails: float) -> list[float]:
    """Return the p of each part, from the medians of the centred logarithms.

    The farthest part from the mean of the rest leaves first. A part that left earlier is at least as far out as one
    that left later or that remains. So it gets the smallest p of those on its side that came after it.
    """
    import numpy as np

    order = np.argsort(middles)
    ordered = middles[order]
    first, last, left = 0, len(ordered), []
    for _ in range(most_slow(len(ordered))):
        rest = ordered[first:last]
        low_is_farther = rest.mean() - rest[0] >= rest[-1] - rest.mean()
        index = first if low_is_farther else last - 1
        first, last = first + low_is_farther, last - (not low_is_farther)
        left.append((index, _p(ordered[index], ordered[first:last], prior, tails)))
    p = np.ones(len(ordered))
    if last - first >= LEAST_PARTS:
        p[first:last] = _p_of_each(ordered[first:last], prior, tails)
    smallest = float(p.min())
    for index, own in reversed(left):
        if index < first:
            smallest = min(smallest, own)
            p[index] = smallest
        else:
            p[index] = own
    back = np.empty(len(ordered))
    back[order] = p
    return [float(value) for value in back]


def _p_of_each(values: np.ndarray, prior: Prior, tails: float) -> np.ndarray:
    """Return the p of each value against all others of these."""
    count = len(values) - 1
    means = (values.sum() - values) / count
    squares = ((values - values.mean()) ** 2).sum() - (values - means) ** 2 * count / (count + 1)
    return _tail(values - means, squares.clip(min=0), count, prior, tails)


def _p(value: float, rest: np.ndarray, prior: Prior, tails: float) -> float:
    """Return the p of a value against the rest."""
    import numpy as np

    mean = rest.mean()
    return float(_tail(np.array(value - mean), ((rest - mean) ** 2).sum(), len(rest), prior, tails))


def _tail(distance: np.ndarray, squares: np.ndarray, count: int, prior: Prior, tails: float) -> np.ndarray:
    """Return the probability that a part is so far below the mean of the `count` others, if it is one of them.

    squares: the sum of the squared distances of the others from their mean. If the tails are heavier than those of the
    t-test, they decide: a t distribution with their degrees of freedom and the same variance.
    """
    import numpy as np
    from scipy import special

    expected, degrees = prior
    freedom = degrees + count - 1
    if freedom < 1:
        return np.ones_like(distance)
    variance = (degrees * expected + squares) / freedom
    error = np.sqrt(variance * (1 + 1 / count))
    heavy = tails < freedom
    scale = math.sqrt((tails - 2) / tails) if heavy else 1.0
    with np.errstate(divide="ignore", invalid="ignore"):
        far = np.where(distance == 0, 0.0, distance / (error * scale))
    return np.asarray(special.stdtr(tails if heavy else freedom, far))
