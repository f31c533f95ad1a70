"""What a workload measures beside throughput, and its throughput in other units: medians over the repeats."""

from __future__ import annotations

from collections.abc import Sequence

from throughline import statistics, workloads
from throughline.records import Figure, RunRecord
from throughline.study.runs import RunSpec


def medians(runs: Sequence[RunRecord]) -> list[Figure]:
    """The figures of the runs that are ok, each by its name and the size at which it was measured."""
    same: dict[tuple[str, str], list[Figure]] = {}
    for figure in (figure for run in runs if run.status == "ok" for figure in run.figures):
        same.setdefault((figure.name, str(figure.at)), []).append(figure)
    return [
        found[0].model_copy(update={"value": statistics.median([one.value for one in found if one.value is not None])})
        for found in same.values()
    ]


def other_units(spec: RunSpec, samples_per_s: float | None) -> dict[str, float]:
    """A throughput in every other unit of the workload, such as tokens/s."""
    if samples_per_s is None:
        return {}
    return {f"{unit}/s": count * samples_per_s for unit, count in per_sample(spec.model, spec.parameters).items()}


def per_sample(model: str, parameters: dict[str, int | float | str | bool]) -> dict[str, float]:
    """How many of every other unit a sample has."""
    workload = workloads.of(model)
    return {unit: count(workload.Parameters(**parameters)) for unit, count in workload.UNITS.items()}
