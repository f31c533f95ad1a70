"""Supervise a run's agents and ranks from their start to their end: show their progress, find a run that hangs, and end
all of them."""

import collections
import contextlib
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TextIO

from throughline import files, frameworks, handover, messages
from throughline.files import UserError
from throughline.launch import nodes, outcome
from throughline.launch.request import RunRequest
from throughline.messages import Beat, GpuFault, LaunchPlan, RankReport, Refusal
from throughline.processes import Child, Parent, die_with_parent, wait_until
from throughline.spec import RunSpec, cell_name

GRACE_S = 10.0
"""How long the other ranks may take to end after one has failed. They find a broken connection or fail the same way."""
SILENT_S = 5.0
"""Every agent reports once a second. After this many silent seconds we treat the agent, or its node, as lost."""
LAST_LINES = 20
"""How many lines of a program's output an error shows."""
STACKS_S = 2.0
"""How long the ranks may take to write their stacks."""
SHOW_EVERY_S, TERMINAL_EVERY_S = float(handover.get("progress_s", 15)), 0.5
HANG_AFTER_S = 300.0
COMPILE_HANG_AFTER_S = 1800.0
"""A compiler may need this long for the first step."""

PHASES = (
    "start", "first step", "join", "device", "model", "data", "optimizer", "warm-up", "evaluation", "checkpoint",
    "training", "reading", "end",
)  # fmt: skip
"""The phases of a run in their order.

A rank that waits for another rank may be several phases ahead of it, such as while rank 0 evaluates or writes.
"""
STOP = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(Exception):
    """The run was interrupted from outside."""


class Unfit(UserError):
    """The GPUs of a node are busy or faulty. node: its place among the nodes of the run."""

    def __init__(self, node: int, faults: Sequence[GpuFault]) -> None:
        self.node, self.faults = node, faults
        super().__init__(
            f"the GPUs of node {node} are not fit to be measured: {'; '.join(fault.text for fault in faults)}",
            why="a busy or faulty device gives wrong figures; with runs.strict, a changed limit is a fault as well",
            next_step="end the other processes, put the limits back, or reset the card (nvidia-smi -q shows all of it)",
        )


@contextlib.contextmanager
def interruptible() -> Iterator[Parent]:
    """Raise Interrupted in the main thread on Ctrl-C, SIGTERM, SIGHUP and the end of the parent."""

    def stop(number: int, frame: FrameType | None) -> None:
        for repeated in STOP:  # Ctrl-C and Snakemake may both send one, and cleaning up takes time
            signal.signal(repeated, signal.SIG_IGN)
        raise Interrupted

    parent = Parent()
    if threading.current_thread() is not threading.main_thread():
        yield parent
        return
    before = {number: signal.signal(number, stop) for number in STOP}
    die_with_parent(os.getppid(), signal.SIGTERM)
    try:
        yield parent
    finally:
        die_with_parent(os.getppid(), 0)
        for number, handler in before.items():
            signal.signal(number, handler)


class Progress:
    """Prints a progress line: on a terminal, always the same line; otherwise, a new line from time to time."""

    def __init__(self, spec: RunSpec, stream: TextIO | None = None) -> None:
        where = spec.framework, spec.topology, f"run {spec.repeat}"
        self._title = cell_name(spec.benchmark, spec.batch, spec.precision, *where)
        self._samples, self._unit = spec.size.global_batch, spec.program.unit if spec.program else "samples"
        self._stream = stream or sys.stderr
        self._terminal = self._stream.isatty()
        self._said = time.monotonic()
        self._began: tuple[str, float, int] = ("", 0.0, 0)

    def show(self, beats: list[Beat]) -> None:
        """Print the progress of the slowest rank, if the last line is old enough."""
        now = time.monotonic()
        beat = min(beats, key=lambda beat: beat.step)
        if beat.phase != self._began[0]:
            self._began = (beat.phase, now, beat.step)
        if now - self._said >= (TERMINAL_EVERY_S if self._terminal else SHOW_EVERY_S):
            self._said = now
            self.say(self._line(beat, now), "\r" if self._terminal else "\n")

    def say(self, text: str, end: str = "\n") -> None:
        """Print a line. A line that ends with a line feed stays on the terminal."""
        start = "\x1b[2K" if self._terminal else ""
        print(f"{start}{self._title}: {text}", end=end, file=self._stream, flush=True)

    def _line(self, beat: Beat, now: float) -> str:
        if not beat.steps:
            return beat.phase
        text = ("" if beat.phase == "training" else f"{beat.phase} ") + f"step {beat.step}/{beat.steps}"
        steps, seconds = beat.step - self._began[2], now - self._began[1]
        if steps and seconds:
            left = (beat.steps - beat.step) * seconds / steps
            text += f", {steps * self._samples / seconds:.0f} {self._unit}/s, {left:.0f} s left"
        return text


class Watchdog:
    """Detects hanging runs: no rank has made a step or changed its phase for `limit_s` seconds.

    seen: the progress of every rank at the last look.
    """

    def __init__(self, limit_s: float, now: float) -> None:
        self.limit_s = limit_s
        self._moved, self.seen = now, list[Beat]()

    def look(self, beats: list[Beat], now: float) -> str | None:
        """Return None while any rank progresses; otherwise, a text that says where the slowest rank is."""
        if beats != self.seen:
            self.seen, self._moved = list(beats), now
        if now - self._moved < self.limit_s or not beats:
            return None
        rank = min(range(len(beats)), key=lambda r: (PHASES.index(beats[r].phase), beats[r].step))
        return f"no progress for {self.limit_s:.0f} s: {in_words(rank, beats[rank])}"


def in_words(rank: int, beat: Beat) -> str:
    """Return a rank's progress in words, such as `rank 1 in training, step 5 of 100`."""
    return f"rank {rank} in {beat.phase}" + (f", step {beat.step} of {beat.steps}" if beat.steps else "")


class Agents:
    """The agents of a run and what they have reported.

    beats: the progress of every rank; ended: the exit status of each rank that has ended, in the order of their ends;
    over: the nodes whose agents have sent their last message; no_telemetry: why a node has no figures.
    """

    def __init__(self, plan: LaunchPlan, work: Path, log: Callable[[str], None], names: Sequence[str]) -> None:
        messages.write(plan, work / "launch_plan.json")
        self.plan, self.log, self.work = plan, log, work
        self.beats = [Beat("start", 0, 0)] * plan.world
        self.ended: dict[int, int | None] = {}
        self.heard_at = {node: time.monotonic() for node in range(plan.agents)}
        self.ports: dict[int, list[int]] = {}
        self.over: set[int] = set()
        self.refusal: Refusal | None = None
        self.no_telemetry: dict[int, str] = {}
        self.one_leads = plan.program is not None or frameworks.of(plan.spec["framework"]).starter is not None
        self.last_words = [collections.deque[str](maxlen=40) for _ in range(plan.world)]
        self.processes: list[Child] = []
        self.guard = threading.Lock()  # one thread per process reads its output
        try:
            with self.guard:
                for command in nodes.commands(plan, work / "launch_plan.json", names):
                    self.processes.append(Child(command, dict(os.environ) | plan.variables, self._hear))
        except BaseException:
            self.end()
            raise

    def _hear(self, line: str) -> None:
        if not line.startswith(messages.MARK):
            if spoken := re.match(r"\[rank (\d+)\] ", line):
                self.last_words[int(spoken[1])].append(line[spoken.end() :])
            self.log(line)
            return
        match messages.heard(line):
            case Refusal() as refusal:
                self.refusal = self.refusal or refusal
            case messages.Alive(node, over):
                self.heard_at[node] = time.monotonic()
                if over:
                    self.over.add(node)
                if over and node == 0 and self.one_leads:
                    self._tell(messages.Finish())
            case messages.NoTelemetry(node, reason):
                self.no_telemetry[node] = reason
                self.log(f"node {node}: {reason}")
            case messages.NodeReady(node, ports):
                with self.guard:
                    self.ports[node] = ports
                    if len(self.ports) == self.plan.agents:
                        hosts = self.plan.hosts or ["127.0.0.1"] * self.plan.agents
                        addresses = [f"{host}:{port}" for node, host in enumerate(hosts) for port in self.ports[node]]
                        self._tell(messages.Start(addresses))
            case messages.RankProgress(rank, beat):
                self.beats[rank] = beat
            case messages.RankEnded(rank, status):
                self.ended[rank] = status

    def _tell(self, message: messages.Line) -> None:
        for child in self.processes:
            child.tell(messages.line(message))

    def are_over(self) -> bool:
        """True if all agents have ended, or have sent their last message.

        A call that hangs in a GPU's driver can keep the system from ending the process of an agent.
        """
        said = len(self.over) == self.plan.agents
        return said or all(child.exit_status() is not None for child in self.processes)

    def seen(self) -> tuple[list[Beat], dict[int, int | None], list[int]]:
        """Return the progress of all ranks, the exit status of ended ranks, and the ranks whose node is silent."""
        over, now = self.are_over(), time.monotonic()
        silent = {node for node, last in self.heard_at.items() if over or now - last > SILENT_S} - self.over
        lost = [rank for node in sorted(silent) for rank in self.plan.ranks_of(node)]
        return list(self.beats), self.ended.copy(), lost

    def have_failed(self) -> bool:
        """True if any agent or rank has failed."""
        ended = self.ended.copy()
        if self.refusal or any(child.exit_status() for child in self.processes) or any(ended.values()):
            return True
        return any(report.status != "ok" for report in self.reports(ended).values())

    def reports(self, ranks: Iterable[int]) -> dict[int, RankReport]:
        """Map each of these ranks to the report that it wrote when it ended. Ranks without a report are left out."""
        reports = {}
        for rank in ranks:
            if (path := self.work / f"rank_{rank}.json").is_file():
                report = messages.read(RankReport, path)
                reports[rank] = replace(report, reason=report.reason and files.scrub(report.reason))
        return reports

    def last_lines(self, rank: int) -> str:
        """Return in words the last lines of output of a rank."""
        lines = list(self.last_words[rank])[-LAST_LINES:]
        return "the last lines of its output:" + "".join(f"\n    {line}" for line in lines)

    def write_stacks(self) -> None:
        """Make every rank write the stacks of its threads to the log."""
        self._tell(messages.Stacks())
        time.sleep(STACKS_S)

    def end(self) -> None:
        """End all agents and ranks that still run."""
        for child in self.processes:
            child.let_go()
        for child in self.processes:
            child.end(10.0 if self.plan.distributed else 5.0)


def supervise(request: RunRequest, agents: Agents, progress: Progress, parent: Parent) -> dict[int, RankReport]:
    """Wait for the ranks to end, and map each rank to its report. Raise UserError if the run failed."""
    try:
        hang = _watch(request, agents, progress, parent)
        over, seen = agents.are_over(), agents.seen()
        if hang and not agents.plan.program:
            agents.write_stacks()
    finally:
        agents.end()
    if agents.refusal:
        raise Unfit(agents.refusal.node, agents.refusal.faults)
    ranks, program = agents.plan.processes, request.spec.program
    if hang:
        raise request.failed(hang, agents.last_lines(0) if program else "the stacks of all threads are in the log")
    beats, ended, lost = agents.seen() if over else seen  # if they ended by themselves, with their last messages
    reports = agents.reports(ranks)
    if program and 0 in reports and reports[0].status == "ok":
        return reports  # what happens to the others afterwards is no failure: their first rank is gone
    reports = outcome.with_out_of_memory(reports, ended, agents.last_words)
    if failure := outcome.failure(reports, ended, ranks, lost):
        rank, what = failure
        words = list(agents.last_words[rank])
        last = f"its last output: {outcome.last_word(words)}" if words and rank not in reports else None
        if program and words:
            last = agents.last_lines(rank)
        raise request.failed(f"{in_words(rank, beats[rank])}: {what}", last)
    return reports


def hang_after_s(request: RunRequest, kind: str) -> float:
    """Return after how many seconds without progress a run counts as hanging."""
    if request.spec.program:
        return request.hang_after_s or float(request.of_program["silent_for"])
    asked = frameworks.resolved(request.spec, kind).options.compile
    compiles = asked or frameworks.of(request.spec.framework).compiles
    return request.hang_after_s or (COMPILE_HANG_AFTER_S if compiles else HANG_AFTER_S)


def _watch(request: RunRequest, agents: Agents, progress: Progress, parent: Parent) -> str | None:
    """Wait until all agents have ended or a rank has failed. Return the watchdog's text if the run hangs, else None."""
    dog = Watchdog(hang_after_s(request, agents.plan.kind), time.monotonic())
    while not agents.are_over():
        if agents.have_failed():
            wait_until(agents.are_over, GRACE_S)
            return None
        if parent.is_gone():
            raise Interrupted
        beats = agents.beats[:1] if agents.plan.program else list(agents.beats)
        progress.show(beats)
        if hang := dog.look(beats, time.monotonic()):
            return hang
        time.sleep(0.1)
    return None
