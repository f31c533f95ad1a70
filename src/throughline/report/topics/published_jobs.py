"""Whole jobs that others have published, between our own jobs of the same model."""

from collections.abc import Iterator
from typing import Any

from throughline.comparables import published
from throughline.records import Result
from throughline.report.render.tables import Column, Entry, Line, Table
from throughline.report.topic import Scope, Topic
from throughline.report.topics import whole_jobs

OURS = "measured here"
ORDER = ("fp32", "tf32", "bf16", "fp16", "fp8", "fp4")


def table(scope: Scope) -> Table | None:
    """Return our jobs and the published ones by devices, batch and precision; None if one of the two is missing."""
    ours = list(_ours(scope))
    models = dict.fromkeys(group.summary.model for group in scope.groups)
    theirs = [(_place(row), _of(row)) for model in models for row in published.jobs(model)]
    if not (ours and theirs):
        return None
    rows = [row for _, row in sorted([*ours, *theirs], key=lambda known: known[0])]
    columns = [Column(key, key.replace("_", " ") if key in ("measured_by", "framework") else key) for key in rows[0]]
    return Table(columns, [Line([_entry(value) for value in row.values()]) for row in rows])


def _ours(scope: Scope) -> Iterator[tuple[tuple[int, int, int], dict[str, Any]]]:
    """Yield the place and the row of each of our jobs."""
    for cell in scope.measured:
        if whole_jobs.is_one(cell):
            figures = whole_jobs.figures_of(cell)
            known = {name: figures[name] for name in ("fp16", "train_bs", "total_train_bs")}
            told = known | {heading: figures[heading] for heading in whole_jobs.COLUMNS.values()}
            who = {"name": figures["name"], "measured_by": OURS, "framework": cell.shown}
            yield (cell.topology.world, cell.group.batch, ORDER.index(cell.group.precision)), who | told


def _of(job: Result) -> dict[str, Any]:
    """Return the row of a published job, whose figures have all printed digits."""
    assert job.devices and job.batch and job.value
    printed = {**dict[str, str](job.printed.items()), "train_samples_per_second": job.value}
    kind = (job.gpu.kind if job.gpu else job.device or "device").replace(" ", "-")
    return {
        "name": f"{kind}_{job.devices}gpu_{job.batch}",
        "measured_by": job.source,
        "framework": job.framework,
        "fp16": str(job.precision == "fp16").upper(),
        "train_bs": job.devices * job.batch,
        "total_train_bs": job.global_batch,
        **{heading: float(printed[figure]) for figure, heading in whole_jobs.COLUMNS.items()},
    }


def _place(job: Result) -> tuple[int, int, int]:
    return job.devices or 0, job.batch or 0, ORDER.index(job.precision or "fp32")


def _entry(value: Any) -> Entry:
    return Entry.of(value, whole_jobs.digits)


INTRO = (
    "Our jobs, and those that others have published for the same model, by devices, batch and precision. The columns "
    "have the Trainer's own definitions. A published job may differ in software, sequence and samples as well."
)
TOPIC = Topic("jobs_beside", "Whole jobs beside published ones", INTRO, order=25, table=table)
