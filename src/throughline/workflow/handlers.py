"""What the handlers of the Snakefile do: check before the first job starts, and judge what is there if jobs failed."""

import atexit
import json
import logging
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from snakemake.logging import logger

from throughline.archive import compare
from throughline.command import loaded
from throughline.console import plan
from throughline.console.plan import Plan
from throughline.files import UserError
from throughline.launch import gpu_builds, lock
from throughline.report.analysis import cells
from throughline.study import acceptance
from throughline.workflow.call import WorkflowCall, or_exit
from throughline.workflow.inside import Inside
from throughline.workflow.node_jobs import NodeJobs


@dataclass(frozen=True)
class Handlers:
    """lines: what is said of topologies and blocks before a plan with runs; began: when this call read its files."""

    call: WorkflowCall
    inside: Inside
    node_jobs: NodeJobs
    lines: Iterable[str]
    began: float = field(default_factory=time.time)

    def rules_are_there(self) -> None:
        """End Snakemake if the user named a target that nothing makes. Let a dry run print the plan."""
        if not self.inside.is_module:
            or_exit(self.call.check_targets, *self.inside.unmade())
        if self.inside.is_dry_run:
            logger.addFilter(self._last_words)

    def _last_words(self, record: logging.LogRecord) -> bool:
        if record.getMessage().startswith("This was a dry-run"):
            made = self.planned()
            logger.info("\n".join([*(self.lines if made.runs else ()), str(made)]))
        return True

    def planned(self) -> Plan:
        """Return what this call of Snakemake makes, also after it has been made. The graph of jobs has to be there."""
        jobs = [list(map(str, job.output)) for job in self.inside.jobs()]
        visits = self.node_jobs.plan({output for outputs in jobs for output in outputs})
        margins = {name: block.margin for name, block in self.call.config.benchmarks.items()}
        targets, submits = self.inside.target_files, self.inside.submits
        return Plan(self.call.specs, jobs, targets, submits, node_jobs=visits, margins=margins)

    def start(self) -> None:
        """Print the plan. End Snakemake if the pending files cannot be made here: it would be noticed after hours."""
        made = self.planned()
        lines = [*(self.lines if made.runs else ()), *or_exit(self._checked, made), str(made)]
        logger.info("\n".join(lines), extra={"event": "plan", "plan": made})
        if made.node_jobs and self.inside.submits:
            self.node_jobs.watch()

    def _checked(self, made: Plan) -> list[str]:
        """Return what is to be said of devices and builds."""
        plan.check_places(made.pending)
        lock.unclaimed(made.pending)
        if "results/compare.json" in made.pending:
            for folder in self.call.config.compare.folders():
                compare.read_folder(folder)
        specs, slurm = list(made.runs.values()), self.node_jobs.slurm
        devices = slurm.reserved_devices(specs)
        if self.inside.is_deployed or self.inside.is_submitted:
            return devices
        if self.inside.submits:
            on_gpus = (spec.framework for spec in specs if slurm.device(spec) != "cpu")
            return [*devices, *gpu_builds.doubts_elsewhere(on_gpus)]
        return [*devices, *gpu_builds.check_here(specs)]

    def success(self) -> None:
        """Print the new medians and where the results are."""
        Path(plan.SO_FAR).unlink(missing_ok=True)
        logger.info(self.planned().outcome(), extra={"event": "outcome"})

    def failure(self) -> None:
        """Write the report and the verdict of an acceptance as far as there are records, and print what failed.

        So a job that failed costs its own figures only.
        """
        _attempt(self.inside.count_finished)
        jobs = self.inside.jobs(finished=False)
        _attempt(self._write_report)
        if any(acceptance.RESULT in job.output for job in jobs):
            _attempt(self._write_verdict)
        failures = plan.failures({str(job.output[0]): str(job.log[0]) for job in jobs if job.log}, since=self.began)
        # Last, after Snakemake's own output, and when the console has given sys.stderr back.
        atexit.register(lambda: print(failures, file=sys.stderr))

    def _write_report(self) -> None:
        from throughline.report.render import page

        asked = cells.read_asked(cells.asked_for(self.call.specs))
        page.write_incomplete(Path("results"), asked, Path(plan.SO_FAR))

    def _write_verdict(self) -> None:
        script = loaded(str(self.inside.root / "workflow/scripts/accept_verdict.py"))
        files = {name: Path(file) for name, file in acceptance.VERDICT.items()}
        script(self.node_jobs.asked.text, **files, away=json.loads(self.node_jobs.away))


def _attempt(write: Callable[[], object]) -> None:
    try:
        write()
    except UserError as error:  # it hides no other error
        logger.warning(f"error: {error}")
