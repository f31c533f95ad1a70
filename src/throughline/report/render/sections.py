"""What the page shows of a benchmark beside throughput: goals, comparisons, and a table per kind of figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from throughline.records import Goal
from throughline.report.analysis import comparisons, goals
from throughline.report.analysis.cells import Group
from throughline.report.render import costs, memory, use, work
from throughline.report.render.grid import Grid
from throughline.report.render.markup import percent

GRIDS = (memory.grid, use.grid, work.grid, costs.grid)


def of(groups: Sequence[Group], everything: Sequence[Group], known: comparisons.Floors) -> dict[str, Any]:
    """What the template prints of these groups, all of one benchmark; `everything` is on the page as well."""
    here = {comparisons.device(group) for group in groups}
    return {
        "goals": judged(groups),
        "grids": [grid.condensed() for grid in tables(groups) if grid.known or grid.asked],
        "pairs": [comparisons.shown(pair) for pair in comparisons.pairs(groups, everything, known)],
        "floors": [floor.text for name, floor in known.items() if name in here],
    }


def tables(groups: Sequence[Group]) -> list[Grid]:
    """One grid per kind of figure, with all of its columns."""
    return [make(groups) for make in GRIDS]


def judged(groups: Sequence[Group]) -> list[dict[str, str]]:
    """Every goal once, over all batch sizes and precisions: the worst verdict decides and is explained."""
    found: dict[str, list[tuple[Group, Goal]]] = {}
    for group in groups:
        for goal in (group.summary.goals if group.summary else None) or ():
            found.setdefault(goal.name, []).append((group, goal))
    rows = []
    for every in found.values():
        verdict = goals.overall(goal for _, goal in every)
        deciding = [(group, goal) for group, goal in every if goal.verdict == verdict]
        group, goal = min(deciding, key=lambda one: one[1].worst if one[1].worst is not None else 0.0)
        place = f" ({group.precision}, batch {group.batch})" if goal.worst is not None else ""
        rows.append({"verdict": verdict, "goal": _goal(goal), "why": f"{goal.why}{place}"})
    return rows


def _goal(goal: Goal) -> str:
    if goal.name == "efficiency":
        return f"efficiency of {percent(goal.at_least)} and more from {goal.from_nodes} nodes on"
    return f"devices busy for {percent(goal.at_least)} of the window and more"
