"""Whole jobs that others have published, between our own jobs of the same model."""

from operator import itemgetter
from typing import Any

from throughline.comparables import published
from throughline.records import Result
from throughline.report.analysis.cells import PRECISIONS
from throughline.report.render.tables import Column, Table
from throughline.report.topic import Scope, Topic
from throughline.report.topics.whole_jobs import FIGURES, READ, digits, is_job

WHO = {"measured_by": "measured by", "framework": "framework"}
KEYS = ["name", *WHO, *list(READ)[1:]]
COLUMNS = [Column(key, WHO.get(key, key), read=itemgetter(key), show=digits) for key in KEYS]


def table(scope: Scope) -> Table | None:
    """Return our jobs and the published ones by devices, batch and precision; None if one of the two is missing."""
    ours, theirs = [], []
    for cell in filter(is_job, scope.measured):
        who: dict[str, Any] = {"measured_by": "measured here", "framework": cell.shown}
        place = cell.topology.world, cell.group.batch, PRECISIONS.index(cell.group.precision)
        ours.append((place, who | {key: read(cell) for key, read in READ.items()}))
    for model in dict.fromkeys(group.summary.model for group in scope.groups):
        for job in published.jobs(model):
            place = job.devices or 0, job.batch or 0, PRECISIONS.index(job.precision or "fp32")
            theirs.append((place, row(job)))
    if not (ours and theirs):
        return None
    return Table.of([row for _, row in sorted([*ours, *theirs], key=itemgetter(0))], COLUMNS)


def row(job: Result) -> dict[str, Any]:
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
        **{heading: float(printed[figure]) for figure, heading in FIGURES.items()},
    }


INTRO = (
    "Our jobs, and those that others have published for the same model, by devices, batch and precision. The columns "
    "have the Trainer's own definitions. A published job may differ in software, sequence and samples as well."
)
TOPIC = Topic("jobs_beside", "Whole jobs beside published ones", INTRO, order=25, table=table)
