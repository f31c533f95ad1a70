"""Turn Snakemake's events into lines for the user."""

import logging
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from snakemake.common import NOTHING_TO_BE_DONE_MSG
from snakemake_interface_logger_plugins.common import LogEvent

from throughline.console import OUTPUT
from throughline.console.failure_cause import failure_cause
from throughline.console.plan import Plan, span
from throughline.console.screen import Screen, Status
from throughline.files import UserError
from throughline.records import read_run
from throughline.report.analysis import baseline
from throughline.spec import RunSpec

LONG_S = 60.0
"""A job that makes no data and is no run gets its own line if it took longer than this."""
ASK_SLURM_S = 15.0
EXPECTED = ("At least one job did not complete successfully", "Exiting because a job execution failed")
"""Snakemake's final summaries of failures. We have already shown each failure when it happened."""


@dataclass
class StartedJob:
    """A job that has started, or waits in Slurm's queue. `output` is its first output file."""

    output: str
    since: float = field(default_factory=time.monotonic)


class Console:
    """Receives Snakemake's log records, and shows those that matter to the user."""

    def __init__(self, quiet: bool = False) -> None:
        self._plan: Plan | None = None
        self._jobs: dict[int, StartedJob] = {}
        self._done: set[str] = set()
        self._failed: set[str] = set()
        self._expected_s: dict[str, float | None] = {}
        self._data_since: float | None = None
        self._stopping = False
        self._told: set[str] = set()
        self._slurm, self._asked_at, self._queue = "", 0.0, ""
        self._began = time.monotonic()
        self._screen = Screen(self.status, quiet)

    def handle(self, record: logging.LogRecord) -> None:
        """Handle one log record of Snakemake: an event or a text."""
        text = record.getMessage()
        match getattr(record, "event", None):
            case "plan":
                self._plan = record.plan  # type: ignore[attr-defined]
                self._expect(record.plan)  # type: ignore[attr-defined]
                Path(OUTPUT).write_bytes(b"")
                self._screen.say(text)
                self._screen.open()
            case "outcome":
                self._screen.close()
                self._screen.say(f"{text}\n  time: {span(time.monotonic() - self._began)}")
            case LogEvent.JOB_INFO:
                self._start(record)
            case LogEvent.JOB_FINISHED:
                self._finish(record.job_id)  # type: ignore[attr-defined]
            case LogEvent.JOB_ERROR:
                self._fail(record)
            case LogEvent.GROUP_ERROR:
                for job in record.job_error_info:  # type: ignore[attr-defined]
                    self._fail(logging.makeLogRecord(job))
            case None | LogEvent.ERROR:
                self._hear(record, text)

    def close(self) -> None:
        self._screen.close()
        if self._plan:
            Path(OUTPUT).unlink(missing_ok=True)

    def _hear(self, record: logging.LogRecord, text: str) -> None:
        """Show a text of Snakemake or its executor if it is a warning, an error, or one of the few that matter."""
        if text.startswith("SLURM run ID: "):
            self._slurm = text.removeprefix("SLURM run ID: ")
        elif text.startswith("Terminating processes on user request"):
            self._stopping = True
            self._screen.say("Stopping: running jobs are being ended.")
        elif text == NOTHING_TO_BE_DONE_MSG or "/snakemake/deployment/" in record.pathname:  # conda, containers
            self._screen.say(text)
        elif record.levelno >= logging.WARNING and not self._is_told(record, text) and text not in self._told:
            self._told.add(text)  # Slurm's executor repeats some texts for every job
            self._screen.say(text, "red" if record.levelno >= logging.ERROR else "yellow")

    def _is_told(self, record: logging.LogRecord, text: str) -> bool:
        """True if Snakemake says this in addition to a job's own error, which we have already shown."""
        return any(words in text for words in EXPECTED) or (
            getattr(record, "exception", "") == "RuleException" and "CalledProcessError" in text
        )

    def _start(self, record: Any) -> None:
        job = StartedJob(str(next(iter(record.output), "")))
        self._jobs[record.jobid] = job
        if self._is_data(job.output):
            self._data_since = self._data_since or job.since

    def _expect(self, plan: Plan) -> None:
        """Update the estimated seconds of the runs that still have to be made."""
        waiting = [spec for record, spec in plan.runs.items() if record not in self._done | self._failed]
        estimates = zip(waiting, plan.estimates_s(waiting), strict=True)
        self._expected_s = {spec.record: seconds for spec, seconds in estimates}

    def _is_data(self, output: str) -> bool:
        return self._plan is not None and output in self._plan.data

    def _finish(self, number: int) -> None:
        job = self._jobs.pop(number, None)
        if job is None or self._plan is None:
            return
        self._done.add(job.output)
        took_s = time.monotonic() - job.since
        if spec := self._plan.runs.get(job.output):
            if not self._plan.cluster:  # on a cluster, the time includes waiting in the queue
                self._plan.measured_s[job.output] = took_s
                self._expect(self._plan)
            count = f"{len(self._done & self._plan.runs.keys()):{len(str(len(self._plan.runs)))}}"
            self._screen.say(f"run {count} of {len(self._plan.runs)}: {outcome(spec, self._plan)}")
        elif self._is_data(job.output):
            if self._plan.data <= self._done:
                self._screen.say(self._of_data(self._plan))
        elif (visits := self._plan.acceptance) and job.output in visits.to_make:
            visits.took_s[job.output] = took_s
            self._screen.say(f"{visits.words(job.output)} ({span(took_s)})")
        elif took_s >= LONG_S:
            self._screen.say(f"made: {job.output} ({span(took_s)})")

    def _fail(self, record: Any) -> None:
        self._jobs.pop(record.jobid, None)
        if self._stopping:
            return
        output = str(next(iter(record.output), record.rule_name))
        self._failed.add(output)
        self._expected_s.pop(output, None)
        logs = list(map(str, record.log))
        cause = failure_cause(logs)
        text = "for the same reason as before" if cause in self._told else cause.replace("\n", "\n  ")
        self._told.add(cause)
        self._screen.say("\n".join([f"failed: {output}", f"  {text}", *(f"  log:  {log}" for log in logs)]), "red")

    def _of_data(self, plan: Plan) -> str:
        return f"data: {len(self._done & plan.data)} of {len(plan.data)} steps"

    def status(self) -> Status:
        """Return the progress of the workflow. Another thread calls this once a second."""
        plan, jobs = self._plan, list(self._jobs.values())
        if plan is None or self._stopping:
            return Status("stopping" if self._stopping else "", None, "", "")
        done = []
        if plan.data and not plan.data <= self._done:
            done.append(self._of_data(plan))
        if plan.runs and not plan.runs.keys() <= self._done:
            done.append(f"runs: {len(self._done & plan.runs.keys())} of {len(plan.runs)}")
        if plan.acceptance and not plan.acceptance.to_make.keys() <= self._done:
            done.append(f"node jobs: {len(plan.acceptance.took_s)} of {len(plan.acceptance.to_make)}")
        left_s = None if plan.cluster else self._left_s(plan, jobs)
        passed_s = time.monotonic() - self._began
        local = self._last_words() if done else ", ".join(job.output for job in jobs)
        return Status(
            ", ".join(done or ["last steps"]) + (f", {len(self._failed)} failed" if self._failed else ""),
            len(self._done) / len(plan.jobs) if left_s is None else passed_s / (passed_s + left_s + 1e-9),
            f"about {span(left_s)} left" if left_s else "",
            self._ask_slurm() if plan.cluster else local,
        )

    def _left_s(self, plan: Plan, jobs: list[StartedJob]) -> float | None:
        """Return the estimated seconds that are left; None if unknown.

        We assume that runs follow one another, and that the remaining data takes as long per step as the data so far.
        """
        now, data_left = time.monotonic(), plan.data - self._done - self._failed
        total = 0.0
        if data_left:
            finished = len(plan.data) - len(data_left)
            if not finished or self._data_since is None:
                return None
            total += (now - self._data_since) / finished * len(data_left)
        begun = {job.output: job.since for job in jobs}
        for record, seconds in list(self._expected_s.items()):
            if seconds is None:
                return None
            total += max(seconds - (now - begun.get(record, now)), 0.0)
        if plan.acceptance:
            passed_s = {output: now - since for output, since in begun.items()}
            total += plan.acceptance.left_s(self._done | self._failed, passed_s)
        return total

    def _last_words(self) -> str:
        """Return the last line that any job has written; "" without one."""
        with suppress(OSError), Path(OUTPUT).open("rb") as stream:
            stream.seek(max(stream.seek(0, 2) - 500, 0))
            lines = stream.read().decode("utf-8", errors="replace").splitlines()
            return next((line.strip() for line in reversed(lines) if line.strip()), "")
        return ""

    def _ask_slurm(self) -> str:
        if self._slurm and time.monotonic() - self._asked_at >= ASK_SLURM_S:
            self._asked_at = time.monotonic()
            self._queue = in_queue(self._slurm) or self._queue
        return self._queue


def in_queue(name: str) -> str:
    """Return how many of Slurm's jobs with that name wait and how many run, in words; "" if Slurm does not answer."""
    question = ["squeue", "--noheader", "--name", name, "--format", "%T"]
    try:
        answer = subprocess.run(question, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    states = answer.stdout.split()
    return f"Slurm: {states.count('PENDING')} queued, {states.count('RUNNING')} running"


def outcome(spec: RunSpec, plan: Plan) -> str:
    """Return the outcome of a run: `bert bz32 fp32 torch 1n2g (repeat 2): 914.2 samples/s, median of 2: 910.0`.

    The median is that of the repeats in the same surroundings, because a summary never mixes them.
    """
    where = f"{spec.benchmark} bz{spec.batch} {spec.precision} {spec.framework} {spec.topology}"
    speeds: list[tuple[str, float]] = []
    ended, here = "", ""
    for repeat in plan.specs:
        if (repeat.cell, repeat.framework, repeat.topology) != (spec.cell, spec.framework, spec.topology):
            continue
        try:
            record = read_run(repeat.record)
        except (UserError, OSError):
            continue
        speed, surroundings = record.samples_per_s, baseline.surroundings(record)
        if speed:
            speeds.append((surroundings, speed))
        if repeat.record == spec.record:
            ended, here = f"{speed:.1f} {record.unit}" if speed else f"{record.status}: {record.reason}", surroundings
    same = [speed for surroundings, speed in speeds if surroundings == here]
    middle = f", median of {len(same)}: {median(same):.1f}" if len(same) > 1 else ""
    return f"{where} (repeat {spec.repeat}): {ended}{middle}"
