"""Whole jobs: the table that users of Hugging Face's Trainer know, with columns for the optimizer steps alone."""

from collections.abc import Callable
from functools import partial
from typing import Any

from throughline.numbers import percent, reading
from throughline.records import Cell
from throughline.report.analysis import jobs
from throughline.report.analysis.cells import Group, Row
from throughline.report.render.tables import Column, Figure, Grid, Line
from throughline.report.topics import Scope, Topic

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


def grid(scope: Scope) -> Grid | None:
    """Return a row for each cell; None if no run is a whole job."""
    if not any(row.cell and jobs.is_one(row.cell) for group in scope.groups for row in group.rows):
        return None
    theirs = ["name", "fp16", "train_bs", "total_train_bs", *jobs.COLUMNS.values()]
    columns = [*(Column(key, key) for key in theirs), *OWN]
    made = [Line(group, row, _shown(group, row, row.cell)) for group in scope.groups for row in group.rows]
    return Grid(columns, made)


def _shown(group: Group, row: Row, cell: Cell | None) -> list[Figure]:
    if cell is None or not cell.n_ok:
        return []
    return [Figure.of(value, READ.get(key, _digits)) for key, value in jobs.row(group, row, cell).items()]


def _digits(value: float | str) -> str:
    """Return a value as the Trainer prints it, with all its digits."""
    return value if isinstance(value, str) else f"{round(value, 4):.10g}"


TOPIC = Topic("jobs", "Whole jobs", INTRO, grid=grid)
