"""What the handlers of the Snakefile do: check before the first job starts, and judge what is there if jobs failed."""

import json
import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from snakemake.logging import logger

from throughline.command import loaded
from throughline.console import plan
from throughline.files import UserError
from throughline.launch import gpu_builds, lock
from throughline.report.analysis import cells, machines
from throughline.report.render import page
from throughline.spec import RunSpec
from throughline.study import acceptance
from throughline.workflow.call import WorkflowCall
from throughline.workflow.inside import Inside
from throughline.workflow.node_jobs import NodeJobs

SO_FAR = Path(plan.SO_FAR)


def planned(call: WorkflowCall, inside: Inside, node_jobs: NodeJobs) -> plan.Plan:
    """Return what this call of Snakemake makes. It can be asked for before the first job starts and after the last."""
    jobs = [list(map(str, job.output)) for job in inside.jobs()]
    visits = node_jobs.plan({output for outputs in jobs for output in outputs})
    margins = {name: block.margin for name, block in call.config.benchmarks.items()}
    return plan.Plan(call.specs, jobs, inside.target_files, inside.submits, node_jobs=visits, margins=margins)


def plan_of_dry_run(
    record: logging.LogRecord, call: WorkflowCall, inside: Inside, node_jobs: NodeJobs, lines: Iterable[str]
) -> bool:
    """Print the plan, after some lines, before Snakemake's last words on a dry run. This is a filter of its logger."""
    if record.getMessage().startswith("This was a dry-run"):
        logger.info("\n".join([*lines, str(planned(call, inside, node_jobs))]))
    return True


def check(made: plan.Plan, call: WorkflowCall, inside: Inside, node_jobs: NodeJobs) -> list[str]:
    """Return what is to be said of devices and builds. UserError if the pending files cannot be made here.

    Otherwise the user would see the error only after hours.
    """
    plan.check_places(made.pending)
    lock.unclaimed(made.pending)
    if plan.REPORT in made.pending:
        machines.read(machines.read_asked(call.config.asked_of_machines()))
    specs = list(made.runs.values())
    return [*node_jobs.slurm.reserved_devices(specs), *_builds_for_gpus(specs, inside, node_jobs)]


def _builds_for_gpus(specs: Sequence[RunSpec], inside: Inside, node_jobs: NodeJobs) -> list[str]:
    if inside.is_deployed or inside.is_submitted:
        return []
    if inside.submits:
        return gpu_builds.doubts_elsewhere(spec.framework for spec in specs if node_jobs.slurm.device(spec) != "cpu")
    return gpu_builds.check_here(specs)


def judge_what_is_there(call: WorkflowCall, inside: Inside, node_jobs: NodeJobs) -> str:
    """Write the report and the verdict of an acceptance as far as there are records; return the last message.

    So a job that failed costs its own figures only.
    """
    jobs = inside.jobs(finished=False)
    _attempt(lambda: page.write_incomplete(Path("results"), cells.read_asked(cells.asked_for(call.specs)), SO_FAR))
    if any(acceptance.RESULT in job.output for job in jobs):
        _attempt(lambda: _write_verdict(inside, node_jobs))
    return plan.failures({str(job.output[0]): str(job.log[0]) for job in jobs if job.log})


def _write_verdict(inside: Inside, node_jobs: NodeJobs) -> None:
    script = loaded(str(inside.root / "workflow/scripts/accept_verdict.py"))
    files = {name: Path(file) for name, file in acceptance.VERDICT.items()}
    script(node_jobs.asked.text, **files, away=json.loads(node_jobs.away))


def _attempt(write: Callable[[], object]) -> None:
    try:
        write()
    except UserError as error:  # it hides no other error
        logger.warning(f"error: {error}")
