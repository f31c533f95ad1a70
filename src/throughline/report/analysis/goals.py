"""Judge a benchmark's goals: how well it scales, how busy its devices are, and how much of the hardware it uses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
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


@dataclass(frozen=True)
class Shares:
    """The share that each cell reached of what a goal is about, and why the other cells have none."""

    known: Mapping[str, float]
    lacking: Mapping[str, str]

    @classmethod
    def of(cls, found: Iterable[tuple[str, float | str]]) -> Shares:
        """Sort the cells' shares, or the reasons in place of them."""
        known, lacking = dict[str, float](), dict[str, str]()
        for where, share in found:
            if isinstance(share, str):
                lacking[where] = share
            else:
                known[where] = share
        return cls(known, lacking)

    @property
    def lowest(self) -> str:
        return min(self.known, key=lambda where: self.known[where])

    def why_not(self, otherwise: str) -> str:
        """Name the first cells without a share; if there is none, say why the goal is about no cell."""
        missing = [f"{where} ({reason})" for where, reason in self.lacking.items()]
        more = f" and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
        return f"without a figure: {', '.join(missing[:NAMED])}{more}" if missing else otherwise


def _sorted(frameworks: Cells) -> Iterator[tuple[str, Topology, CellRecord]]:
    for name, series in sorted(frameworks.items()):
        for topology, cell in sorted(series.items()):
            yield f"{name} {topology}", Topology.parse(topology), cell


def _efficiency(frameworks: Cells, goal: EfficiencyGoal, baselines: Mapping[str, str]) -> Goal:
    cells = {
        f"{name} {topology}": cell
        for name, series in frameworks.items()
        for topology, cell in series.items()
        if Topology.parse(topology).nodes >= goal.from_nodes and topology != baselines.get(name) and not cell.simulated
    }
    found, doubt = Shares.of((where, _efficiency_of(cell)) for where, cell in cells.items()), ""
    if found.known:
        ends = cells[found.lowest].efficiency_range
        if ends and ends[0] < goal.at_least < ends[1]:
            doubt = f"; its range, {percent(ends[0])} to {percent(ends[1])}, lies on both sides of the goal"
    why_not = f"no topology has {goal.from_nodes} nodes and more"
    if any(topology.nodes >= goal.from_nodes for _, topology, _ in _sorted(frameworks)):
        why_not = "baselines have no efficiency of their own, and simulated nodes do not count"
    return _by_lowest("efficiency", goal.at_least, goal.from_nodes, found, doubt, why_not)


def _efficiency_of(cell: CellRecord) -> float | str:
    if cell.efficiency is None:
        return f"no speedup: {'its baseline has no valid repeat, or ran elsewhere' if cell.n_ok else 'no valid repeat'}"
    if (cell.efficiency_range[0] if cell.efficiency_range else cell.efficiency) > 1:
        return f"{percent(cell.efficiency)}, more than its devices can give"
    return cell.efficiency


def _utilization(frameworks: Cells, goal: UtilizationGoal, kind: str | None) -> Goal:
    found = Shares.of((where, _utilization_of(cell, kind)) for where, _, cell in _sorted(frameworks))
    return _by_lowest("utilization", goal.at_least, None, found, "", "no cell was asked for")


def _utilization_of(cell: CellRecord, kind: str | None) -> float | str:
    used, ran_on = cell.utilization, (cell.ran_in or {}).get("device.kind", kind)
    share = None if used is None else used.gpu if ran_on == "cuda" else used.cpu
    if share is None:
        return "no device told how busy it was (driver or permission)" if cell.n_ok else "no valid repeat"
    return share


def _by_lowest(name: Any, at_least: float, from_nodes: int | None, found: Shares, doubt: str, why_not: str) -> Goal:
    """Judge a goal by the lowest share, with a `doubt` about it. why_not: why the goal is about no cell."""
    values: dict[str, Any] = {"name": name, "at_least": at_least, "from_nodes": from_nodes}
    if found.known:
        where, worst = found.lowest, found.known[found.lowest]
        if worst < at_least or not found.lacking:
            verdict: Any = "fail" if worst < at_least else "pass"
            why = f"{percent(worst, 1)} on {where}, the lowest{doubt}"
            return Goal(**values, verdict=verdict, worst=worst, where=where, why=why)
    where_not = next(iter(found.lacking), None)
    return Goal(**values, verdict="not measured", worst=None, where=where_not, why=found.why_not(why_not))


def shares(frameworks: Cells, part: str, from_nodes: int, suffix: str = "") -> Shares:
    """Return how busy a part of the hardware was in each cell of so many nodes or more. suffix: ends a cell's name."""
    cells = ((where, cell) for where, topology, cell in _sorted(frameworks) if topology.nodes >= from_nodes)
    return Shares.of((f"{where}{suffix}", _share(cell, part)) for where, cell in cells)


def mean_utilization(part: str, at_least: float, from_nodes: int, used: Shares) -> Goal:
    """Judge the mean utilization of a part of the hardware. It is not known if a cell has no figure."""
    known = used.known
    values: dict[str, Any] = {"name": "mean_utilization", "part": part, "at_least": at_least, "from_nodes": from_nodes}
    if used.lacking or not known:
        why = used.why_not(f"no topology has {from_nodes} nodes and more")
        return Goal(**values, verdict="not measured", worst=None, where=next(iter(used.lacking), None), why=why)
    mean, where = sum(known.values()) / len(known), used.lowest
    why = f"{percent(mean, 1)} on {where}"
    if len(known) > 1:
        lowest = f"the lowest is {percent(known[where], 1)} on {where}"
        why = f"{percent(mean, 1)}, the mean of {len(known)} cells; {lowest}"
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
