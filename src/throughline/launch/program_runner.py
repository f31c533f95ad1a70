"""The process beside a measured program: it starts the program, reads its times, and ends it when the window is full.

    python -m throughline.launch.program_runner WORK/launch_plan.json     (rank/ranks.py: variables say which rank)

An agent starts a runner for each node, or for each device (`start: rank`). The runner of rank 0 reads the marks or the
log lines of its program. It writes its report before it ends the program, so that programs on other nodes, which then
lose their connection, are no failure. The other runners wait until their agent ends them.
"""

import math
import os
import re
import selectors
import shlex
import signal
import subprocess
import sys
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Literal, NoReturn

from throughline import frameworks, memory, messages, processes
from throughline.messages import LaunchPlan, Measured, Memory, ProgramRun, RankReport, StartUp
from throughline.messages import Window as Timed
from throughline.observe import environment, program_software
from throughline.programs import timing, words
from throughline.programs.timing import Lines, Point, Unreadable
from throughline.rank import ranks
from throughline.rank.heartbeat import Heart
from throughline.spec import Program, RunSpec
from throughline.spec.program import MARKS

GRACE_S = 10.0
"""How long a program may take to end after SIGTERM."""
LAST_S = 2.0
"""How long we read the output of a program that has ended, if a process that it has left still holds it open."""
LOOK_S = 0.05
LOG_BYTES, LINE_BYTES = 16 << 20, 1 << 16
"""The most of a program's output that the log of the run gets, and the longest line that is read."""
LAST_LINES = 200
"""How many of the last lines may say that memory ran out. What torchrun adds at its end takes dozens."""
NEAREST = 3
"""How many lines an error shows that look most like a line of a step."""
LEAST_STEPS = 3
"""The fewest timed steps of a run that `max_total_seconds` ends."""
NO_MEMORY = {
    "needed_bytes": "a program of somebody else does not say what it needed",
    "reserved_bytes": "a program of somebody else does not say what it reserved",
}


class Ended(Exception):
    """The run is over. status and reason: of the report."""

    def __init__(self, status: Literal["ok", "oom", "failed"], reason: str | None = None) -> None:
        self.status, self.reason = status, reason


class Runner:
    def __init__(self, path: Path, plan: LaunchPlan, rank: int) -> None:
        assert plan.program
        self.plan, self.rank, self.work, self.ours = plan, rank, path.parent, plan.program
        self.spec: RunSpec = frameworks.specification(plan.spec)
        assert self.spec.program
        self.program: Program = self.spec.program
        self.heart = Heart(ranks.folder(self.work, plan.agent_of(rank)) / f"rank_{rank}.beat")
        self.output = self.work / "output"
        self.output.mkdir(exist_ok=True)
        self.marks = self.output / "throughline_marks"
        self.lines = Lines(self.program) if self.program.timing.group else None
        self.points: list[Point] = []
        self.window: tuple[int, int] | None = None
        """The first and last point of the window, when it is full."""
        self.last_lines: deque[str] = deque(maxlen=LAST_LINES)
        self.looked_like: deque[str] = deque(maxlen=1000)
        self.rest, self.phase = b"", ""
        self.said = self.passed_on = 0
        self.killed_before = environment.oom_kills()
        self.child: subprocess.Popen[bytes] | None = None
        self.began = math.nan
        self.times = rank == 0
        """True if this runner reads the times of the steps."""

    def run(self) -> RankReport:
        """Run the program, and return the report."""
        try:
            if self.program.start == "job" and self.rank:  # the program starts on the first node only
                signal.pause()
            if self.times and self.program.prepare:
                self.prepare()
            self.start()
            self.listen()
        except Ended as ended:
            return self.report(ended.status, ended.reason)
        except (OSError, Unreadable) as error:
            return self.report("failed", str(error))

    def prepare(self) -> None:
        command, folder = self.filled(self.program.prepare or ()), self.ours.folder
        done = subprocess.run(command, cwd=folder, env=self.environment(), stdin=subprocess.DEVNULL, check=False)
        if done.returncode:
            raise Ended("failed", f"`{shlex.join(command)}`, which prepares a run, ended with status {done.returncode}")

    def start(self) -> None:
        command = self.filled(self.program.command)
        print(f"starts: {shlex.join(command)}", flush=True)
        self.began = time.monotonic()
        try:
            self.child = subprocess.Popen(
                command,
                cwd=self.ours.folder,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            what = f"{command[0]} cannot be started in {self.ours.folder}: {error.strerror}"
            raise Ended("failed", what) from None
        if self.times:
            self.enter("first step", 0, 0)

    def filled(self, command: tuple[str, ...]) -> list[str]:
        """Return a command with the values of its placeholders."""
        spec, topology = self.spec, self.spec.topology
        host, _, port = os.environ["RANK_ADDRESSES"].partition(",")[0].rpartition(":")
        hosts = self.plan.hosts or ["localhost"]
        each = topology.devices if self.plan.hosts else topology.world
        hostfile = self.output / "hostfile"
        hostfile.write_text("".join(f"{name} slots={each}\n" for name in hosts))
        values = words.of_run(spec) | {
            "node": self.rank // topology.devices, "master": host, "port": port, "hostfile": hostfile,
            "output": self.output,
        }  # fmt: skip
        return [words.filled(word, values) for word in command]

    def environment(self) -> dict[str, str]:
        """Return the variables of the program: ours say its rank only if it starts once for every rank."""
        kept = {*ranks.OURS, "MASTER_ADDR", "MASTER_PORT"} if self.program.start == "rank" else set()
        ours = {*ranks.NAMES, "MASTER_ADDR", "MASTER_PORT", "RANK_ADDRESSES", ranks.NODE_FOLDER} - kept
        given = {name: value for name, value in os.environ.items() if name not in ours}
        if self.times and self.lines is None:
            self.marks.touch()
            given[MARKS] = str(self.marks)
        return given

    def listen(self) -> NoReturn:
        """Read the output and the marks of the program until the run is over. Raise Ended."""
        assert self.child and self.child.stdout
        began, marked = time.monotonic(), _Marks(self.marks) if self.times and not self.lines else None
        is_open, end_s = True, math.inf
        with selectors.DefaultSelector() as selector:
            selector.register(self.child.stdout, selectors.EVENT_READ)
            while True:
                has_ended = self.child.poll() is not None  # asked first, so that its last words are read below
                if has_ended:
                    end_s = min(end_s, time.monotonic())
                if not is_open:
                    time.sleep(LOOK_S)
                elif selector.select(LOOK_S):
                    is_open = self.read(os.read(self.child.stdout.fileno(), 1 << 18))
                for line in marked.new() if marked else ():
                    timing.added(self.points, timing.mark(line, time.monotonic()), True)
                if self.times:
                    self.look()
                if has_ended and (not is_open or time.monotonic() - end_s > LAST_S):
                    self.ended(self.child.returncode)
                ran_s, silent_s, timeout_s = time.monotonic() - began, self.ours.silent_for, self.ours.timeout
                if self.times and self.said and not self.points and ran_s > silent_s:
                    raise Ended("failed", f"it ran for {silent_s:g} s (silent_for), and {self.nothing_found()}")
                if timeout_s and ran_s > timeout_s:
                    raise Ended("failed", f"it took longer than timeout: {timeout_s:g} s")

    def read(self, text: bytes) -> bool:
        """Take the lines of a piece of output. Return False at its end, which is an empty piece."""
        at_s, lines = time.monotonic(), (self.rest + text).splitlines()
        self.rest = lines.pop()[:LINE_BYTES] if text[-1:] not in (b"", b"\n", b"\r") else b""
        self.said += 1
        if not self.points:
            self.heart.step(self.said)  # a program that compiles or reads data still says something
        for line in filter(None, lines):
            self.hear(line[:LINE_BYTES].decode("utf-8", "replace").rstrip(), at_s)
        return bool(text)

    def hear(self, line: str, at_s: float) -> None:
        """Pass a line on to the log, and look for the time of a step in it."""
        if self.passed_on <= LOG_BYTES:
            self.passed_on += len(line) + 1
            over = self.passed_on > LOG_BYTES
            print(f"(the log has the first {LOG_BYTES >> 20} MiB of its output)" if over else line, flush=True)
        self.last_lines.append(line)
        if self.times and self.lines:
            if point := self.lines.point(line, at_s):
                timing.added(self.points, point, False)
            elif line:
                self.looked_like.append(line)

    def look(self) -> None:
        """Tell the progress. Raise Ended if the window is full."""
        if not self.points:
            return
        steps, done = self.spec.steps, self.points[-1].step - self.points[0].step
        found = timing.bounds(self.points, steps.warmup, steps.timed, self.ours.min_window_seconds)
        if found is None:
            self.enter("warm-up", done, steps.warmup)
        else:
            first, last = self.points[found[0]], self.points[-1]
            done, elapsed_s = last.step - first.step, last.at_s - first.at_s
            fill = math.ceil(done * self.ours.min_window_seconds / elapsed_s) if elapsed_s else 0
            self.enter("training", done, max(steps.timed, fill))
            if found[1] is not None:
                self.window = found[0], found[1]
        most = steps.max_total_seconds
        if not self.window and most and self.points[-1].at_s - self.points[0].at_s > most:
            self.window = timing.shortened(self.points, steps, LEAST_STEPS)
        if self.window:
            raise Ended("ok")

    def enter(self, phase: str, done: int, steps: int) -> None:
        if self.phase != phase:
            self.phase = phase
            self.heart.phase(phase, steps)
        self.heart.expect(steps)
        self.heart.step(done)

    def ended(self, status: int) -> NoReturn:
        """Raise Ended: the program has ended by itself before the window was full."""
        if status and (refused := next((line for line in self.last_lines if memory.is_refusal(line)), None)):
            raise Ended("oom", refused)
        if status and environment.oom_kills() > self.killed_before:
            raise Ended("oom", "the system has killed a process of this control group, because memory ran out")
        how = f"signal {-status}" if status < 0 else f"exit status {status}"
        if not self.times:
            if status:
                raise Ended("failed", f"the program ended with {how}")
            self.child = None
            signal.pause()
        if self.points:
            done, steps = self.points[-1].step - self.points[0].step, self.spec.steps
            found = timing.bounds(self.points, steps.warmup, steps.timed)
            if not status and steps.min_window_seconds is None and found and found[1] is not None:
                self.window = found[0], len(self.points) - 1  # a warning says if it is too short for its device
                raise Ended("ok")
            more = "" if status else "; let it train longer ({steps} in its command), or ask for fewer steps"
            least = f", and the window {steps.min_window_seconds:g} s" if steps.min_window_seconds else ""
            raise Ended(
                "failed",
                f"the program ended with {how} {done} steps after its first line or mark, and warm-up and window take "
                f"{steps.warmup + steps.timed}{least}{more}",
            )
        raise Ended("failed", f"the program ended with {how}, and {self.nothing_found()}")

    def nothing_found(self) -> str:
        """Return in words that no step was seen, with the lines that look most like one."""
        if self.lines is None:
            return f"it wrote no mark to the file that ${MARKS} names"
        pattern = self.program.timing.pattern or ""
        literal = set(re.findall(r"[A-Za-z]{3,}", re.sub(r"\(\?P<\w+>|\\\w", "", pattern)))
        near = sorted(self.looked_like, key=lambda line: -sum(word in line for word in literal))[:NEAREST]
        lines = "".join(f"\n    {line[:200]}" for line in near)
        return f"no line of its output matches {pattern}" + (f"; the lines that are nearest:{lines}" if near else "")

    def report(self, status: Literal["ok", "oom", "failed"], reason: str | None) -> RankReport:
        if status != "ok" and self.passed_on > LOG_BYTES:
            print("(these are its last lines)", *list(self.last_lines)[-20:], sep="\n", flush=True)
        measured = self.measured() if status == "ok" and self.times else None
        run = ProgramRun(
            points=timing.columns(self.points),
            clock_s=time.time() - time.monotonic(),
            command=self.filled(self.program.command) if self.times else [],
        )
        software = program_software.of(self.spec, self.ours) if self.times else None
        return RankReport(self.rank, time.time(), status, reason, measured, None, software, program=run)

    def measured(self) -> Measured:
        assert self.window
        first, last = self.window
        window = timing.window(self.program, self.points, first, last, self.spec.topology.world)
        return Measured(
            window=Timed(self.points[first].at_s, self.points[first].at_s + window.seconds),
            step_seconds=window.step_seconds,
            warmup_steps=self.points[first].step - self.points[0].step,
            steps_timed=self.points[last].step - self.points[first].step,
            cpu_seconds=0.0,
            memory=Memory(None, None, NO_MEMORY),
            work_reasons={"matmul_flops_per_s": "no matrix product is measured beside a program"},
            loss=timing.losses(self.points, first, last),
            min_window_seconds=self.ours.min_window_seconds,
            start_up=StartUp(
                began=time.time() - (time.monotonic() - self.began),
                seconds={"first_step": self.points[0].at_s - self.began},
            ),
        )

    def end(self) -> None:
        """End the program and all processes of its session."""
        if self.child is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self.child.pid, signal.SIGTERM)
        deadline = time.monotonic() + GRACE_S
        while time.monotonic() < deadline and processes.descendants(os.getpid()):
            self.child.poll()
            time.sleep(LOOK_S)
        for pid in processes.descendants(os.getpid()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


class _Marks:
    """The lines that a program appends to the file of its marks."""

    def __init__(self, path: Path) -> None:
        self.file, self.rest = path.open(errors="replace"), ""

    def new(self) -> list[str]:
        """Return the complete lines since the last call."""
        *lines, self.rest = (self.rest + self.file.read()).split("\n")
        return lines


def main() -> int:
    processes.adopt_orphans()
    path = Path(sys.argv[1])
    runner = Runner(path, messages.read(LaunchPlan, path), ranks.read_place(os.environ)[0])

    def stop(number: int, frame: object) -> None:
        raise Ended("failed", "it was ended from outside") if runner.times else Ended("ok")

    signal.signal(signal.SIGTERM, stop)
    processes.die_with_parent(os.getppid(), signal.SIGTERM)  # so it still ends the program if its agent is killed
    report = runner.run()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    messages.write(report, runner.work / f"rank_{runner.rank}.json")
    runner.heart.phase("end")
    runner.end()
    return int(report.status == "failed")


if __name__ == "__main__":
    sys.exit(main())
