"""Turn Snakemake's events into lines for the user and, on a terminal, one progress bar below them."""

import logging
import os
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from statistics import median
from typing import Any, TextIO

from rich.console import Console as Terminal
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column
from snakemake.common import NOTHING_TO_BE_DONE_MSG
from snakemake.logging import logger
from snakemake_interface_logger_plugins.common import LogEvent

from throughline import handover, processes
from throughline.console.plan import Plan, repeated
from throughline.progress import duration
from throughline.records import stored_run
from throughline.report.analysis import baseline
from throughline.spec import RunSpec, cell_name

BAR_EVERY_S, CLUSTER_BAR_EVERY_S, LINE_EVERY_S = 1.0, 15.0, 60.0
"""How often we draw the bar (on a cluster we ask Slurm each time), or print the progress where there is no bar."""
LONG_S = 60.0
"""A job that makes no data and is no run gets its own line if it took longer than this."""
CAUSE_LINES = 8
"""How many lines of a log we show at most. The log has all of them."""
NO_RECORD = "outcome: failed; no record"
"""The line before the error in a run's log."""
SUMMARIES = ("At least one job did not complete successfully", "Exiting because a job execution failed")
"""Snakemake's final summaries of failures. We have already shown each failure when it happened."""


class Console(logging.Handler):
    """Shows those of Snakemake's log records that matter to the user; if `quiet`, only errors.

    It takes the place of `own`, Snakemake's own handler, which it still uses until the workflow starts (for errors of
    the configuration, `--unlock` and `--lint`), and if it fails itself.
    From the plan to the outcome, the output of jobs goes into a file without a name instead of the terminal. The bar
    shows the last line of that file. A job's log has its full output.
    """

    def __init__(self, own: logging.Handler, quiet: bool = False, stream: TextIO | None = None) -> None:
        super().__init__()
        self._own, self._quiet = own, quiet
        self._plan: Plan | None = None
        self._kinds: dict[str, Mapping[str, float]] = {}
        """Map each kind of job to its outputs, and to the seconds or the number of steps that each counts for."""
        self._jobs: dict[int, tuple[str, float]] = {}
        """Map the number of a job that has started, or waits in Slurm's queue, to its first output and its start."""
        self._since: dict[str, float] = {}
        self._done: set[str] = set()
        self._failed: set[str] = set()
        self._shown: set[str] = set()
        self._slurm = ""
        self._began, self._started, self._stopping = time.monotonic(), False, False
        stream = stream or os.fdopen(os.dup(2), "w", encoding="utf-8", errors="replace", buffering=1)
        self._terminal = Terminal(file=stream, highlight=False, emoji=False)
        self._bar: Progress | None = None
        if not quiet and stream.isatty() and os.environ.get("TERM", "dumb") != "dumb":
            rest = Column(no_wrap=True, overflow="ellipsis", ratio=1)
            detail = TextColumn("{task.fields[detail]}", style="dim", markup=False, table_column=rest)
            self._bar = Progress(
                "{task.description}", BarColumn(bar_width=24), "{task.fields[left]}", detail,
                console=self._terminal, auto_refresh=False, transient=True, expand=True,
            )  # fmt: skip
            self._bar.add_task("", total=1.0, left="", detail="")
        self._output, path = tempfile.mkstemp()
        os.unlink(path)
        self._written = 0  # bytes that jobs had written when the last of them ended
        self._streams: dict[int, int] = {}
        self._over = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._started = self._started or getattr(record, "event", None) == LogEvent.WORKFLOW_STARTED
            (self._show if self._started else self._own.handle)(record)
        except Exception:
            self.close()
            logger.removeHandler(self)
            logger.addHandler(self._own)
            self.handleError(record)

    def _show(self, record: Any) -> None:
        text = record.getMessage()
        match getattr(record, "event", None):
            case "plan":
                self.say(text)
                self.open(record.plan)
            case "outcome":
                self.close()
                self.say(f"{text}\n  time: {duration(time.monotonic() - self._began)}")
            case LogEvent.JOB_INFO:
                output, now = _output(record), time.monotonic()
                self._jobs[record.jobid] = output, now
                self._since.setdefault(self._kind(output), now)
            case LogEvent.JOB_FINISHED:
                if job := self._jobs.pop(record.job_id, None):
                    self._finish(*job)
            case LogEvent.JOB_ERROR:
                self._fail(record)
            case LogEvent.GROUP_ERROR:
                for failed in record.job_error_info:
                    self._fail(logging.makeLogRecord(failed))
            case None | LogEvent.ERROR:
                self._hear(record, text)

    def say(self, text: str, style: str | None = None) -> None:
        """Print one or several lines that stay. Errors have the style `red`."""
        if not self._quiet or style == "red":
            self._terminal.print(text, style=style, markup=False, soft_wrap=True)

    def open(self, plan: Plan) -> None:
        """Begin to show the progress."""
        self._plan = plan
        self._kinds = {"data": dict.fromkeys(plan.data, 1.0), "runs": dict.fromkeys(plan.runs, 1.0)}
        self._kinds["node jobs"] = plan.node_jobs.expected_s if plan.node_jobs else {}
        handover.add(progress_s=1.0)  # runs print their progress more often
        for number in (1, 2):
            self._streams[number] = os.dup(number)
            os.dup2(self._output, number)
        if self._bar:
            self._draw(self._bar)
            self._bar.start()
        if not self._quiet:
            threading.Thread(target=self._show_progress, daemon=True).start()

    def close(self) -> None:
        """Remove the bar, and give the terminal back. Printed lines stay."""
        self._over.set()
        if self._bar:
            self._bar.stop()
        while self._streams:
            number, stream = self._streams.popitem()
            os.dup2(stream, number)
            os.close(stream)
        super().close()

    def _show_progress(self) -> None:
        bar_every_s = CLUSTER_BAR_EVERY_S if self._plan and self._plan.cluster else BAR_EVERY_S
        while not self._over.wait(bar_every_s if self._bar else LINE_EVERY_S):
            if self._bar:
                self._draw(self._bar)
            else:
                done, _, left, detail = self.progress()
                self.say("; ".join(filter(None, [done, left, detail])))

    def _draw(self, bar: Progress) -> None:
        done, share, left, detail = self.progress()
        bar.update(bar.task_ids[0], description=done, completed=share, left=left, detail=detail, refresh=True)

    def _hear(self, record: logging.LogRecord, text: str) -> None:
        """Show a text of Snakemake or its executor if it is a warning, an error, or one of the few that matter."""
        shown_by_job = getattr(record, "exception", "") == "RuleException" and "CalledProcessError" in text
        if text.startswith("SLURM run ID: "):
            self._slurm = text.removeprefix("SLURM run ID: ")
        elif text.startswith("Terminating processes on user request"):
            self._stopping = True
            processes.interrupt_group()
            self.say("Stopping: running jobs are being ended.")
        elif text == NOTHING_TO_BE_DONE_MSG or "/snakemake/deployment/" in record.pathname:  # conda, containers
            self.say(text)
        elif record.levelno < logging.WARNING or shown_by_job or any(words in text for words in SUMMARIES):
            pass
        elif text not in self._shown and not self._stopping:  # Slurm's executor repeats some texts for every job
            self._shown.add(text)
            self.say(text, "red" if record.levelno >= logging.ERROR else "yellow")

    def _kind(self, output: str) -> str:
        return next((kind for kind, outputs in self._kinds.items() if output in outputs), "")

    def _finish(self, output: str, since: float) -> None:
        self._done.add(output)
        self._written = os.fstat(self._output).st_size
        if (plan := self._plan) is None:
            return
        seconds, kind = time.monotonic() - since, self._kind(output)
        outputs = self._kinds.get(kind, {}).keys()
        count = f"{len(self._done & outputs):{len(str(len(outputs)))}} of {len(outputs)}"
        if kind == "runs":
            if not plan.cluster:  # on a cluster, the time includes waiting in the queue
                plan.took_s[output] = seconds
            self.say(f"run {count}: {outcome(plan.runs[output], plan)}")
        elif kind == "data":
            if outputs <= self._done:
                self.say(f"data: {count} steps")
        elif kind and plan.node_jobs:
            took = "" if plan.cluster else f" ({duration(seconds)})"
            self.say(f"node job {count}: {plan.node_jobs.names[output]}{took}")
        elif seconds >= LONG_S:
            self.say(f"made: {output} ({duration(seconds)})")

    def _fail(self, record: Any) -> None:
        self._jobs.pop(record.jobid, None)
        if self._stopping:
            return
        output, logs = _output(record) or record.rule_name, list(map(str, record.log))
        self._failed.add(output)
        cause = failure_cause(logs)
        text = "for the same reason as before" if cause in self._shown else cause.replace("\n", "\n  ")
        self._shown.add(cause)
        self.say("\n".join([f"failed: {output}", f"  {text}", *(f"  log:  {log}" for log in logs)]), "red")

    def progress(self) -> tuple[str, float, str, str]:
        """Return the finished work in words, its share from 0 to 1, the time left in words, and what runs now."""
        if (plan := self._plan) is None or self._stopping:
            return "stopping", 0.0, "", ""
        done = [
            f"{kind}: {len(self._done & outputs.keys())} of {len(outputs)}" + " steps" * (kind == "data")
            for kind, outputs in self._kinds.items()
            if outputs.keys() - self._done
        ]
        begun, passed_s = dict(self._jobs.values()), time.monotonic() - self._began
        left_s = None if plan.cluster else self._left_s(plan, begun)
        return (
            ", ".join(done or ["last steps"]) + (f", {len(self._failed)} failed" if self._failed else ""),
            len(self._done) / len(plan.jobs) if left_s is None else passed_s / (passed_s + left_s + 1e-9),
            f"about {duration(left_s)} left" if left_s else "",
            in_queue(self._slurm) if done and plan.cluster else self._now([] if done else begun),
        )

    def _left_s(self, plan: Plan, begun: Mapping[str, float]) -> float | None:
        """Return the estimated seconds that are left, of runs and of the rest at its pace so far. None: unknown."""
        now, over = time.monotonic(), self._done | self._failed
        waiting = [spec for record, spec in plan.runs.items() if record not in over]
        parts = [
            seconds and max(seconds - (now - begun.get(spec.record, now)), 0.0)
            for spec, seconds in zip(waiting, plan.estimates_s(waiting), strict=True)
        ]
        for kind in ("data", "node jobs"):
            left = sum(value for output, value in self._kinds[kind].items() if output not in over)
            done = sum(self._kinds[kind].values()) - left
            if left:
                parts.append((now - self._since[kind]) / done * left if done else None)
        return None if None in parts else sum(filter(None, parts))

    def _now(self, outputs: Iterable[str]) -> str:
        """Return what is being made, and the last line that a job has written since the last one ended."""
        size = os.fstat(self._output).st_size
        text = os.pread(self._output, 500, max(size - 500, self._written)).decode("utf-8", errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return ": ".join(filter(None, [", ".join(outputs), *lines[-1:]]))


def _output(record: Any) -> str:
    return str(next(iter(record.output), ""))


def failure_cause(logs: Iterable[str | Path]) -> str:
    """Return the last error in the first log that has one, with its `why` and `next`.

    Without an error in any log, return the last lines of all logs together.
    """
    lines: list[str] = []
    for log in logs:
        content = log_lines(log)
        begins = [n for n, line in enumerate(content) if line.startswith(("error: ", "outcome: "))]
        if begins and (error := content[begins[-1] + (content[begins[-1]] == NO_RECORD) :]):
            more = takewhile(lambda line: line.startswith("  "), error[1:])
            return "\n".join([error[0].removeprefix("error: "), *more][:CAUSE_LINES])
        lines += content
    return "\n".join(lines[-CAUSE_LINES:]) or "it wrote no log: it was ended before, or never started"


def log_lines(log: str | Path) -> list[str]:
    """Return the lines of a log that are not empty; none without a log."""
    try:
        return [line for line in Path(log).read_text(encoding="utf-8", errors="replace").splitlines() if line]
    except OSError:
        return []


def in_queue(name: str) -> str:
    """Return how many of Slurm's jobs with that name wait and how many run; "" without a name, or without an answer."""
    if not name:
        return ""
    answer = processes.output("squeue", "--noheader", "--name", name, "--format", "%T", timeout_s=10)
    if answer is None:
        return ""
    states = answer.split()
    return f"Slurm: {states.count('PENDING')} queued, {states.count('RUNNING')} running"


def outcome(spec: RunSpec, plan: Plan) -> str:
    """Return the outcome of a run: `bert bz32 fp32 torch 1n2g (repeat 2): 914.2 samples/s, median of 2: 910.0`.

    The median is that of the repeats with the same specification and in the same surroundings, because a summary
    never mixes them.
    """
    where = spec.framework, spec.topology, f"(repeat {spec.repeat})"
    title = cell_name(spec.benchmark, spec.batch, spec.precision, *where)
    speeds: dict[tuple[str, str], list[float]] = {}
    ended, here = "", ("", "")
    for repeat in plan.specs:
        record = stored_run(Path(repeat.record)) if repeated(repeat) == repeated(spec) else None
        if record is None:
            continue
        speed, same = record.samples_per_s, (baseline.surroundings(record), replace(record.spec, repeat=1).canonical)
        if speed:
            speeds.setdefault(same, []).append(speed)
        if repeat.record == spec.record:
            ended, here = f"{speed:.1f} {record.unit}" if speed else f"{record.status}: {record.reason}", same
    alike = speeds.get(here, [])
    return f"{title}: {ended}" + (f", median of {len(alike)}: {median(alike):.1f}" if len(alike) > 1 else "")
