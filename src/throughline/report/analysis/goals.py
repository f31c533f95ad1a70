"""Judge a benchmark's goals: how well it scales, how busy its devices are, and how much of the hardware it uses."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from throughline.numbers import percent
from throughline.records import CellRecord, Goal
from throughline.spec import Topology
from throughline.study.result_sections import EfficiencyGoal, Goals, UtilizationGoal

Cells = Mapping[str, Mapping[str, CellRecord]]
NAMED = 3  # so many cells without a figure are named
MACHINE = {
    "cpu": "cpu_share",
    "memory": "memory_used_share",
    "disk": "disk_busy_share",
    "network": "network_busy_share",
}
"""Map each part of the hardware to its share in the telemetry of a node."""


def judge(frameworks: Cells, goals: Goals, kind: str | None, baselines: Mapping[str, str]) -> list[Goal]:
    """Judge each goal by the worst cell that it is about, or by the mean of them. kind: the device's, `cuda` or `cpu`.

    baselines: the topology of each framework that its speedups are relative to. It has no efficiency of its own, and
    neither have simulated nodes. A cell without a figure does not reach a goal: then the goal cannot be told.
    """
    judged = [_efficiency(frameworks, goals.efficiency, baselines)] if goals.efficiency else []
    judged += [_utilization(frameworks, goals.utilization, kind)] if goals.utilization else []
    if mean := goals.mean_utilization:
        used = {part: shares(frameworks, part, mean.from_nodes) for part in mean.shares}
        judged += [mean_utilization(part, mean.shares[part], mean.from_nodes, used[part]) for part in used]
    return judged


def overall(goals: Iterable[Goal]) -> str:
    """Return the verdict of several goals: fail if one fails; not measured if a cell lacks a figure; else pass.

    A goal that is about no cell at all decides nothing.
    """
    goals = list(goals)
    verdicts = {goal.verdict for goal in goals}
    lacking = any(goal.verdict == "not measured" and goal.where for goal in goals)
    return "fail" if "fail" in verdicts else "pass" if "pass" in verdicts and not lacking else "not measured"


def _efficiency(frameworks: Cells, asked_for: EfficiencyGoal, baselines: Mapping[str, str]) -> Goal:
    limit, nodes = asked_for.at_least, asked_for.from_nodes
    asked = {
        f"{name} {topology}": cell
        for name, series in frameworks.items()
        for topology, cell in series.items()
        if Topology.parse(topology).nodes >= nodes and topology != baselines.get(name) and not cell.simulated
    }
    judged = {where: cell.efficiency for where, cell in asked.items() if cell.efficiency is not None}
    doubt, lacking = "", {where: _no_speedup(cell) for where, cell in asked.items() if where not in judged}
    for where in list(judged):
        ends = asked[where].efficiency_range
        if (ends[0] if ends else judged[where]) > 1:
            lacking[where] = f"{percent(judged[where])}, more than its devices can give"
            del judged[where]
    if judged:
        ends = asked[_lowest(judged)].efficiency_range
        if ends and ends[0] < limit < ends[1]:
            doubt = f"; its range, {percent(ends[0])} to {percent(ends[1])}, lies on both sides of the goal"
    large = any(Topology.parse(topology).nodes >= nodes for series in frameworks.values() for topology in series)
    reason = f"no topology has {nodes} nodes and more"
    if large:
        reason = "baselines have no efficiency of their own, and simulated nodes do not count"
    return _goal({"name": "efficiency", "at_least": limit, "from_nodes": nodes}, judged, doubt, lacking, reason)


def _no_speedup(cell: CellRecord) -> str:
    return f"no speedup: {'its baseline has no valid repeat, or ran elsewhere' if cell.n_ok else 'no valid repeat'}"


def _utilization(frameworks: Cells, asked_for: UtilizationGoal, kind: str | None) -> Goal:
    judged, lacking = {}, {}
    for name, series in sorted(frameworks.items()):
        for topology, cell in sorted(series.items()):
            use, where = cell.utilization, f"{name} {topology}"
            ran_on = (cell.ran_in or {}).get("device.kind", kind)
            share = (use.gpu if ran_on == "cuda" else use.cpu) if use else None
            if share is not None:
                judged[where] = share
            else:
                silent = "no device told how busy it was (driver or permission)"
                lacking[where] = silent if cell.n_ok else "no valid repeat"
    goal = {"name": "utilization", "at_least": asked_for.at_least, "from_nodes": None}
    return _goal(goal, judged, "", lacking, "no cell was asked for")


@dataclass(frozen=True)
class Shares:
    """The share of a part of the hardware that each cell used, and why the other cells have none."""

    known: Mapping[str, float]
    lacking: Mapping[str, str]


def shares(frameworks: Cells, part: str, from_nodes: int, suffix: str = "") -> Shares:
    """Return how busy a part of the hardware was in each cell of so many nodes or more. suffix: ends a cell's name."""
    known, lacking = {}, {}
    for name, series in sorted(frameworks.items()):
        for topology, cell in sorted(series.items()):
            if Topology.parse(topology).nodes < from_nodes:
                continue
            where, share = f"{name} {topology}{suffix}", _share(cell, part)
            if isinstance(share, float):
                known[where] = share
            else:
                lacking[where] = share
    return Shares(known, lacking)


def mean_utilization(part: str, at_least: float, from_nodes: int, used: Shares) -> Goal:
    """Judge the mean utilization of a part of the hardware. It is not known if a cell has no figure."""
    known = used.known
    values: dict[str, Any] = {"name": "mean_utilization", "part": part, "at_least": at_least, "from_nodes": from_nodes}
    if used.lacking or not known:
        why = f"no topology has {from_nodes} nodes and more"
        if used.lacking:
            why = f"without a figure: {_named(used.lacking)}"
        return Goal(**values, verdict="not measured", worst=None, where=next(iter(used.lacking), None), why=why)
    mean, where = sum(known.values()) / len(known), _lowest(known)
    why = f"{percent(mean, 1)}, the mean of {len(known)} cells" if len(known) > 1 else f"{percent(mean, 1)} on {where}"
    if len(known) > 1:
        why += f"; the lowest is {percent(known[where], 1)} on {where}"
    verdict: Any = "pass" if mean >= at_least else "fail"
    return Goal(**values, verdict=verdict, mean=mean, worst=known[where], where=where, why=why)


def _share(cell: CellRecord, part: str) -> float | str:
    """Return the share of a part of the hardware that a cell used, as a mean; or why it is not known."""
    if not cell.n_ok:
        return "no valid repeat"
    if part == "gpu":
        gpu = cell.utilization.gpu if cell.utilization else None
        return float(gpu) if gpu is not None else "no GPU told how busy it was"
    use = cell.use
    assert use  # as every cell with a valid repeat has it
    series = use.machine.get(MACHINE[part])
    if series is not None:
        return series.mean
    return use.reasons.get(f"machine.{MACHINE[part]}") or use.reasons.get("telemetry") or "not sampled"


def _goal(
    goal: dict[str, Any], judged: Mapping[str, float], doubt: str, lacking: Mapping[str, str], why_not: str
) -> Goal:
    """Judge the goal by the lowest of `judged`, with a `doubt` about it.

    lacking: the cells without a figure that counts, and why. `why_not`: why the goal is about no cell.
    """
    where = _lowest(judged) if judged else None
    worst = judged[where] if where else None
    if where and worst is not None:
        reason = f"{percent(worst, 1)} on {where}, the lowest{doubt}"
        if worst < goal["at_least"]:
            return Goal(**goal, verdict="fail", worst=worst, where=where, why=reason)
        if not lacking:
            return Goal(**goal, verdict="pass", worst=worst, where=where, why=reason)
    why = f"without a figure: {_named(lacking)}" if lacking else why_not
    return Goal(**goal, verdict="not measured", worst=None, where=next(iter(lacking), None), why=why)


def _named(lacking: Mapping[str, str]) -> str:
    """Name the first cells without a figure with their reasons, and say how many more there are."""
    missing = [f"{where} ({reason})" for where, reason in lacking.items()]
    return ", ".join(missing[:NAMED]) + (f" and {len(missing) - NAMED} more" if len(missing) > NAMED else "")


def _lowest(judged: Mapping[str, float]) -> str:
    return min(judged, key=lambda where: judged[where])
