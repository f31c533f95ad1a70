"""Predict the throughput of topologies that nobody measured, from the summaries of a benchmark.

The package `prediction/` has the model. This file says what it gets: the measured cells of a framework at one batch
size and precision, with what the derived runs and the network's measurement say about their steps.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

from pydantic import Field, ValidationError

from throughline import prediction, workloads
from throughline.files import UserError, sha256
from throughline.numbers import percent, reading
from throughline.prediction import FAR, Job, Place
from throughline.records import (
    SCHEMA,
    MeasuredPoint,
    Message,
    NotPredicted,
    PredictedCell,
    PredictedSeries,
    Predictions,
    Summary,
    read_summary,
)
from throughline.report.analysis import cells, sides
from throughline.report.analysis.cells import Group, Row
from throughline.report.analysis.sides import Side
from throughline.spec import Topology
from throughline.spec.run import example
from throughline.statistics import coefficient_of_variation, median
from throughline.study.section import Section

NOTHING = "nothing was measured"
WAITS = 0.05
"""If ranks wait for data for a larger share of the window than this, the input decides the throughput."""


class Asked(Section):
    """What the configuration asks for: topologies to predict."""

    topologies: list[str] = Field(default_factory=list)


def read_asked(text: str) -> Asked:
    """Return what is asked in a JSON text; UserError if it is not of this form."""
    try:
        return Asked.model_validate_json(text)
    except ValidationError as error:
        form = '{"topologies": ["4n8g"]}'
        raise UserError("--asked has no valid topologies", why=str(error), next_step=f"write {form}") from None


def derive(own: Mapping[str, Path], extras: Mapping[str, Path], asked: Asked) -> Predictions:
    """Return the predictions of one benchmark.

    own, extras: its summaries and those of its derived runs, by the names that the file states for them.
    """
    summaries = {name: read_summary(path) for name, path in chain(own.items(), extras.items())}
    benchmark = summaries[next(iter(own))].benchmark
    derived = {name for name in extras if summaries[name].benchmark in _derived(benchmark)}
    used = {name: summary for name, summary in summaries.items() if name in own or name in derived}
    groups = cells.groups(used.values())
    return Predictions(
        schema_=SCHEMA,
        benchmark=benchmark,
        asked=asked.topologies,
        made_from={name: sha256({**own, **extras}[name]) for name in used},
        series=[
            _series(group, framework, groups, asked.topologies)
            for group in groups
            if group.benchmark == benchmark
            for framework in group.frameworks
        ],
    )


def _derived(benchmark: str) -> tuple[str, str]:
    return f"{benchmark}__no_gradient_sync", f"{benchmark}__synthetic"


def _series(group: Group, framework: str, groups: Sequence[Group], asked: Sequence[str]) -> PredictedSeries:
    every = [row for row in group.series(framework) if not row.topology.simulated]
    rows, left_out = _alike(group, every)
    measured = [_measured(group, row, groups) for row in rows]
    why = _why_not(group, rows)
    job = None if why else _job(group, rows)
    predicted, refused = list[PredictedCell](), list[NotPredicted]()
    for name in asked:
        if name in {str(row.topology) for row in every}:
            continue
        answer = _predicted(group, measured, Topology.parse(name), job) if job else NotPredicted(topology=name, why=why)
        if isinstance(answer, PredictedCell):
            predicted.append(answer.model_copy(update={"warnings": [*answer.warnings, *left_out]}))
        else:
            refused.append(NotPredicted(topology=name, why="; ".join([answer.why, *left_out])))
    return PredictedSeries(
        batch=group.batch,
        precision=group.summary.precision if group.summary else "fp32",
        framework=framework,
        unit=group.unit,
        measured=measured,
        predicted=sorted(predicted, key=lambda cell: Topology.parse(cell.topology).world),
        not_predicted=refused,
    )


def _alike(group: Group, rows: Sequence[Row]) -> tuple[list[Row], list[str]]:
    """Return the rows that may be compared with the largest one, which is scaled up, and what the others differ in."""
    barred = [sides.unlike(Side(group, row), Side(group, rows[-1])) for row in rows]
    why: dict[str, list[str]] = {}
    for row, reasons in zip(rows, barred, strict=True):
        if reasons:
            why.setdefault("; ".join(reasons), []).append(str(row.topology))
    alike = [row for row, reasons in zip(rows, barred, strict=True) if not reasons]
    return alike, [
        f"left out: {', '.join(names)} (not comparable with {rows[-1].topology}: {text})" for text, names in why.items()
    ]


def _measured(group: Group, row: Row, groups: Iterable[Group]) -> MeasuredPoint:
    """Return what is known about the step of a measured row."""
    cell = row.cell
    assert cell
    alone, unread = (_without(Side(group, row), name, groups) for name in _derived(group.benchmark))
    steps, without_input = _steps(row), _steps(unread) if unread else {}
    network = cell.network
    message = (
        [Message(bytes=network.bytes_per_step, seconds=network.seconds)]
        if network and network.bytes_per_step and network.seconds
        else []
    )
    pairs = [steps[repeat] - without_input[repeat] for repeat in steps.keys() & without_input.keys()]
    return MeasuredPoint(
        topology=str(row.topology),
        global_batch=cell.global_batch,
        gradient_accumulation=group.size(row).gradient_accumulation,
        step_s=[*steps.values()],
        compute_s=median([*_steps(alone).values()]) if alone and row.topology.world > 1 else None,
        rank_spread=_rank_spread(alone) if alone else None,
        input_s=max(0.0, median(sorted(pairs)) or 0.0) if pairs else None,
        all_reduce=message,
    )


def _without(side: Side, name: str, groups: Iterable[Group]) -> Row | None:
    """Return the same row in a derived benchmark; None if it was not measured alike."""
    group, row = side.group, side.row
    for other in groups:
        if (other.benchmark, other.batch, other.precision) == (name, group.batch, group.precision):
            there = other.row(row.framework, row.topology)
            if there and there.cell and there.cell.n_ok and not sides.unlike(side, Side(other, there)):
                return there
    return None


def _rank_spread(alone: Row) -> float | None:
    """Return how far apart the steps of ranks are that exchange nothing: the median over the repeats; None if unknown.

    alone: the row of the runs without exchange.
    """
    ranks = alone.cell.ranks if alone.cell else None
    if not ranks or any(rank.solo_step_s is None for rank in ranks):
        return None
    repeats = zip(*(rank.solo_step_s or () for rank in ranks), strict=True)
    known = ([step for step in steps if step is not None] for steps in repeats)
    spreads = (coefficient_of_variation(steps) for steps in known if len(steps) == len(ranks))
    return median([spread for spread in spreads if spread is not None])


def _steps(row: Row) -> dict[int, float]:
    """Map each repeat to its seconds per optimizer step."""
    cell = row.cell
    assert cell
    return {repeat: cell.global_batch / value for repeat, value in enumerate(cell.values, 1) if value}


def _predicted(
    group: Group, points: Sequence[MeasuredPoint], topology: Topology, job: Job
) -> PredictedCell | NotPredicted:
    """Return the prediction for a topology, or why there is none."""
    try:
        size = group.size_on(topology)
    except UserError as error:
        return NotPredicted(topology=str(topology), why=error.what)
    return prediction.predict(points, Place(topology, size.global_batch, size.gradient_accumulation, job))


def _why_not(group: Group, rows: Sequence[Row]) -> str:
    """Return why nothing can be predicted about a benchmark, whatever the topology; empty if something can."""
    summary = group.summary
    if summary is None:
        return NOTHING
    if workloads.folder(summary.model) is None or not workloads.of(summary.model).has_batch:
        return f"a call of {summary.model} is no training step, so no model of a step holds for it"
    if summary.job:
        return "a run is a whole job, whose evaluations and checkpoints do not grow as a step does"
    if not summary.options.gradient_sync:
        return "its ranks do not exchange gradients, so they do not train one model together"
    if not rows:
        simulated = any(row.topology.simulated for row in group.measured)
        return "its nodes are simulated on one machine, which says nothing about several" if simulated else NOTHING
    return ""


def _job(group: Group, rows: Sequence[Row]) -> Job:
    summary = group.summary
    assert summary
    layout = summary.options.layout
    return Job(layout, "lookups" if _looks_up(summary) else "gradients", _input_limits(rows))


def _looks_up(summary: Summary) -> bool:
    """True if the workload exchanges in a way of its own, such as the rows of split tables."""
    workload = workloads.of(summary.model)
    return workload.own_gradient_sync(example(summary.model, workload.parameters(**summary.parameters)))


def _input_limits(rows: Sequence[Row]) -> str | None:
    """Say how long ranks wait for data, if that decides the throughput of one of these rows."""
    waits = {row.topology: row.cell.loader_stall_share for row in rows if row.cell and row.cell.loader_stall_share}
    if not waits or max(waits.values()) <= WAITS:
        return None
    where = max(waits, key=lambda topology: waits[topology])
    return f"ranks wait {percent(waits[where])} of the window for data on {where}"


def in_words(series: PredictedSeries, cell: PredictedCell) -> str:
    """Return a prediction in one sentence, which says so if it is far beyond what was measured."""
    topology = Topology.parse(cell.topology)
    far = f", which is an extrapolation to {cell.times_beyond:.3g} times as many devices as were measured"
    limits = max(cell.terms, key=lambda name: cell.terms[name])
    share = percent(cell.terms[limits] / cell.step_s)
    return (
        f"predicted {reading(cell.samples_per_s)} {series.unit} on {topology.world} devices ({topology})"
        f"{far if cell.times_beyond > FAR else ''}: {reading(cell.low)} to {reading(cell.high)} with "
        f"{percent(cell.level)} probability; {limits} takes {share} of the predicted step"
    )


def lines(made: Predictions) -> Iterator[str]:
    """Yield a line for each prediction and for each topology without one."""
    for series in made.series:
        where = f"{made.benchmark} bz{series.batch} {series.precision} {series.framework}"
        for cell in series.predicted:
            yield f"{where}: {in_words(series, cell)}"
        for refused in series.not_predicted:
            yield f"{where}: no prediction for {refused.topology}: {refused.why}"
