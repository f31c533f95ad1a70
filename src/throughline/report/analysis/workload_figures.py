"""Medians over repeats of what a workload measures besides throughput, and throughput in other units."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from throughline import statistics, workloads
from throughline.grouping import grouped
from throughline.records import Figure, RunRecord, Summary
from throughline.spec import RunSpec, values
from throughline.study.section import Value


def medians(runs: Sequence[RunRecord]) -> list[Figure]:
    """Return the median of every figure over the ok runs; figures differ in name, or in the size measured at."""
    figures = (figure for run in runs if run.status == "ok" for figure in run.figures)
    same = grouped(figures, lambda figure: (figure.name, str(figure.at)))
    values = {key: [figure.value for figure in repeats if figure.value is not None] for key, repeats in same.items()}
    return [same[key][0].model_copy(update={"value": statistics.median(values[key])}) for key in same]


def other_units(spec: RunSpec, samples_per_s: float | None) -> dict[str, float]:
    """Return a throughput in every other unit of the workload, such as tokens/s."""
    if samples_per_s is None:
        return {}
    each = per_sample(spec.model, values(spec.parameters))
    return {f"{unit}/s": count * samples_per_s for unit, count in each.items()}


def per_sample(model: str, parameters: dict[str, Value]) -> dict[str, float]:
    """Return how many of every other unit a sample has, such as tokens."""
    workload = workloads.of(model)
    return {unit: count(workload.parameters(**parameters)) for unit, count in workload.units.items()}


def parameters(summary: Summary) -> dict[str, Any]:
    """Return the workload's parameters that are keys of a block, by names with units, such as `sequence_tokens`."""
    stated = {}
    for field in fields(workloads.of(summary.model).parameters):
        if field.metadata["asked"] and field.name in summary.parameters:
            name = "_".join(filter(None, [field.name, field.metadata.get("unit")]))
            stated[name] = _plain(summary.parameters[field.name])
    return stated


def titled(summary: Summary) -> str:
    """Return the parameters that every title names, because they decide so much: `vocabulary 20000 & table rows`.
    Those that are not always stated have a place there if they differ from their default."""
    texts = []
    for field in fields(workloads.of(summary.model).parameters):
        if field.metadata["titled"] and field.name in summary.parameters:
            value = summary.parameters[field.name]
            if field.metadata["stated"] or value != field.default:
                texts.append(f"{field.name} {_plain(value)}")
    return " & ".join(texts)


def _plain(value: Value) -> int | float | str | bool:
    """Return a list as text, such as `128 512`, and any other value as it is."""
    return " ".join(map(str, value)) if isinstance(value, tuple) else value


def setup(summary: Summary) -> str:
    """Return the workload's parameters in words: how many of its other units a sample has, or else the block's keys."""
    sample = workloads.of(summary.model).unit.removesuffix("s")
    if units := per_sample(summary.model, summary.parameters):
        return ", ".join(f"{count:g} {unit} per {sample}" for unit, count in units.items())
    return ", ".join(f"{name} {value}" for name, value in parameters(summary).items() if value != "")
