"""Write what stands above a benchmark's tables: its fastest cell, its goals, and how it was set up."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from throughline import statistics, workloads
from throughline.numbers import percent, reading, span
from throughline.records import Cell, Data, Goal, Summary
from throughline.report.analysis import asked_pairs, goals, leader
from throughline.report.analysis import workload_figures as workload
from throughline.report.analysis.baseline import ONE_DEVICE
from throughline.report.analysis.cells import Group, Row
from throughline.report.analysis.judged_pairs import Pair
from throughline.report.analysis.sides import Side
from throughline.spec import EpochsJob, Topology


@dataclass(frozen=True)
class Best:
    """A measured row and the group it belongs to."""

    group: Group
    row: Row
    cell: Cell

    @property
    def speed(self) -> float:
        return self.cell.median_speed or 0.0

    @property
    def baseline(self) -> str:
        return baseline(self.group, self.row.framework)

    @property
    def scales(self) -> bool:
        """True if it has more devices than the baseline of its speedup."""
        return str(self.row.topology) != self.baseline

    @property
    def devices(self) -> str:
        """Its devices in words, such as `32 devices (4n8g)`."""
        world = self.row.topology.world
        return f"{world} device{'s' if world > 1 else ''} ({self.row.topology})"

    @property
    def settings(self) -> str:
        return f"{self.group.precision} with {self.group.batch_text}"


def measured(groups: Iterable[Group]) -> list[Best]:
    """Return every row with a median."""
    rows = ((group, row) for group in groups for row in group.rows)
    return [Best(group, row, row.cell) for group, row in rows if row.cell and row.cell.median_speed is not None]


def fastest(groups: Sequence[Group]) -> Best | None:
    """Return the fastest row of those that compute what they should."""
    return max((best for best in measured(groups) if not best.row.unequal), key=lambda best: best.speed, default=None)


def baseline(group: Group, framework: str) -> str:
    """Return the topology that a framework's speedups are relative to."""
    return group.summary.baselines.get(framework, ONE_DEVICE) if group.summary else ONE_DEVICE


def over(topology: str) -> str:
    """Return a baseline in words."""
    return "one device" if topology == ONE_DEVICE else topology


def headline(groups: Sequence[Group], pairs: Sequence[Pair], *, scaling: bool = True) -> str:
    """Say how fast a benchmark is, how well it scales (`scaling`), and how many repeats say so.

    It names no framework as the fastest that the verdicts of `pairs` do not find faster than all others.
    """
    best, every = fastest(groups), measured(groups)
    if best is None and every:
        rows = {best.row.framework: best.row for best in every}
        reasons = ", ".join(f"{name} {row.doubt}" for name, row in rows.items())
        return f"No figure is shown here: {reasons} (equivalence.json)."
    if best is None:
        return "Nothing could be measured yet."
    cell, unit, summary = best.cell, best.group.unit, best.group.summary
    repeats = f"Median of {cell.n_ok} repeats, which lie between {reading(cell.min)} and {reading(cell.max)} {unit}."
    if cell.n_ok == 1:
        repeats = "There is only one repeat, so how much it varies is not known."
    model = summary.model if summary else best.group.benchmark
    does = "trains" if workloads.folder(model) is None or workloads.of(model).trains else "calls"
    return (
        f"{_rivals(best, groups, pairs)}{best.row.shown} {does} {model} at {reading(best.speed)} {unit} "
        f"on {best.devices} ({best.settings}){_scaling(best, every) if scaling else ''}. {repeats}"
    )


def _rivals(best: Best, groups: Sequence[Group], pairs: Sequence[Pair]) -> str:
    """Return what has to stand before a highest median that is no winner: which frameworks it does not beat.

    Frameworks that their equivalence check bars from a comparison are no rivals.
    """
    first = Side(best.group, best.row)
    others = [other for other in asked_pairs.best_of_others(groups, first) if not other.row.unequal]
    open_ = leader.not_beaten(first, others, pairs, beyond_runs=False)
    own = [pair for pair in pairs if pair.sides and any(side.row is best.row for side in pair.sides)]
    unlike = {side.row.framework for pair in own if pair.unlike for side in pair.sides or ()}
    reasons = {
        "the highest median cannot be distinguished from {}": [name for name in open_ if name not in unlike],
        "the highest median is not comparable with that of {}": [name for name in open_ if name in unlike],
        f"there is no figure on {best.row.topology} ({best.group.precision}) of {{}}": [
            name for name in asked_pairs.without_figure(groups, first) if name not in open_
        ],
    }
    why = [text.format(" and ".join(", ".join(names).rsplit(", ", 1))) for text, names in reasons.items() if names]
    return f"No framework is shown to be the fastest: {', and '.join(why)}. " if why else ""


def _scaling(best: Best, every: Sequence[Best]) -> str:
    cell, world = best.cell, best.row.topology.world
    if not best.scales:
        unequal = any(other.row.unequal for other in every)
        return ", the highest median of all cells" + (" that compute what they should" if unequal else "")
    if cell.speedup is None:
        return f"; its speedup is not known, because {no_speedup(best)}"
    between = f" (speedup {span(cell.speedup_range)} within the ranges of the repeats)" if cell.speedup_range else ""
    return (
        f": {cell.speedup:.2f} times {over(best.baseline)}, {percent(cell.efficiency)} of what {world} devices could "
        f"ideally give{between}"
    )


def no_speedup(best: Best) -> str:
    """Return why a row on several devices has no speedup."""
    base = best.group.row(best.row.framework, Topology.parse(best.baseline))
    if base is None:
        return f"there are no runs on its baseline, {best.baseline}"
    if base.cell and base.cell.n_ok:
        return f"its baseline, {best.baseline}, ran in another environment"
    return f"its baseline, {best.baseline}, has no valid repeat"


def figures(best: Best | None) -> list[tuple[str, str, str]]:
    """Return the headline's numbers to be shown large: value, unit, and what it is."""
    if best is None:
        return []
    cell = best.cell
    rows = [(reading(best.speed), best.group.unit, f"on {best.devices}")]
    rows += [(reading(value / cell.world_size), unit, "per device") for unit, value in cell.other_units.items()]
    if best.scales and cell.speedup is not None:
        kind = "strong-scaling speedup" if best.group.strong else "speedup"
        rows.append((f"{cell.speedup:.2f}", "×", f"{kind} over {over(best.baseline)}"))
        rows.append((percent(cell.efficiency), "", "efficiency"))
    width = statistics.spread([value for value in cell.values if value])
    return [*rows, (percent(width, 1) or "n/a", "", f"spread of {cell.n_ok} of {cell.n} repeats")]


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
    rows = dict.fromkeys(
        f"{row.framework} {row.topology} ({group.precision}, {group.batch_name})"
        for group in groups
        for row in group.rows
        if row.cell is None and row.topology.nodes >= (goal.from_nodes or 1)
    )
    return ", ".join(rows)


VERDICTS = {"pass": "met", "fail": "not met", "not measured": "cannot be told"}
"""Map the verdicts of a summary's goals to the words of the page."""


def judged(groups: Sequence[Group]) -> list[tuple[str, str, str]]:
    """Return every goal once, over all batch sizes and precisions: verdict, goal, why. The worst one decides."""
    judgements: dict[str, list[tuple[Group, Goal]]] = {}
    means: dict[str, Goal] = {}
    for group in groups:
        for goal in (group.summary.goals if group.summary else None) or ():
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
        if group.summary:
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
