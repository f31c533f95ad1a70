"""Make the rows of the table of whole jobs."""

from typing import Any

from throughline import gpus
from throughline.records import Cell
from throughline.report.analysis.cells import Group, Row
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


def row(group: Group, line: Row, cell: Cell) -> dict[str, Any]:
    """Return a job's name, the ten columns that users of the Trainer know, and our own figures."""
    told = {one.name: one.value for one in cell.figures}
    accumulate = group.summary.options.accumulate if group.summary else 1
    alone, whole = told.get("samples_per_second_without_evaluations"), told.get("train_samples_per_second")
    runtime, preparation = told.get("train_runtime"), told.get("preparation")
    return {
        "name": name(group, line),
        "fp16": str(group.precision == "fp16").upper(),
        "train_bs": cell.global_batch // accumulate,
        "total_train_bs": cell.global_batch,
        **{heading: told.get(figure) for figure, heading in COLUMNS.items()},
        "samples_per_second_without_evaluations": alone,
        "evaluations_share": 1 - whole / alone if whole and alone else None,
        "runtime_with_preparation_s": runtime + preparation if runtime and preparation is not None else None,
    }


def name(group: Group, line: Row) -> str:
    """Return a job's name: device, number of devices, batch of each, such as `V100_4gpu_8`."""
    device = group.summary.device if group.summary else None
    known = gpus.find(device.name) if device and device.kind == "cuda" else None
    kind = known.kind if known else device.name if device and device.kind == "cuda" else "CPU"
    unit = "gpu" if device and device.kind == "cuda" else "worker"
    return f"{kind.replace(' ', '-')}_{line.topology.world}{unit}_{group.batch}"


def is_one(cell: Cell) -> bool:
    """True if a cell's runs are whole jobs."""
    return any(one.name in job.FIGURES for one in cell.figures)
