"""Predict the throughput of topologies that nobody measured, from the summaries of a benchmark.

The package `prediction/` has the model. This file says what it gets: the measured cells of a framework at one batch
size and precision, with what the derived runs and the network's measurement say about their steps.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

from pydantic import Field, ValidationError

from throughline import prediction, records, workloads
from throughline.files import UserError, sha256
from throughline.grouping import grouped
from throughline.numbers import percent, reading
from throughline.records import MeasuredPoint, NotPredicted, PredictedCell, PredictedSeries, Predictions
from throughline.records.predictions import Message
from throughline.report.analysis import cells
from throughline.report.analysis.cells import Cell, Group
from throughline.report.analysis.differences import derived, unlike
from throughline.spec import Topology, cell_name
from throughline.spec.run import example
from throughline.statistics import coefficient_of_variation, median
from throughline.study.section import Section

EXTRAS = ("no_gradient_sync", "synthetic")
"""The derived runs that tell what a step spends."""
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
    summaries = {name: records.read_summary(path) for name, path in chain(own.items(), extras.items())}
    benchmark = summaries[next(iter(own))].benchmark
    names = [f"{benchmark}__{extra}" for extra in EXTRAS]
    used = {name: summary for name, summary in summaries.items() if name in own or summary.benchmark in names}
    groups = cells.groups(used.values())
    return Predictions(
        schema_=records.SCHEMA,
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


def _series(group: Group, framework: str, groups: Sequence[Group], asked: Sequence[str]) -> PredictedSeries:
    every = [cell for cell in group.series(framework) if not cell.topology.simulated]
    alike, left_out = _alike(every)
    measured = [_measured(cell, groups) for cell in alike]
    why, summary = _why_not(group, alike), group.summary
    predicted, refused = list[PredictedCell](), list[NotPredicted]()
    for name in (name for name in asked if name not in {str(cell.topology) for cell in every}):
        answer: PredictedCell | NotPredicted = NotPredicted(topology=name, why=why)
        if not why:
            workload = workloads.of(summary.model)
            # Some workloads exchange in a way of their own, such as the rows of split tables.
            looks_up = workload.own_gradient_sync(example(summary.model, workload.parameters(**summary.parameters)))
            job = prediction.Job(summary.options.layout, "lookups" if looks_up else "gradients", _input_limits(alike))
            answer = _predicted(group, measured, Topology.parse(name), job)
        if isinstance(answer, PredictedCell):
            predicted.append(answer.model_copy(update={"warnings": [*answer.warnings, *left_out]}))
        else:
            refused.append(NotPredicted(topology=name, why="; ".join([answer.why, *left_out])))
    return PredictedSeries(
        batch=group.batch,
        precision=summary.precision,
        framework=framework,
        unit=group.unit,
        measured=measured,
        predicted=sorted(predicted, key=lambda cell: Topology.parse(cell.topology).world),
        not_predicted=refused,
    )


def _alike(every: Sequence[Cell]) -> tuple[list[Cell], list[str]]:
    """Return the cells that may be compared with the largest one, which is scaled up, and what the others differ in."""
    why = grouped(every, lambda cell: "; ".join(unlike(cell, every[-1])))
    alike, left_out = why.pop("", []), []
    for text, others in why.items():
        names = ", ".join(str(cell.topology) for cell in others)
        left_out.append(f"left out: {names} (not comparable with {every[-1].topology}: {text})")
    return alike, left_out


def _measured(cell: Cell, groups: Sequence[Group]) -> MeasuredPoint:
    """Return what is known about the step of a measured cell."""
    found = (derived(cell, extra, groups)[0] for extra in EXTRAS)
    alone, unread = (there if there and not unlike(cell, there) else None for there in found)
    steps, without_input = cell.step_seconds, unread.step_seconds if unread else {}
    pairs = [steps[repeat] - without_input[repeat] for repeat in steps.keys() & without_input.keys()]
    network, message = cell.record.network, list[Message]()
    if network and network.bytes_per_step and network.seconds:
        message = [Message(bytes=network.bytes_per_step, seconds=network.seconds)]
    return MeasuredPoint(
        topology=str(cell.topology),
        global_batch=cell.record.global_batch,
        gradient_accumulation=cell.size.gradient_accumulation,
        step_s=[*steps.values()],
        compute_s=median([*alone.step_seconds.values()]) if alone and cell.topology.world > 1 else None,
        rank_spread=_rank_spread(alone) if alone else None,
        input_s=max(0.0, median(sorted(pairs)) or 0.0) if pairs else None,
        all_reduce=message,
    )


def _rank_spread(alone: Cell) -> float | None:
    """Return how far apart the steps of ranks are that exchange nothing: the median over the repeats; None if unknown.

    alone: the cell of the runs without exchange.
    """
    ranks = alone.record.ranks
    if not ranks or any(rank.solo_step_s is None for rank in ranks):
        return None
    repeats = zip(*(rank.solo_step_s or () for rank in ranks), strict=True)
    known = ([step for step in steps if step is not None] for steps in repeats)
    spreads = (coefficient_of_variation(steps) for steps in known if len(steps) == len(ranks))
    return median([spread for spread in spreads if spread is not None])


def _predicted(
    group: Group, points: Sequence[MeasuredPoint], topology: Topology, job: prediction.Job
) -> PredictedCell | NotPredicted:
    """Return the prediction for a topology, or why there is none."""
    try:
        size = group.size_on(topology)
    except UserError as error:
        return NotPredicted(topology=str(topology), why=error.what)
    return prediction.predict(points, prediction.Place(topology, size.global_batch, size.gradient_accumulation, job))


def _why_not(group: Group, alike: Sequence[Cell]) -> str:
    """Return why nothing can be predicted about a benchmark, whatever the topology; empty if something can."""
    summary = group.summary
    if workloads.folder(summary.model) is None or not workloads.of(summary.model).has_batch:
        return f"a call of {summary.model} is no training step, so no model of a step holds for it"
    if summary.job:
        return "a run is a whole job, whose evaluations and checkpoints do not grow as a step does"
    if not summary.options.gradient_sync:
        return "its ranks do not exchange gradients, so they do not train one model together"
    if alike:
        return ""
    if any(cell.topology.simulated for cell in group.measured):
        return "its nodes are simulated on one machine, which says nothing about several"
    return "nothing was measured"


def _input_limits(cells: Sequence[Cell]) -> str | None:
    """Say how long ranks wait for data, if that decides the throughput of one of these cells."""
    waits = {cell.topology: cell.record.loader_stall_share or 0.0 for cell in cells}
    where = max(waits, key=lambda topology: waits[topology])
    return f"ranks wait {percent(waits[where])} of the window for data on {where}" if waits[where] > WAITS else None


def lines(made: Predictions) -> Iterator[str]:
    """Yield a line for each prediction, which says so if it is far beyond what was measured, and for each topology
    without one."""
    for series in made.series:
        where = cell_name(made.benchmark, series.batch, series.precision, series.framework)
        for cell in series.predicted:
            far = f", an extrapolation to {cell.times_beyond:.3g} times as many devices as were measured"
            between = f"{reading(cell.low)} to {reading(cell.high)} with {percent(cell.level)} probability"
            yield (
                f"{where}: {cell.topology} is predicted to reach {reading(cell.samples_per_s)} {series.unit}, {between}"
                f"{far if cell.times_beyond > prediction.FAR else ''}"
            )
        for refused in series.not_predicted:
            yield f"{where}: no prediction for {refused.topology}: {refused.why}"
