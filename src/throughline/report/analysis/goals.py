"""Goals as pass or fail: how well a benchmark scales, how busy its devices are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from throughline.records import Cell, Goal
from throughline.report.numbers import percent
from throughline.study.goals import Goals
from throughline.topology import Topology

Cells = Mapping[str, Mapping[str, Cell]]
ORDER = ("fail", "not measured", "pass")


def judge(frameworks: Cells, goals: Goals, kind: str | None) -> list[Goal]:
    """Each goal against the worst cell that it is about. `kind` is that of the device: cuda or cpu."""
    return [_efficiency(frameworks, goals), _utilization(frameworks, goals, kind)]


def overall(found: Iterable[Goal]) -> str:
    """The verdict of several: fail where one fails, pass where one passes and none fails."""
    verdicts = {goal.verdict for goal in found}
    return "fail" if "fail" in verdicts else "pass" if "pass" in verdicts else "not measured"


def _efficiency(frameworks: Cells, goals: Goals) -> Goal:
    goal = goals.efficiency
    asked = [(where, cell) for where, cell in _cells(frameworks) if _nodes(where) >= goal.from_nodes]
    judged = [(cell.efficiency, where, cell) for where, cell in asked if cell.efficiency is not None]
    if judged:
        value, where, cell = min(judged, key=lambda one: one[0])
        return _verdict("efficiency", value, where, goal.at_least, goal.from_nodes, _doubt(cell, goal.at_least))
    why = (
        f"no valid repeat on {goal.from_nodes} nodes and more, or none on 1n1g to compare with"
        if asked
        else f"no topology has {goal.from_nodes} nodes and more"
    )
    return Goal(
        name="efficiency", verdict="not measured", at_least=goal.at_least, from_nodes=goal.from_nodes, worst=None,
        where=None, why=why,
    )  # fmt: skip


def _doubt(cell: Cell, limit: float) -> str:
    """Whether the range of the repeats lies on both sides of the limit."""
    ends = cell.efficiency_range
    if not ends or not ends[0] < limit < ends[1]:
        return ""
    return f"; its range, {percent(ends[0])} to {percent(ends[1])}, lies on both sides of the goal"


def _utilization(frameworks: Cells, goals: Goals, kind: str | None) -> Goal:
    goal, judged, asked = goals.utilization, [], 0
    for where, cell in _cells(frameworks):
        asked += cell.n_ok > 0
        use = cell.utilization
        share = (use.gpu if kind == "cuda" else use.cpu) if use else None
        if share is not None:
            judged.append((share, where))
    if judged:
        value, where = min(judged)
        silent = f"; {asked - len(judged)} of {asked} cells did not tell" if len(judged) < asked else ""
        return _verdict("utilization", value, where, goal.at_least, None, silent)
    why = "no device told how busy it was (driver or permission)" if asked else "no valid repeat"
    return Goal(
        name="utilization", verdict="not measured", at_least=goal.at_least, from_nodes=None, worst=None, where=None,
        why=why,
    )  # fmt: skip


def _verdict(
    name: str, value: float, where: tuple[str, str], at_least: float, from_nodes: int | None, more: str
) -> Goal:
    place = " ".join(where)
    return Goal.model_validate({
        "name": name, "verdict": "pass" if value >= at_least else "fail", "at_least": at_least,
        "from_nodes": from_nodes, "worst": value, "where": place,
        "why": f"{percent(value, 1)} on {place}, the lowest{more}",
    })  # fmt: skip


def _cells(frameworks: Cells) -> Iterable[tuple[tuple[str, str], Cell]]:
    return [((name, topology), cell) for name, series in frameworks.items() for topology, cell in series.items()]


def _nodes(where: tuple[str, str]) -> int:
    return Topology.parse(where[1]).nodes
