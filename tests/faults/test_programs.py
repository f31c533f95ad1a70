"""Programs of somebody else: that crash, hang, print too much or leave processes, with the real agent and runner."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import training_fixtures
from clones import job_counts
from framework_lab import RUN_TRAINING, arguments
from process_helpers import alive, needs, until
from throughline import processes, records
from throughline.records import RunRecord

START = """
import json, os, signal, subprocess, sys, time

def mark(step, at_s=None):
    with open(os.environ["THROUGHLINE_MARKS"], "a") as file:
        print(at_s or time.monotonic(), step, 1, file=file)

def train(steps=10**6, first=0):
    for step in range(first, steps):
        time.sleep(0.01)
        mark(step)

def log(steps=10**6):
    for step in range(steps):
        time.sleep(0.01)
        print(f"step {step} took 10.0 ms", flush=True)

"""
PATTERN = {"timing": {"kind": "pattern", "pattern": r"step (?P<step>\d+) took (?P<ms>[\d.]+) ms"}}


class Measured:
    """run_training.py on a small program, in a process of its own. It has ended when this object is there."""

    def __init__(
        self,
        folder: Path,
        body: str,
        program: dict[str, Any] | None = None,
        places: dict[str, Any] | None = None,
        before: Callable[[], object] | None = None,
        **changes: Any,
    ) -> None:
        (folder / "train.py").write_text(START + body)
        self.spec = training_fixtures.program_spec(
            {"command": [sys.executable, "train.py"]} | (program or {}), **changes
        )
        self.record, self.log_path = folder / self.spec.record, folder / self.spec.log
        limits = {"silent_for": 60.0, "timeout": None}
        given = {"folder": str(folder), "files": [], "python": None, "variables": {}} | limits | (places or {})
        (folder / "temporary").mkdir()
        self.temporary = folder / "temporary"
        call = {"THROUGHLINE_CALL": json.dumps({"programs": {"own": given}}), "TMPDIR": str(self.temporary)}
        command, errors = [*RUN_TRAINING, *arguments(self.spec, folder)], (folder / "errors").open("wb")
        process = subprocess.Popen(command, cwd=folder, env=os.environ | call, stderr=errors, preexec_fn=before)
        self.peak_memory_bytes, started = 0, psutil.Process(process.pid)
        while process.poll() is None:  # ru_maxrss would have the memory of this test's own process before exec
            with contextlib.suppress(psutil.Error):
                each = [one.memory_info().rss for one in [started, *started.children(recursive=True)]]
                self.peak_memory_bytes = max(self.peak_memory_bytes, *each)
            time.sleep(0.02)
        self.status = process.returncode
        self.errors = (folder / "errors").read_text()

    @property
    def log(self) -> str:
        return self.log_path.read_text(encoding="utf-8")

    def result(self) -> RunRecord:
        """Return the record of a run that must have one."""
        assert self.status == 0, self.errors
        return records.read_run(self.record)

    def failed(self) -> str:
        """Return the words of a run that must have failed without a record."""
        assert self.status != 0 and not self.record.exists(), self.log
        assert "outcome: failed; no record" in self.log
        return self.errors


@pytest.fixture
def measured(tmp_path: Path) -> Iterator[Callable[..., Measured]]:
    """Measure a program. No process and no temporary file of a run is left, whatever the program does."""
    runs: list[Measured] = []

    def run(body: str, *arguments: Any, **changes: Any) -> Measured:
        runs.append(Measured(tmp_path, body, *arguments, **changes))
        return runs[-1]

    yield run
    for done in runs:
        assert not list(done.temporary.glob("throughline-*"))
    assert not inside(tmp_path)


def inside(folder: Path) -> list[str]:
    """Return the command lines of all processes that work in a folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (entry / "cwd").readlink() == folder and alive(int(entry.name)):
                found.append(processes.command_line(int(entry.name)).decode())
    return found


def test_the_default_window_lasts_or_ends_with_its_program(measured: Callable[..., Measured]) -> None:
    record = measured("train(120)", steps={"warmup": 3, "timed": 100}).result()
    assert (record.status, record.warmup_steps, record.steps_timed) == ("ok", 3, 116)
    assert record.window_s and record.window_s < 5.0


@pytest.mark.parametrize("body", ["train()", "train(14)"], ids=["goes on", "ends by itself with a full window"])
def test_a_full_window(measured: Callable[..., Measured], body: str) -> None:
    record = measured(body).result()
    assert (record.status, record.steps_timed, record.warmup_steps, record.unit) == ("ok", 10, 3, "steps/s")
    assert record.program and record.program.points.step[:14] == list(range(14))
    assert record.window_s == pytest.approx(record.program.points.at_s[13] - record.program.points.at_s[3])
    assert record.start_up and 0 < record.start_up.first_step_s < record.start_up.total_s < 60


def test_lines_of_a_log_that_are_no_text(measured: Callable[..., Measured]) -> None:
    """Bytes that are no UTF-8, a line without an end, and progress bars do not hide the steps."""
    run = measured(
        "import threading\n"
        "def noise():\n"
        "    while True: os.write(1, b'\\xff\\xfe\\x00 50 %\\r'); os.write(1, b'\\x80\\n'); time.sleep(0.003)\n"
        "threading.Thread(target=noise, daemon=True).start()\n"
        "log()",
        PATTERN,
    )
    record = run.result()
    assert record.status == "ok" and record.program
    assert record.program.points.value[:5] == [10.0] * 5
    assert "�" in run.log


def test_max_total_seconds_shortens_a_run(measured: Callable[..., Measured]) -> None:
    record = measured("train()", steps={"warmup": 10, "timed": 10_000, "max_total_seconds": 1.5}).result()
    assert record.status == "ok" and 10 < record.steps_timed < 200
    assert any(warning.startswith("max_total_seconds 1.5: ") for warning in record.warnings)


FAILURES = {
    "crash": (
        "for line in range(30): print(f'line {line}.', flush=True)\ntrain(5)\nsys.exit(3)", {}, {},
        "ended with exit status 3 4 steps after its first line or mark, and warm-up and window take 13",
    ),
    "signal": ("train(5)\nos.kill(os.getpid(), 11)", {}, {}, "ended with signal 11 4 steps after"),
    "too few steps": ("train(9)", {}, {}, "exit status 0 8 steps after its first line or mark, .* let it train longer"),
    "too short": (
        "train(20)", {"steps": {"warmup": 3, "timed": 10, "min_window_seconds": 9.0}}, {},
        "warm-up and window take 13, and the window 9 s; let it train longer",
    ),
    "no marks": ("print('hello')", {}, {}, r"wrote no mark to the file that \$THROUGHLINE_MARKS names"),
    "hangs after ten steps": ("train(10)\ntime.sleep(600)", {}, {"silent_for": 2.0}, "no progress for 2 s: rank 0 in "),
    "says nothing": ("time.sleep(600)", {}, {"silent_for": 2.0}, "no progress for 2 s: rank 0 in first step"),
    "timeout": ("train()", {"steps": {"warmup": 10**6}}, {"timeout": 1.5}, "it took longer than timeout: 1.5 s"),
    "pattern without a match": (
        "print('loss 3.5')\nprint('Step=1 takes 20.5 ms')\nprint('a step took long')", PATTERN, {},
        r"no line of its output matches step .*the lines that are nearest:\n *a step took long\n",
    ),
    "pattern without a match, and a program that goes on": (
        "while True: print('Step=1 takes 20.5 ms', flush=True); time.sleep(0.1)",
        PATTERN,
        {"silent_for": 12.0},
        r"it ran for 12 s \(silent_for\), and no line of its output matches step .*nearest:\n *Step=1 takes 20.5 ms",
    ),
    "two writers": ("os.fork()\ntrain()", {}, {}, "two processes write marks, or a clock goes back"),
    "time of day": (
        "for step in range(99): mark(step, time.time())", {}, {}, r"write time.monotonic\(\), not the time of",
    ),
    "garbled mark": (
        "open(os.environ['THROUGHLINE_MARKS'], 'ab').write(b'\\xff 1 1\\n')\ntime.sleep(9)", {}, {},
        "a mark is `monotonic_seconds step samples`, and this one is",
    ),
    "no such command": (
        "", {"command": ["no-such-program"]}, {}, "no-such-program cannot be started in .*No such file",
    ),
    "no such folder": ("", {}, {"folder": "/no/folder"}, "cannot be started in .*No such file"),
    "preparation": ("train()", {"prepare": ["false"]}, {}, "`false`, which prepares a run, ended with status 1"),
}  # fmt: skip
"""Name -> the program, what changes in its specification and in its places, and what is said of it."""


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_leaves_a_log_and_no_record(measured: Callable[..., Measured], name: str) -> None:
    body, changes, places, message = FAILURES[name]
    steps = changes.get("steps")
    program = {key: value for key, value in changes.items() if key != "steps"}
    run = measured(body, program, places, **({"steps": steps} if steps else {}))
    said = run.failed()
    assert re.search(message, said, re.DOTALL), said
    if name == "crash":
        shown = [line.strip() for line in said.splitlines() if line.startswith("    line")]
        assert shown == [f"line {line}." for line in range(30 - len(shown), 30)] and len(shown) >= 18
        assert "[rank 0] line 0.\n" in run.log


STUBBORN = """
stubborn = "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); os.setsid(); time.sleep(600)"
"""


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("subprocess.Popen([sys.executable, '-c', stubborn])\ntrain()", "ok"),
        ("subprocess.Popen([sys.executable, '-c', stubborn])\ntrain(5)", "failed"),
        ("signal.signal(signal.SIGTERM, signal.SIG_IGN)\ntrain()", "ok"),
    ],
    ids=["child of a program that goes on", "child that holds the output of a program that has ended", "program"],
)
def test_a_process_that_ignores_sigterm_is_ended(
    measured: Callable[..., Measured], tmp_path: Path, body: str, status: str
) -> None:
    run = measured(STUBBORN + body)
    assert not inside(tmp_path)
    assert run.result().status == "ok" if status == "ok" else "exit status 0 4 steps" in run.failed()


@pytest.mark.parametrize("piece", ["(b'x' * 1023 + b'\\n') * 1024", "b'x' * (1 << 20)"], ids=["lines", "one line"])
def test_a_gigabyte_of_output(measured: Callable[..., Measured], piece: str) -> None:
    run = measured(
        f"piece = {piece}\nfor _ in range(1024): sys.stdout.buffer.write(piece)\nsys.stdout.flush()\ntrain()"
    )
    assert run.result().status == "ok"
    assert run.log_path.stat().st_size < 18 << 20
    assert run.peak_memory_bytes < 250 << 20


def test_the_last_words_after_too_much_output(measured: Callable[..., Measured]) -> None:
    run = measured("print(('x' * 1000 + '\\n') * 20_000)\nprint('the last words')\nsys.exit(1)")
    assert "\n    the last words\n" in run.failed()
    assert "(the log has the first 16 MiB of its output)" in run.log


REFUSAL = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


@pytest.mark.parametrize("program", [{}, PATTERN], ids=["marks", "log"])
def test_out_of_memory_is_a_result(measured: Callable[..., Measured], program: dict[str, Any]) -> None:
    """The message may be far from the end, behind what launchers of ranks print."""
    record = measured(f"print({REFUSAL!r})\nfor _ in range(100): print('at the end')\nsys.exit(1)", program).result()
    assert (record.status, record.reason) == ("oom", f"rank 0: {REFUSAL}")


def test_out_of_memory_that_a_program_survives(measured: Callable[..., Measured]) -> None:
    assert measured(f"print({REFUSAL!r}, flush=True)\ntrain()").result().status == "ok"


def test_memory_above_the_control_groups_limit(measured: Callable[..., Measured], tmp_path: Path) -> None:
    """The system kills the program with SIGKILL, and nothing else says that memory ran out."""
    group = control_group(800 << 20)
    needs(group is not None, "root and a control group for memory")
    try:
        run = measured(
            "train(5)\nheld = bytearray(2 << 30)", before=lambda: (group / "cgroup.procs").write_text(str(os.getpid()))
        )
        record = run.result()
        assert record.status == "oom" and "the system has killed a process of this control group" in str(record.reason)
    finally:
        until(lambda: not (group / "cgroup.procs").read_text(), 20)
        group.rmdir()


def control_group(limit_bytes: int) -> Path | None:
    """Return a new control group with so much memory and no swap; None if none can be made here."""
    groups = dict(line.split(":", 2)[1:] for line in Path("/proc/self/cgroup").read_text().splitlines())
    top = Path(
        "/sys/fs/cgroup/memory" + groups["memory"] if "memory" in groups else "/sys/fs/cgroup" + groups.get("", "")
    )
    group = top / f"throughline-{os.getpid()}"
    names = ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes") if "memory" in groups else ("memory.max",)
    try:
        group.mkdir()
        for name in names:
            if (group / name).exists():
                (group / name).write_text(str(limit_bytes))
        return group if (group / names[0]).exists() else None
    except OSError:
        return None


def test_a_program_for_every_rank(measured: Callable[..., Measured]) -> None:
    names = "RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, THROUGHLINE_MARKS"
    run = measured(
        f"print('given:', *[os.environ.get(name) for name in '{names}'.split(', ')], flush=True)\n"
        "assert int(os.environ['MASTER_PORT']) > 0\n"
        "time.sleep(600) if os.environ['RANK'] == '1' else train()",
        {"start": "rank"},
        topology="1n2g",
    )
    assert run.result().status == "ok"
    assert re.search(r"\[rank 0\] given: 0 0 2 127\.0\.0\.1 \S+marks\n", run.log)
    assert "[rank 1] given: 1 1 2 127.0.0.1 None\n" in run.log


def test_a_rank_that_crashes(measured: Callable[..., Measured]) -> None:
    body = "train() if os.environ['RANK'] == '0' else sys.exit('no memory card')"
    said = measured(body, {"start": "rank"}, topology="1n2g", steps={"warmup": 10**6}).failed()
    assert "rank 1 in " in said and "the program ended with exit status 1" in said and "\n    no memory card" in said


@pytest.mark.parametrize(("start", "times"), [("node", 2), ("job", 1)])
def test_a_program_on_two_nodes(measured: Callable[..., Measured], start: str, times: int) -> None:
    words = ["{node}", "{nodes}", "{devices}", "{world}", "{master}", "{port}", "{hostfile}", "{output}"]
    run = measured(
        "node, *sizes, master, port, hostfile, output = sys.argv[1:]\n"
        "print('node', node, *sizes, master, 'RANK' in os.environ, flush=True)\n"
        "assert int(port) and os.path.isdir(output) and open(hostfile).read() == 'localhost slots=4\\n'\n"
        "train() if node == '0' else time.sleep(600)",
        {"start": start, "command": [sys.executable, "train.py", *words]},
        topology="2n2g",
        hosts="simulated",
    )
    assert run.result().status == "ok"
    said = re.findall(r"\[rank \d\] node (\d) 2 2 4 127\.0\.0\.1 False\n", run.log)
    assert sorted(said) == ["0", "1"][:times]


BENCH = "from throughline.commands import main; main()"


def test_a_killed_bench_goes_on_where_it_was(tmp_path: Path) -> None:
    """Snakemake and bench are killed in the second run. Only the runs that are missing are made afterwards."""
    (tmp_path / "train.py").write_text(START + "train()")
    (tmp_path / "slow.py").write_text(START + "time.sleep(600 * os.path.exists('wait'))\ntrain()")
    words = ["bench", "--repeats=3", "--warmup-steps=3", "--steps=100", "--name=killed"]
    commands = [f"{sys.executable} {name}.py" for name in ("train", "slow")]
    variables = os.environ | {"TMPDIR": str(tmp_path)}

    def call(*words: str) -> subprocess.Popen[str]:
        command, output = [sys.executable, *words], subprocess.PIPE
        return subprocess.Popen(
            command, cwd=tmp_path, env=variables, stdout=output, stderr=subprocess.STDOUT, text=True
        )

    (tmp_path / "wait").touch()
    first = call("-c", BENCH, *words, *commands)
    done = tmp_path / "results/killed/bzprogram_program/train/1n1g/run1.json"
    until(lambda: first.poll() is not None or any("slow.py" in line.split("\0") for line in inside(tmp_path)))
    everything = [first.pid, *processes.descendants(first.pid)]
    for pid in (pid for pid in everything if b"-m\0snakemake\0" in processes.command_line(pid) or pid == first.pid):
        os.kill(pid, signal.SIGKILL)
    said, _ = first.communicate()
    assert done.exists(), said
    until(lambda: not any(alive(pid) for pid in everything), 30)
    before = done.stat().st_mtime_ns
    (tmp_path / "wait").unlink()
    said, _ = call("-c", BENCH, *words, *commands).communicate(timeout=300)
    command = next(line for line in said.splitlines() if line.startswith("snakemake "))
    assert "--unlock" in said
    _, *unlock = [*shlex.split(command), "--unlock"]
    assert call("-m", "snakemake", *unlock).wait(60) == 0
    said, _ = call("-c", BENCH, *words, *commands).communicate(timeout=300)
    assert job_counts(said)["run"] == 5 and done.stat().st_mtime_ns == before, said
    assert re.search(r"^slow and train: |times as fast as", said, re.MULTILINE), said
