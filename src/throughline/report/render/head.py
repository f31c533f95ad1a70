"""How a benchmark was set up, and how its goals are judged over all of its cells."""

from collections.abc import Sequence

from throughline import statistics
from throughline.numbers import percent
from throughline.records import Data, Goal, Summary
from throughline.report.analysis import goals
from throughline.report.analysis import workload_figures as workload
from throughline.report.analysis.cells import Group
from throughline.spec import EpochsJob


def _job(job: EpochsJob) -> str:
    looked = f", an evaluation over {job.held_out:,} held-out ones after each" if job.held_out else ""
    return f"a whole job: {job.samples:,} samples in each of {job.epochs} epochs{looked}; all of its steps are timed"


def settings(summary: Summary, devices: Sequence[str] = ()) -> list[tuple[str, str]]:
    """Say how one benchmark was set up: names and texts. devices: the names of those that its cells ran on."""
    optimizer, steps = summary.optimizer, summary.steps
    cap = f", in at most {steps.max_total_seconds:g} s" if steps.max_total_seconds is not None else ""
    repeats = max((cell.n for series in summary.frameworks.values() for cell in series.values()), default=0)
    valid = {cell.n_ok for series in summary.frameworks.values() for cell in series.values() if cell.n_ok}
    coverage = statistics.range_coverage(min(valid, default=0))
    fewest = f" (the fewest valid repeats: {min(valid)})" if valid and min(valid) < repeats else ""
    sure = f"; their range holds the true median with {percent(coverage, 1)} probability{fewest}" if coverage else ""
    losses = [
        f"{framework} {proof.verdict}"
        + ("" if proof.largest_difference is None else f" ({proof.largest_difference:.0e})")
        for framework, proof in (summary.equivalence or {}).items()
    ]
    schedule = optimizer.schedule
    course = f" ({schedule.words})" if schedule.changes else ""
    rates = f"learning rate {optimizer.learning_rate:g}{course}, weight decay {optimizer.weight_decay:g}"
    if optimizer.name == "sgd":
        rates += f", momentum {optimizer.momentum:g}"
    built = [model for model in (summary.settings or {}).values() if model]
    counts = {model["parameters"] for model in built if model.get("parameters")}
    size = ", ".join(f"{count:,} parameters" for count in sorted(counts))
    has_dropout = not built or any(model.get("dropout") for model in built)
    return [
        ("model", ", ".join(part for part in (summary.model, workload.setup(summary), size) if part)),
        ("device", " and ".join(devices) or (summary.device.name if summary.device else "n/a")),
        ("steps", _job(summary.job) if summary.job else f"{steps.warmup} to warm up, then {steps.timed} timed{cap}"),
        ("repeats", f"{repeats} per cell, interleaved{sure}"),
        ("optimizer", f"{optimizer.name}, {rates}"),
        *([("dropout", f"{summary.options.dropout:g}")] if has_dropout else []),
        ("data", _data(summary.data)),
        *([("equivalence", f"losses from equal weights (largest difference): {', '.join(losses)}")] if losses else []),
    ]


def _data(data: Data | None) -> str:
    if data is None:
        return "synthetic batches, nothing is read"
    return f"{data.rows:,} rows" + (f" of {', '.join(data.dumps.values())}" if data.dumps else "")


def _without_record(groups: Sequence[Group], goal: Goal) -> str:
    """Name the cells that a goal is about and that have no record, because their runs failed or are still to come."""
    without = dict.fromkeys(
        f"{cell.framework} {cell.topology} ({group.precision}, {group.batch_name})"
        for group in groups
        for cell in group.cells
        if not cell.record.statuses and cell.topology.nodes >= (goal.from_nodes or 1)
    )
    return ", ".join(without)


VERDICTS = {"pass": "met", "fail": "not met", "not measured": "cannot be told"}
"""Map the verdicts of a summary's goals to the words of the page."""


def judged(groups: Sequence[Group]) -> list[tuple[str, str, str]]:
    """Return every goal once, over all batch sizes and precisions: verdict, goal, why. The worst one decides."""
    judgements: dict[str, list[tuple[Group, Goal]]] = {}
    means: dict[str, Goal] = {}
    for group in groups:
        for goal in group.summary.goals or ():
            if goal.part:
                means.setdefault(goal.part, goal)
            else:
                judgements.setdefault(goal.name, []).append((group, goal))
    rows = []
    for every in judgements.values():
        verdict = goals.overall(goal for _, goal in every)
        deciding = [(group, goal) for group, goal in every if goal.verdict == verdict]
        group, goal = min(deciding, key=lambda judged: (judged[1].where is None, judged[1].worst or 0.0))
        where = f" ({group.precision}, {group.batch_name})" if goal.where else ""
        if verdict == "pass" and (gone := _without_record(groups, goal)):
            verdict, goal, where = "not measured", goal.model_copy(update={"why": f"no record: {gone}"}), ""
        aim = f"devices are busy for at least {percent(goal.at_least)} of the timed window"
        if goal.name == "efficiency":
            kind = "strong-scaling efficiency" if group.strong else "efficiency"
            topologies = "every topology" if goal.from_nodes == 1 else f"topologies of {goal.from_nodes} nodes and more"
            aim = f"{kind} of at least {percent(goal.at_least)} on {topologies}"
        rows.append((VERDICTS[verdict], aim, f"{goal.why}{where}"))
    return [*rows, *(_mean(groups, part, goal) for part, goal in means.items())]


PARTS = {
    "gpu": "the GPUs are busy for at least {} of the time",
    "cpu": "at least {} of the processors are busy",
    "memory": "at least {} of the nodes' memory is in use",
    "disk": "a node's busiest disk works for at least {} of the time",
    "network": "a node's busiest network link carries at least {} of what it can",
}
"""Map each part of the hardware to its goal in words."""


def _mean(groups: Sequence[Group], part: str, goal: Goal) -> tuple[str, str, str]:
    """Judge the mean use of a part of the hardware over the cells of all groups."""
    nodes = goal.from_nodes or 1
    known: dict[str, float] = {}
    lacking: dict[str, str] = {}
    for group in groups:
        suffix = f" ({group.precision}, {group.batch_name})"
        used = goals.shares(group.summary.frameworks, part, nodes, suffix)
        known |= used.known
        lacking |= used.lacking
    judged = goals.mean_utilization(part, goal.at_least, nodes, goals.Shares(known, lacking))
    verdict, why = judged.verdict, ""
    if verdict != "not measured" and (gone := _without_record(groups, goal)):
        verdict, why = "not measured", f"no record: {gone}"
    where = "" if nodes == 1 else f" of {nodes} nodes and more"
    aim = f"{PARTS[part].format(percent(goal.at_least))}, in the mean of all cells{where}"
    return VERDICTS[verdict], aim, why or judged.why
