"""Judge a benchmark's goals: how well it scales, and how busy its devices are."""

from collections.abc import Iterable, Mapping
from typing import Any

from throughline.numbers import percent
from throughline.records import Cell, Goal
from throughline.spec import Topology
from throughline.study.goals import Goals

Cells = Mapping[str, Mapping[str, Cell]]


def judge(frameworks: Cells, goals: Goals, kind: str | None) -> list[Goal]:
    """Judge each goal by the worst cell that it is about. kind: the device's, `cuda` or `cpu`."""
    return [_efficiency(frameworks, goals), _utilization(frameworks, goals, kind)]


def overall(goals: Iterable[Goal]) -> str:
    """Return the verdict of several goals: fail if one fails, else pass if one passes."""
    verdicts = {goal.verdict for goal in goals}
    return "fail" if "fail" in verdicts else "pass" if "pass" in verdicts else "not measured"


def _efficiency(frameworks: Cells, goals: Goals) -> Goal:
    limit, nodes = goals.efficiency.at_least, goals.efficiency.from_nodes
    asked = {
        f"{name} {topology}": cell
        for name, series in frameworks.items()
        for topology, cell in series.items()
        if Topology.parse(topology).nodes >= nodes
    }
    judged = {where: cell.efficiency for where, cell in asked.items() if cell.efficiency is not None}
    doubt = ""
    if judged:
        ends = asked[_lowest(judged)].efficiency_range
        if ends and ends[0] < limit < ends[1]:
            doubt = f"; its range, {percent(ends[0])} to {percent(ends[1])}, lies on both sides of the goal"
    reason = (
        f"no cell on {nodes} nodes and more has a speedup: it, or the baseline to compare with, has no valid repeat"
        if asked
        else f"no topology has {nodes} nodes and more"
    )
    return _goal({"name": "efficiency", "at_least": limit, "from_nodes": nodes}, judged, doubt, reason)


def _utilization(frameworks: Cells, goals: Goals, kind: str | None) -> Goal:
    judged, asked = {}, 0
    for name, series in sorted(frameworks.items()):
        for topology, cell in sorted(series.items()):
            asked += cell.n_ok > 0
            use = cell.utilization
            share = (use.gpu if kind == "cuda" else use.cpu) if use else None
            if share is not None:
                judged[f"{name} {topology}"] = share
    silent = f"; {asked - len(judged)} of {asked} cells did not tell" if len(judged) < asked else ""
    reason = "no device told how busy it was (driver or permission)" if asked else "no valid repeat"
    goal = {"name": "utilization", "at_least": goals.utilization.at_least, "from_nodes": None}
    return _goal(goal, judged, silent, reason)


def _goal(goal: dict[str, Any], judged: Mapping[str, float], doubt: str, why_not: str) -> Goal:
    """Judge the goal by the lowest of `judged`, with a `doubt` about it. `why_not`: why nothing can be judged."""
    if not judged:
        return Goal(**goal, verdict="not measured", worst=None, where=None, why=why_not)
    where = _lowest(judged)
    worst = judged[where]
    reason = f"{percent(worst, 1)} on {where}, the lowest{doubt}"
    return Goal(**goal, verdict="pass" if worst >= goal["at_least"] else "fail", worst=worst, where=where, why=reason)


def _lowest(judged: Mapping[str, float]) -> str:
    return min(judged, key=lambda where: judged[where])
