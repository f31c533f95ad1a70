"""Whole jobs: the table that users of Hugging Face's Trainer know, with columns for the optimizer steps alone.

A second table has the jobs that others have published for the same model, between ours.
"""

from collections.abc import Callable
from functools import partial
from operator import itemgetter, methodcaller
from typing import Any

from throughline import gpus
from throughline.comparables import published
from throughline.numbers import percent, reading
from throughline.records import Result
from throughline.report.analysis.cells import PRECISIONS, Cell
from throughline.report.render.tables import Column, Table
from throughline.report.topic import Scope, Topic
from throughline.spec import job

FIGURES = {
    "global_step": "train/global_step",
    "train_steps_per_second": "train/train_steps_per_second",
    "eval_steps_per_second": "eval/steps_per_second",
    "train_samples_per_second": "train/train_samples_per_second",
    "eval_samples_per_second": "eval/samples_per_second",
    "train_runtime": "train/train_runtime",
    "eval_runtime": "eval/runtime",
}
"""Map our names of figures to the names of the Trainer's figures in its log."""


def name(cell: Cell) -> str:
    """Return a job's name: device, number of devices, batch of each, such as `V100_4gpu_8`."""
    on_gpu = cell.device is not None and cell.device.kind == "cuda"
    gpu = gpus.find(cell.device.name) if cell.device and on_gpu else None
    kind = gpu.kind if gpu else cell.device.name if cell.device and on_gpu else "CPU"
    return f"{kind.replace(' ', '-')}_{cell.topology.world}{'gpu' if on_gpu else 'worker'}_{cell.group.batch}"


def is_job(cell: Cell) -> bool:
    """True if a cell's runs are whole jobs."""
    return any(figure.name in job.FIGURES for figure in cell.record.figures)


def digits(value: float | str) -> str:
    """Return a value as the Trainer prints it, with all its digits."""
    return value if isinstance(value, str) else f"{round(value, 4):.10g}"


_alone = methodcaller("figure", "samples_per_second_without_evaluations")


def _evaluations_share(cell: Cell) -> float | None:
    alone, whole = _alone(cell), cell.figure("train_samples_per_second")
    return 1 - whole / alone if whole and alone else None


def _with_preparation(cell: Cell) -> float | None:
    runtime, preparation = cell.figure("train_runtime"), cell.figure("preparation")
    return runtime + preparation if runtime and preparation is not None else None


INTRO = (
    "The columns from train_bs to eval/runtime have the Trainer's own definitions: train_runtime is the time of the "
    "whole job, with its evaluations and without preparing data; samples per second are those of all epochs over it. "
    "eval/runtime is the last evaluation's. Beside them stands what our clock says of the optimizer steps alone."
)
READ: dict[str, Callable[[Cell], float | str | None]] = {
    "name": name,
    "fp16": lambda cell: str(cell.group.precision == "fp16").upper(),
    "train_bs": lambda cell: cell.record.global_batch // cell.size.gradient_accumulation,
    "total_train_bs": lambda cell: cell.record.global_batch,
    **{heading: methodcaller("figure", figure) for figure, heading in FIGURES.items()},
}
"""Map the columns that users of the Trainer know to functions that read them."""
THEIRS = [Column(heading, heading, read=read, show=digits) for heading, read in READ.items()]
OURS = [
    Column("samples_per_second_without_evaluations", "samples/s", "without evaluations, our clock", _alone, reading),
    Column("evaluations_share", "evaluations", "share of the runtime", _evaluations_share, partial(percent, places=1)),
    Column("runtime_with_preparation_s", "runtime, s", "with preparing data", _with_preparation, reading),
]


def table(scope: Scope) -> Table | None:
    """Return a row for each cell; None if no run is a whole job."""
    return Table.of_groups(scope.groups, [*THEIRS, *OURS]) if any(map(is_job, scope.cells)) else None


JOBS = Topic("jobs", "Whole jobs", INTRO, order=20, table=table)


def money(runtime_s: float | None, devices: int, per_hour: float | None, currency: str | None) -> dict[str, Any]:
    """Return the hours of a job and the price of all its devices. per_hour: the price of one device."""
    hours = runtime_s / 3600 if runtime_s else None
    return {"hours": hours, "price": hours * devices * per_hour if hours and per_hour else None, "currency": currency}


WHO = {"measured_by": "measured by", "framework": "framework"}
KEYS = ["name", *WHO, *list(READ)[1:], "hours", "price", "currency"]
COLUMNS = [Column(key, WHO.get(key, key), read=itemgetter(key), show=digits) for key in KEYS]


def beside(scope: Scope) -> Table | None:
    """Return our jobs and the published ones by devices, batch and precision; None if one of the two is missing."""
    ours, theirs = [], []
    for cell in filter(is_job, scope.measured):
        who: dict[str, Any] = {"measured_by": "measured here", "framework": cell.shown}
        place = cell.topology.world, cell.group.batch, PRECISIONS.index(cell.group.precision)
        cost, runtime = cell.record.cost, cell.figure("train_runtime")
        paid = money(runtime, cell.topology.world, cost.price_per_device_hour, cost.currency)
        ours.append((place, who | {key: read(cell) for key, read in READ.items()} | paid))
    for model in dict.fromkeys(group.summary.model for group in scope.groups):
        for result in published.jobs(model):
            place = result.devices or 0, result.batch or 0, PRECISIONS.index(result.precision or "fp32")
            theirs.append((place, row(result)))
    if not (ours and theirs):
        return None
    return Table.of([row for _, row in sorted([*ours, *theirs], key=itemgetter(0))], COLUMNS)


def row(result: Result) -> dict[str, Any]:
    """Return the row of a published job, whose figures have all printed digits."""
    assert result.devices and result.batch and result.value
    printed = {**dict[str, str](result.printed.items()), "train_samples_per_second": result.value}
    price = (result.gpu.price_per_hour, result.gpu.currency) if result.gpu else (None, None)
    kind = (result.gpu.kind if result.gpu else result.device or "device").replace(" ", "-")
    return {
        "name": f"{kind}_{result.devices}gpu_{result.batch}",
        "measured_by": result.source,
        "framework": result.framework,
        "fp16": str(result.precision == "fp16").upper(),
        "train_bs": result.devices * result.batch,
        "total_train_bs": result.global_batch,
        **{heading: float(printed[figure]) for figure, heading in FIGURES.items()},
        **money(float(printed["train_runtime"]), result.devices, *price),
    }


WITH_PUBLISHED = (
    "Our jobs, and those that others have published for the same model, by devices, batch and precision. The columns "
    "have the Trainer's own definitions. A published job may differ in software, sequence and samples as well. The "
    "price is that of all devices for the hours of train_runtime. Published jobs have the prices of resources/gpus.csv."
)
BESIDE = Topic("jobs_beside", "Whole jobs beside published ones", WITH_PUBLISHED, order=25, table=beside)
