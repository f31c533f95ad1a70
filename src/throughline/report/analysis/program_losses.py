"""Warnings about the losses that programs of somebody else print: do all repeats and topologies train alike?

A throughput of a program whose loss takes another way is that of another training. The level of a run is the mean loss
in the later half of the steps that all compared runs have printed. Levels differ from repeat to repeat, with the seed
and the order of sums; only a difference beyond that of the repeats is a warning.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean

from throughline import statistics
from throughline.numbers import reading
from throughline.records import RunRecord

LEAST = 0.01
"""The smallest difference of two levels that is a warning, as a share: rounding alone may make smaller ones."""
BEYOND = 3.0
"""One repeat is apart if its level lies so many times as far from the others' median as these lie from each other."""
FEWEST = 3
"""How many other repeats, and how many common steps with a loss, a comparison needs."""


def warnings(series: Mapping[str, Sequence[RunRecord]]) -> dict[str, list[str]]:
    """Map topologies to the warnings about the losses of their runs. series: the runs of a program by topology."""
    by_topology = {at: [run for run in runs if run.status == "ok" and _curve(run)] for at, runs in series.items()}
    told = {topology: list(_repeats(runs)) for topology, runs in by_topology.items()}
    base: dict[int, str] = {}
    for topology, runs in by_topology.items():
        if not runs:
            continue
        first = base.setdefault(runs[0].spec.size.global_batch, topology)
        if first != topology:
            told[topology] += _topologies(first, by_topology[first], runs)
    return told


def _curve(run: RunRecord) -> dict[int, float]:
    """Return the losses of a run by step; none if it prints none, or is no run of a program."""
    if run.program is None:
        return {}
    points = run.program.points
    return {step: loss for step, loss in zip(points.step, points.loss, strict=True) if loss is not None}


def _levels(runs: Sequence[RunRecord]) -> tuple[str, list[float]]:
    """Return the steps in words, and the level of each run; no level if they have too few steps in common."""
    curves = [_curve(run) for run in runs]
    common = sorted(set.intersection(*map(set, curves)))
    later = common[len(common) // 2 :]
    if len(later) < FEWEST:
        return "", []
    return f"steps {later[0]} to {later[-1]}", [fmean(curve[step] for step in later) for curve in curves]


def _repeats(runs: Sequence[RunRecord]) -> list[str]:
    """Return a warning for each repeat whose level is far from those of the others."""
    steps, levels = _levels(runs) if len(runs) > FEWEST else ("", [])
    told = []
    for index, level in enumerate(levels):
        others = levels[:index] + levels[index + 1 :]
        middle = statistics.median(others) or 0.0
        if abs(level - middle) > max(BEYOND * (max(others) - min(others)), LEAST * abs(middle)):
            told.append(
                f"repeat {runs[index].spec.repeat} trains otherwise: its loss over {steps} is {reading(level)}, and "
                f"that of the other repeats {reading(min(others))} to {reading(max(others))}"
            )
    return told


def _topologies(first: str, base: Sequence[RunRecord], runs: Sequence[RunRecord]) -> list[str]:
    """Return a warning if runs on two topologies, with the same global batch, have levels apart."""
    steps, levels = _levels([*base, *runs])
    there, here = levels[: len(base)], levels[len(base) :]
    if not levels or min(len(there), len(here)) < FEWEST:
        return []
    between = abs((statistics.median(here) or 0.0) - (statistics.median(there) or 0.0))
    within = max(max(there) - min(there), max(here) - min(here), LEAST * max(map(abs, there)))
    if between <= within:
        return []
    return [
        f"it trains otherwise than on {first} with the same global batch: its loss over {steps} is "
        f"{reading(min(here))} to {reading(max(here))}, and {reading(min(there))} to {reading(max(there))} there"
    ]
