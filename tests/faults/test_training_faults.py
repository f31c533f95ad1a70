"""In a run: with real processes, what counts as a result, what is a failure, and that nothing is left behind."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import h5py
import pytest

import training_fixtures
from framework_lab import RUN_TRAINING, arguments, python
from process_helpers import alive, compiled, until, variable, workers_below
from throughline import files, memory, processes, records
from throughline.files import UserError
from throughline.launch import launcher, supervision
from throughline.launch.request import RunRequest
from throughline.launch.supervision import Watchdog
from throughline.rank import heartbeat

LONG = {"warmup": 2, "timed": 100_000}
OTHERS = ("jax", "paddle", "tensorflow")
"""Frameworks whose libraries have their own collectives and allocators."""
SECONDS = {"warmup": 2, "timed": 100_000, "max_total_seconds": 2.0}
"""Long enough to disturb it."""


@pytest.fixture(autouse=True)
def compiled_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")


def ranks_below(launcher: int) -> dict[int, int]:
    """Map each rank to its process id. A rank that ends meanwhile, as in a run that fails, is left out."""
    pids = {}
    for pid in workers_below(launcher):
        with contextlib.suppress(OSError, StopIteration):
            pids[int(variable(pid, "RANK"))] = pid
    return pids


def phase(rank: int, pid: int) -> str | None:
    """The phase in which a rank stands. None if it has ended."""
    with contextlib.suppress(OSError, StopIteration):
        return heartbeat.read(Path(variable(pid, "THROUGHLINE_NODE"), f"rank_{rank}.beat")).phase
    return None


class Launched:
    """run_training.py in a new process, in its own folder."""

    def __init__(
        self, folder: Path, manifest: Path, *options: str, variables: dict[str, str] | None = None, **changes: Any
    ) -> None:
        self.spec = training_fixtures.spec(**changes)
        self.record, self.log = folder / self.spec.record, folder / self.spec.log
        command = [*RUN_TRAINING, *arguments(self.spec, folder, manifest.relative_to(folder)), *options]
        environment = os.environ | (variables or {})
        self.process = subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True)

    def end(self, status: int) -> str:
        """Wait until the launcher ends with `status`; return its stderr."""
        _, errors = self.process.communicate(timeout=900)
        assert self.process.returncode == status, errors
        return errors

    def workers(self) -> dict[int, int]:
        return ranks_below(self.process.pid)

    def trains(self) -> bool:
        """True if all ranks are there, and in the training."""
        assert self.process.poll() is None, self.log.read_text()
        phases = [phase(rank, pid) for rank, pid in self.workers().items()]
        return phases == ["training"] * self.spec.topology.world


@pytest.fixture
def launched(tmp_path: Path, manifest: Path) -> Iterator[Callable[..., Launched]]:
    runs: list[Launched] = []

    def start(*options: str, **changes: Any) -> Launched:
        runs.append(Launched(tmp_path, manifest, *options, **changes))
        return runs[-1]

    yield start
    for run in runs:
        run.process.kill()
        run.process.communicate()


@pytest.mark.parametrize("framework", ["torch", "mxnet-horovod", "hf-trainer", *OTHERS])
def test_out_of_memory_is_a_result(launched: Callable[..., Launched], framework: str) -> None:
    limit = {"memory_limit_mb": 1500 if framework == "hf-trainer" else 1024}
    run = launched("--python", python(framework), framework=framework, batch=2048, options=limit)
    run.end(0)
    record = records.read_run(run.record)
    assert (record.status, record.samples_per_s) == ("oom", None)
    assert record.reason is not None and record.reason.startswith("rank 0: ")
    assert memory.is_refusal(record.reason), record.reason
    assert "outcome: oom" in run.log.read_text()


def test_one_rank_out_of_memory_makes_the_run_out_of_memory(launched: Callable[..., Launched]) -> None:
    run = launched(topology="1n2g", steps=LONG, model="bert-medium")
    until(lambda: len(run.workers()) == 2)
    first, second = run.workers()[0], run.workers()[1]
    os.kill(first, signal.SIGSTOP)  # so that rank 1 waits for it, with all libraries loaded
    until(lambda: phase(1, second) == "join")
    status = Path(f"/proc/{second}/status").read_text()
    held = next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmData"))
    limit = held + (90 << 20)  # rank 1 can join, but its model needs more memory
    resource.prlimit(second, resource.RLIMIT_DATA, (limit, resource.RLIM_INFINITY))
    os.kill(first, signal.SIGCONT)
    run.end(0)
    record = records.read_run(run.record)
    assert record.status == "oom" and record.reason is not None and record.reason.startswith("rank 1: ")
    assert not alive(first) and not alive(second)


def test_a_rank_that_raises_is_a_failure(launched: Callable[..., Launched], manifest: Path) -> None:
    content = json.loads(manifest.read_text())
    for shard in content["shards"]:
        path = manifest.parent / shard["file"]
        with h5py.File(path, "a") as file:
            del file["masked_lm_ids"]
        shard["sha256"] = files.sha256(path)
    manifest.write_text(json.dumps(content))
    run = launched(topology="1n2g")
    errors = run.end(1)
    assert "has no array masked_lm_ids" in errors and "Traceback" not in errors and run.spec.log in errors
    assert not run.record.exists()
    log = run.log.read_text()
    assert "Traceback" in log and "outcome: failed; no record" in log and "run snakemake again" in log


def test_a_killed_rank_is_a_failure_that_names_it(launched: Callable[..., Launched]) -> None:
    run = launched(topology="1n2g", steps=LONG)
    until(run.trains)
    workers = run.workers()
    os.kill(workers[1], signal.SIGKILL)
    errors = run.end(1)
    assert "rank 1 in training, step " in errors and "signal 9" in errors
    assert not run.record.exists() and run.log.exists()
    assert not any(alive(pid) for pid in workers.values())


@pytest.mark.parametrize("framework", ["torch", *OTHERS])
def test_a_rank_that_stands_still_is_found_with_its_stacks(
    tmp_path: Path, manifest: Path, monkeypatch: pytest.MonkeyPatch, framework: str
) -> None:
    """The watchdog's limit becomes short only when it has seen the ranks train, because a start may take long."""
    dog = Watchdog(300.0, time.monotonic())
    monkeypatch.setattr(supervision, "Watchdog", lambda limit_s, now: dog)
    spec = training_fixtures.spec(framework=framework, topology="1n2g", steps=LONG)
    request = RunRequest(spec, tmp_path / "r.json", tmp_path / "r.log", manifest, python(framework))
    with ThreadPoolExecutor(1) as thread:
        run = thread.submit(launcher.run, request)
        try:
            until(lambda: run.done() or [beat.phase for beat in dog.seen] == ["training"] * 2)
            workers = ranks_below(os.getpid())
            assert len(workers) == 2, request.log.read_text()
            os.kill(workers[1], signal.SIGSTOP)
            dog.limit_s = 3.0  # TensorFlow's own limit is 10 s, that of Paddle's gloo is 30 s
            with pytest.raises(UserError, match=r"no progress for 3 s: rank [01] in training, step \d+ of 100000"):
                run.result(60)
        finally:
            dog.limit_s = 0.0  # the run ends in any case
    assert "most recent call first" in request.log.read_text()
    assert not request.record.exists() and not any(alive(pid) for pid in workers.values())


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_workers_die_with_their_launcher(launched: Callable[..., Launched], number: signal.Signals) -> None:
    run = launched(topology="1n2g", steps=LONG)
    until(run.trains)
    workers = run.workers()
    run.process.send_signal(number)
    run.end(-9 if number == signal.SIGKILL else 1)
    until(lambda: not any(alive(pid) for pid in workers.values()), 10)
    assert not run.record.exists()
    if number == signal.SIGTERM:
        assert "stopped from outside" in run.log.read_text()


@pytest.mark.parametrize("behind_a_shell", [False, True])
def test_the_launcher_dies_with_its_parent(tmp_path: Path, manifest: Path, behind_a_shell: bool) -> None:
    """This also holds if a shell stands between Snakemake and the launcher. The shell does not notice that its parent
    has ended."""
    command = [*RUN_TRAINING, *arguments(training_fixtures.spec(steps=LONG), tmp_path, manifest)]
    started = f"subprocess.Popen({command!r})"
    if behind_a_shell:
        script = shlex.join(command) + " & echo $!; wait $!; true"
        started = f"subprocess.Popen(['bash', '-c', {script!r}])"
    else:
        started = f"print({started}.pid, flush=True)"
    start = f"import subprocess, time; {started}; time.sleep(600)"
    parent = subprocess.Popen(
        [sys.executable, "-c", start, "snakemake"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    launcher = int(parent.stdout.readline())
    until(lambda: bool(workers_below(launcher)))
    started_by_it = [launcher, *processes.descendants(launcher)]
    parent.kill()
    parent.communicate()
    until(lambda: not any(alive(pid) for pid in started_by_it), 20)


def test_a_wrong_shard_is_named_with_its_repair(launched: Callable[..., Launched], manifest: Path) -> None:
    shard = manifest.parent / "training_0001.hdf5"
    raw = bytearray(shard.read_bytes())
    raw[len(raw) // 2] ^= 1
    shard.write_bytes(raw)
    run = launched(batch=40)
    errors = run.end(1)
    assert errors.startswith("error: data/sample/seq32/training_0001.hdf5 was changed")
    assert "snakemake --force data/sample/seq32/training_0001.hdf5" in errors
    assert not run.record.exists()


def test_more_threads_than_cores_are_a_warning(launched: Callable[..., Launched]) -> None:
    cores = len(os.sched_getaffinity(0))
    run = launched(threads=cores + 1)
    run.end(0)
    assert any("share cores" in warning for warning in records.read_run(run.record).warnings)


@pytest.mark.parametrize("room", [6 << 10, 1])
def test_a_disk_that_fills_up_during_a_run(launched: Callable[..., Launched], room: int) -> None:
    """First there is room for the log but not for the record, then for neither."""
    run = launched(steps=SECONDS)
    until(run.trains)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.prlimit(run.process.pid, resource.RLIMIT_FSIZE, (room, hard))  # the limit is only for the launcher
    errors = run.end(1)
    assert "run1.json could not be written: File too large" in errors and "Traceback" not in errors
    assert "make room, and run snakemake again" in errors
    assert {path.name for path in run.record.parent.iterdir()} == {run.log.name}
    log = run.log.read_text()
    assert log.startswith("# again: snakemake --force")
    assert ("outcome: failed; no record" in log) == (room > 1)


def test_a_rank_that_cannot_report_says_why(launched: Callable[..., Launched]) -> None:
    """The rank cannot write its report, as if the temporary folder were full."""
    run = launched(steps=SECONDS)
    until(run.trains)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.prlimit(run.workers()[0], resource.RLIMIT_FSIZE, (1, hard))
    errors = run.end(1)
    assert "rank 0 in end: exit status 1 without a report" in errors and "OSError: [Errno 27] File too large" in errors
    assert not run.record.exists() and "outcome: failed; no record" in run.log.read_text()


SET_BACK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* The system's clock, two hours behind as soon as the file CLOCK_SET_BACK is there; every other clock as it is. */
int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int status = real(clock, now);
    if (clock == CLOCK_REALTIME && access(getenv("CLOCK_SET_BACK"), F_OK) == 0) now->tv_sec -= 7200;
    return status;
}
"""


def test_a_clock_that_is_set_back_changes_no_figure(launched: Callable[..., Launched], tmp_path: Path) -> None:
    library, clock = compiled(tmp_path / "clock.so", SET_BACK, "-ldl"), tmp_path / "set_back"
    run = launched(steps=SECONDS, topology="1n2g", variables={"LD_PRELOAD": str(library), "CLOCK_SET_BACK": str(clock)})
    until(run.trains)
    clock.touch()
    run.end(0)
    record = records.read_run(run.record)
    assert record.ended < record.started  # these two times come from the system's clock
    assert record.status == "ok"
    assert record.window_s == pytest.approx(sum(record.step_seconds), rel=0.1)
