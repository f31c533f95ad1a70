"""Whole jobs: the table that users of Hugging Face's Trainer know, with columns for the optimizer steps alone."""

from collections.abc import Callable
from functools import partial
from typing import Any

from throughline import gpus
from throughline.numbers import percent, reading
from throughline.report.analysis.cells import Cell
from throughline.report.render.tables import Column, Entry, Line, Table
from throughline.report.topic import Scope, Topic
from throughline.spec import job

COLUMNS = {
    "global_step": "train/global_step",
    "train_steps_per_second": "train/train_steps_per_second",
    "eval_steps_per_second": "eval/steps_per_second",
    "train_samples_per_second": "train/train_samples_per_second",
    "eval_samples_per_second": "eval/samples_per_second",
    "train_runtime": "train/train_runtime",
    "eval_runtime": "eval/runtime",
}
"""Map our columns to the names of the Trainer's figures in its log."""


def figures_of(cell: Cell) -> dict[str, Any]:
    """Return a job's name, the ten columns that users of the Trainer know, and our own figures."""
    told = {figure.name: figure.value for figure in cell.record.figures}
    alone, whole = told.get("samples_per_second_without_evaluations"), told.get("train_samples_per_second")
    runtime, preparation = told.get("train_runtime"), told.get("preparation")
    return {
        "name": name(cell),
        "fp16": str(cell.group.precision == "fp16").upper(),
        "train_bs": cell.record.global_batch // cell.size.gradient_accumulation,
        "total_train_bs": cell.record.global_batch,
        **{heading: told.get(figure) for figure, heading in COLUMNS.items()},
        "samples_per_second_without_evaluations": alone,
        "evaluations_share": 1 - whole / alone if whole and alone else None,
        "runtime_with_preparation_s": runtime + preparation if runtime and preparation is not None else None,
    }


def name(cell: Cell) -> str:
    """Return a job's name: device, number of devices, batch of each, such as `V100_4gpu_8`."""
    device = cell.device
    known = gpus.find(device.name) if device and device.kind == "cuda" else None
    kind = known.kind if known else device.name if device and device.kind == "cuda" else "CPU"
    unit = "gpu" if device and device.kind == "cuda" else "worker"
    return f"{kind.replace(' ', '-')}_{cell.topology.world}{unit}_{cell.group.batch}"


def is_one(cell: Cell) -> bool:
    """True if a cell's runs are whole jobs."""
    return any(figure.name in job.FIGURES for figure in cell.record.figures)


INTRO = (
    "The columns from train_bs to eval/runtime have the Trainer's own definitions: train_runtime is the time of the "
    "whole job, with its evaluations and without preparing data; samples per second are those of all epochs over it. "
    "eval/runtime is the last evaluation's. Beside them stands what our clock says of the optimizer steps alone."
)
OWN = [
    Column("samples_per_second_without_evaluations", "samples/s", "without evaluations, our clock"),
    Column("evaluations_share", "evaluations", "share of the runtime"),
    Column("runtime_with_preparation_s", "runtime, s", "with preparing data"),
]
READ: dict[str, Callable[[Any], str]] = {
    "samples_per_second_without_evaluations": reading,
    "evaluations_share": partial(percent, places=1),
    "runtime_with_preparation_s": reading,
}


def table(scope: Scope) -> Table | None:
    """Return a row for each cell; None if no run is a whole job."""
    if not any(map(is_one, scope.cells)):
        return None
    theirs = ["name", "fp16", "train_bs", "total_train_bs", *COLUMNS.values()]
    columns = [*(Column(key, key) for key in theirs), *OWN]
    return Table(columns, [Line(_shown(cell), cell) for cell in scope.cells], of_cells=True)


def _shown(cell: Cell) -> list[Entry]:
    figures = figures_of(cell) if cell.ok else {}
    return [Entry.of(value, READ.get(key, digits)) for key, value in figures.items()]


def digits(value: float | str) -> str:
    """Return a value as the Trainer prints it, with all its digits."""
    return value if isinstance(value, str) else f"{round(value, 4):.10g}"


TOPIC = Topic("jobs", "Whole jobs", INTRO, order=20, table=table)
