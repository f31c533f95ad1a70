"""What stands above a benchmark's tables: its figures in large, and how it was set up, in words."""

from __future__ import annotations

from collections.abc import Sequence

from throughline import statistics
from throughline.records import Goal, Summary
from throughline.report.analysis import figures as workload
from throughline.report.analysis import goals
from throughline.report.analysis.baseline import ONE_DEVICE
from throughline.report.analysis.cells import Group
from throughline.report.numbers import percent, reading
from throughline.report.render.best import Best, devices


def figures(best: Best | None) -> list[dict[str, str]]:
    """The headline's numbers, large."""
    if best is None:
        return []
    cell, world = best.cell, best.row.topology.world
    figures = [{"value": reading(best.speed), "unit": best.group.unit, "what": f"on {devices(best)}"}]
    if world > 1 and cell.speedup is not None:
        ends = cell.speedup_range
        base = "one device" if best.baseline == ONE_DEVICE else best.baseline
        what = f"speedup over {base}" + (f", {ends[0]:.2f} to {ends[1]:.2f} by the ranges" if ends else "")
        figures.append({"value": f"{cell.speedup:.2f}", "unit": "×", "what": what})
        figures.append({"value": percent(cell.efficiency), "unit": "", "what": "efficiency"})
    width = statistics.spread([value for value in cell.values if value])
    figures.append(
        {
            "value": percent(width, 1) if width is not None else "n/a",
            "unit": "",
            "what": f"spread of {cell.n_ok} of {cell.n} repeats",
        }
    )
    return figures


def settings(summary: Summary) -> list[tuple[str, str]]:
    """How one benchmark was set up, in words."""
    optimizer, options, steps = summary.optimizer, summary.options, summary.steps
    cap = f", in at most {steps.at_most_s:g} s" if steps.at_most_s is not None else ""
    repeats = max((cell.n for series in summary.frameworks.values() for cell in series.values()), default=0)
    data = f"{summary.data.rows:,} rows" if summary.data else "made-up batches, nothing is read"
    coverage = statistics.range_coverage(repeats)
    sure = f"; their range holds the true median with {percent(coverage, 1)} probability" if coverage else ""
    return [
        ("model", ", ".join(part for part in (summary.model, workload.setup(summary)) if part)),
        ("device", summary.device.name if summary.device else "n/a"),
        ("steps", f"{steps.warmup} to warm up, then {steps.timed} timed{cap}"),
        ("repeats", f"{repeats} per cell, interleaved{sure}"),
        ("optimizer", f"{optimizer.name}, learning rate {optimizer.learning_rate:g}, "
                      f"weight decay {optimizer.weight_decay:g}"),
        ("dropout", f"{options.dropout:g}"),
        ("data", data),
        *([("mathematics", _mathematics(summary))] if summary.mathematics else []),
    ]  # fmt: skip


def _mathematics(summary: Summary) -> str:
    """How far each framework's losses are from the reference, in words."""
    parts = []
    for framework, proof in (summary.mathematics or {}).items():
        size = "" if proof.largest_difference is None else f" ({proof.largest_difference:.0e})"
        parts.append(f"{framework} {proof.verdict}{size}")
    return "loss against a float64 reference: " + ", ".join(parts)


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
