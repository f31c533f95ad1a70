"""Judge a benchmark's goals: how well it scales, how busy its devices are, and how much of the hardware it uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from throughline.grouping import grouped
from throughline.numbers import percent
from throughline.records import CellRecord, Goal
from throughline.report.analysis import advice
from throughline.spec import Topology
from throughline.study.result_sections import EfficiencyGoal, Goals

if TYPE_CHECKING:
    from throughline.report.analysis.cells import Group

Cells = Mapping[str, Mapping[str, CellRecord]]
Shares = Mapping[str, float | str]
"""The share that each cell reached of what a goal is about, or why it has none."""
NAMED = 3  # so many cells without a figure are named
MACHINE = {
    "cpu": "cpu_share",
    "memory": "memory_used_share",
    "disk": "disk_busy_share",
    "network": "network_busy_share",
}
"""Map each part of the hardware to its share in the telemetry of a node."""
PARTS = {
    "gpu": "the GPUs are busy for at least {} of the time",
    "cpu": "at least {} of the processors are busy",
    "memory": "at least {} of the nodes' memory is in use",
    "disk": "a node's busiest disk works for at least {} of the time",
    "network": "a node's busiest network link carries at least {} of what it can",
}
"""Map each part of the hardware to its goal in words."""
VERDICTS = {"fail": "not met", "not measured": "cannot be told", "pass": "met"}
"""Map the verdicts of a summary's goals to the words of the page, the worst first."""


def judge(frameworks: Cells, goals: Goals, kind: str | None, baselines: Mapping[str, str]) -> list[Goal]:
    """Judge each goal by the worst cell that it is about, or by the mean of them. kind: the device's, `cuda` or `cpu`.

    baselines: the topology of each framework that its speedups are relative to. It has no efficiency of its own, and
    neither have simulated nodes. A cell without a figure does not reach a goal: then the goal cannot be told.
    """
    judged = [_efficiency(frameworks, goals.efficiency, baselines)] if goals.efficiency else []
    if goals.utilization:
        busy = {where: _utilization_of(cell, kind) for where, cell in _sorted(frameworks).items()}
        judged.append(_judged(busy, "no cell was asked for", name="utilization", at_least=goals.utilization.at_least))
    if mean := goals.mean_utilization:
        judged += [_mean(part, least, mean.from_nodes, {"": frameworks}) for part, least in mean.shares.items()]
    return judged


def _sorted(frameworks: Cells, from_nodes: int = 1) -> dict[str, CellRecord]:
    """Return the cells of so many nodes or more by their names, sorted."""
    cells = {(name, topology): cell for name, series in frameworks.items() for topology, cell in series.items()}
    large = [key for key in sorted(cells) if Topology.parse(key[1]).nodes >= from_nodes]
    return {" ".join(key): cells[key] for key in large}


def _efficiency(frameworks: Cells, goal: EfficiencyGoal, baselines: Mapping[str, str]) -> Goal:
    every, bases = _sorted(frameworks, goal.from_nodes), {" ".join(item) for item in baselines.items()}
    cells = {where: cell for where, cell in every.items() if where not in bases and not cell.simulated}
    why_not = "baselines have no efficiency of their own, and simulated nodes do not count"
    if not every:
        why_not = f"no topology has {goal.from_nodes} nodes and more"
    shares = {where: _efficiency_of(cell) for where, cell in cells.items()}
    judged = _judged(shares, why_not, name="efficiency", at_least=goal.at_least, from_nodes=goal.from_nodes)
    ends = cells[judged.where].efficiency_range if judged.where and judged.worst is not None else None
    if ends and ends[0] < goal.at_least < ends[1]:
        doubt = f"; its range, {percent(ends[0])} to {percent(ends[1])}, lies on both sides of the goal"
        return judged.model_copy(update={"why": judged.why + doubt})
    return judged


def _efficiency_of(cell: CellRecord) -> float | str:
    if cell.efficiency is None:
        return f"no speedup: {'its baseline has no valid repeat, or ran elsewhere' if cell.n_ok else 'no valid repeat'}"
    if advice.beyond_devices(cell):
        return f"{percent(cell.efficiency)}, more than its devices can give"
    return cell.efficiency


def _utilization_of(cell: CellRecord, kind: str | None) -> float | str:
    used, ran_on = cell.utilization, (cell.ran_in or {}).get("device.kind", kind)
    share = None if used is None else used.gpu if ran_on == "cuda" else used.cpu
    if share is None:
        return "no device told how busy it was (driver or permission)" if cell.n_ok else "no valid repeat"
    return share


def _share(cell: CellRecord, part: str) -> float | str:
    """Return the share of a part of the hardware that a cell used, as a mean; or why it is not known."""
    use = cell.use
    if not cell.n_ok or use is None:
        return "no valid repeat"
    if part == "gpu":
        gpu = cell.utilization.gpu if cell.utilization else None
        return float(gpu) if gpu is not None else "no GPU told how busy it was"
    series = use.machine.get(MACHINE[part])
    if series is not None:
        return series.mean
    return use.reasons.get(f"machine.{MACHINE[part]}") or use.reasons.get("telemetry") or "not sampled"


def _mean(part: str, at_least: float, from_nodes: int, summaries: Mapping[str, Cells]) -> Goal:
    """Judge the mean utilization of a part of the hardware. It is not known if a cell has no figure.

    summaries: the cells of each summary, by what ends the names of its cells.
    """
    why_not = f"no topology has {from_nodes} nodes and more"
    shares = {
        f"{where}{ending}": _share(cell, part)
        for ending, frameworks in summaries.items()
        for where, cell in _sorted(frameworks, from_nodes).items()
    }
    return _judged(shares, why_not, name="mean_utilization", part=part, at_least=at_least, from_nodes=from_nodes)


def _judged(shares: Shares, why_not: str, **values: Any) -> Goal:
    """Judge a goal by the lowest share, or that of a part of the hardware by the mean. why_not: why there is no cell.

    A cell that misses the goal decides although others have no share. A mean takes all shares.
    """
    known = {where: share for where, share in shares.items() if not isinstance(share, str)}
    missing = {where: f"{where} ({reason})" for where, reason in shares.items() if isinstance(reason, str)}
    lowest, of_mean = min(known, key=known.__getitem__, default=""), "part" in values
    if not known or (missing and (of_mean or known[lowest] >= values["at_least"])):
        more = f" and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
        why = f"without a figure: {', '.join([*missing.values()][:NAMED])}{more}" if missing else why_not
        where = next(iter(missing), None)
        return Goal(**{"from_nodes": None} | values, verdict="not measured", worst=None, where=where, why=why)
    reached, why = known[lowest], f"{percent(known[lowest], 1)} on {lowest}"
    if not of_mean:
        why += ", the lowest"
    else:
        reached = values["mean"] = sum(known.values()) / len(known)
        if len(known) > 1:
            why = f"{percent(reached, 1)}, the mean of {len(known)} cells; the lowest is {why}"
    verdict: Any = "pass" if reached >= values["at_least"] else "fail"
    return Goal(**{"from_nodes": None} | values, verdict=verdict, worst=known[lowest], where=lowest, why=why)


def over_groups(groups: Sequence[Group]) -> list[tuple[str, str, str]]:
    """Return every goal once, over all batch sizes and precisions: verdict, goal, why.

    The worst verdict decides: fail, then not measured, then pass. A goal that is about no cell decides nothing. The
    mean use of a part of the hardware is that of the cells of all groups.
    """
    cells = {f" ({group.precision}, {group.batch_name})": group.summary.frameworks for group in groups}
    goals = ((group, goal) for group in groups for goal in group.summary.goals or ())
    stated = grouped(goals, lambda both: both[1].part or both[1].name)
    rows = []
    for every in stated.values():
        group, goal = every[0]
        if goal.part:
            goal, where = _mean(goal.part, goal.at_least, goal.from_nodes or 1, cells), ""
        else:
            about_cells = [both for both in every if both[1].where] or every
            group, goal = min(about_cells, key=lambda both: ([*VERDICTS].index(both[1].verdict), both[1].worst or 0.0))
            where = f" ({group.precision}, {group.batch_name})" if goal.where else ""
        if goal.verdict == "pass" or (goal.part and goal.verdict == "fail"):
            gone = dict.fromkeys(
                f"{cell.framework} {cell.topology} ({group.precision}, {group.batch_name})"
                for group in groups
                for cell in group.cells
                if not cell.record.statuses and cell.topology.nodes >= (goal.from_nodes or 1)
            )  # their runs failed or are still to come
            if gone:
                update = {"verdict": "not measured", "why": f"no record: {', '.join(gone)}"}
                goal, where = goal.model_copy(update=update), ""
        rows.append((goal.part is not None, (VERDICTS[goal.verdict], _aim(goal, group.strong), f"{goal.why}{where}")))
    return [row for _, row in sorted(rows, key=lambda row: row[0])]


def _aim(goal: Goal, strong: bool) -> str:
    """Return a goal in words."""
    least, nodes = percent(goal.at_least), goal.from_nodes or 1
    if goal.part:
        where = "" if nodes == 1 else f" of {nodes} nodes and more"
        return f"{PARTS[goal.part].format(least)}, in the mean of all cells{where}"
    if goal.name == "utilization":
        return f"devices are busy for at least {least} of the timed window"
    topologies = "every topology" if nodes == 1 else f"topologies of {nodes} nodes and more"
    return f"{'strong-scaling ' if strong else ''}efficiency of at least {least} on {topologies}"
