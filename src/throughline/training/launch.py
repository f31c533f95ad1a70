"""Start one run's workers, watch them, and turn what they report into a record."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

import throughline
from throughline import files, records
from throughline.files import UserError
from throughline.runs import RunSpec, Topology
from throughline.training import environment, heartbeat, lock, machine, outcome, watchdog
from throughline.training.data import Manifest
from throughline.training.processes import Parent, Worker, die_with_parent, wait_until
from throughline.training.progress import Progress
from throughline.training.watchdog import Watchdog, place

GRACE_S = 10.0
"""How long other ranks may take to end once one has: to find their connection broken, or to report the same."""


class Interrupted(Exception):
    """Somebody wants the run to end."""


@dataclass
class Job:
    """One run, as the launcher was asked for it. `command` is what repeats it."""

    spec: RunSpec
    record: Path
    log: Path
    manifest: Path | None = None
    python: str = sys.executable
    repair: str | None = None
    command: str = ""
    hang_after_s: float | None = None

    @property
    def full(self) -> dict[str, Any]:
        """The specification with its defaults, as JSON values."""
        value: dict[str, Any] = json.loads(self.spec.model_dump_json())
        return value

    @property
    def limit_s(self) -> float:
        compiles = self.spec.options.compile
        return self.hang_after_s or (watchdog.COMPILE_HANG_AFTER_S if compiles else watchdog.HANG_AFTER_S)


class Log:
    """The run's log: written at once; every line scrubbed, paths relative to the working directory."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("w", encoding="utf-8", buffering=1)
        self._guard = threading.Lock()
        self._here = f"{Path.cwd()}{os.sep}"

    def write(self, text: str) -> None:
        with self._guard:
            self._file.write(files.scrub(text.replace(self._here, "")) + "\n")

    def close(self) -> None:
        self._file.close()


def run(job: Job) -> dict[str, Any]:
    """Measure, and write the record; returns it. A measured outcome (oom, unsupported, invalid) is a record as well.

    UserError where the run cannot start or did not end by itself: the log says why, and there is no record.
    """
    log = Log(job.log)
    topology = Topology.parse(job.spec.topology)
    progress = Progress(job.full, topology.world * job.spec.batch_per_device * job.spec.options.accumulate)
    log.write(f"# again: snakemake --force {shlex.quote(job.spec.record)}")
    if job.command:
        log.write(f"# directly: {job.command}")
    try:
        with _interruptible() as parent, lock.device(job.spec.record, progress.say, parent.is_gone):
            record = _measure(job, topology, log, progress, parent)
    except (Interrupted, InterruptedError):
        log.write("outcome: stopped from outside; no record\nnext: run snakemake again, only this run is made again")
        raise UserError(f"{job.spec.record}: stopped from outside", next_step="run snakemake again") from None
    except UserError as error:
        log.write(f"outcome: failed; no record\n{error}")
        raise
    finally:
        log.close()
    return record


@contextlib.contextmanager
def _interruptible() -> Iterator[Parent]:
    """Ctrl-C, SIGTERM and the end of the parent raise Interrupted in the main thread."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Interrupted

    parent = Parent()
    if threading.current_thread() is not threading.main_thread():
        yield parent
        return
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    die_with_parent(os.getppid(), signal.SIGTERM)
    try:
        yield parent
    finally:
        die_with_parent(os.getppid(), 0)
        for number, handler in before.items():
            signal.signal(number, handler)


def _measure(job: Job, topology: Topology, log: Log, progress: Progress, parent: Parent) -> dict[str, Any]:
    started, clock = _now(), time.monotonic()
    spec = job.full
    source = Path(throughline.__file__).parents[1]
    variables = machine.worker_variables(spec, source)
    seen = machine.gpus(spec["framework"], job.python, variables) if spec["device"] != "cpu" else {"count": 0}
    device = machine.choose(spec, seen)
    warnings = machine.fits(spec, topology.nodes, topology.devices, device)
    manifest = _checked_data(job, topology.world)
    for warning in warnings:
        log.write(f"warning: {warning}")
    log.write(f"device: {device['kind']}, {device['name']}; {topology.world} ranks")

    with tempfile.TemporaryDirectory(prefix="throughline-") as folder:
        work = Path(folder)
        order = {
            "spec": spec,
            "world": topology.world,
            "per_node": topology.devices,
            "kind": device["kind"],
            "manifest": str(job.manifest.resolve()) if manifest and job.manifest else None,
            "launcher": os.getpid(),
        }
        (work / "job.json").write_text(json.dumps(order))
        reports = _supervise(job, work, variables, topology, log, progress, parent)

    record = {
        "schema": records.SCHEMA,
        "spec": spec,
        **outcome.assemble(spec, reports, topology.devices, topology.world),
        "device": device,
        "data": _identity(manifest),
        "environment": _environment(reports, variables),
        "started": started,
        "ended": _now(),
    }
    record["warnings"] = warnings + record["warnings"]
    records.RunRecord.model_validate_json(json.dumps(record, allow_nan=False))
    files.write_json(job.record, record)
    _conclude(job, record, time.monotonic() - clock, log, progress)
    return record


def _checked_data(job: Job, world: int) -> Manifest | None:
    """The manifest, with every shard that this run will read as it should be; None for synthetic data."""
    spec = job.spec
    if spec.options.data == "synthetic":
        return None
    if job.manifest is None:
        raise UserError(f"{spec.record} trains on real data, and no manifest was given", next_step="add --manifest")
    manifest = Manifest(job.manifest, job.repair)
    manifest.fits(spec.sequence, spec.predictions, world)
    steps = spec.steps.warmup + spec.steps.timed
    rows = steps * spec.batch_per_device * spec.options.accumulate
    manifest.check(manifest.used(spec.seed, world, rows), job.repair)
    return manifest


def _identity(manifest: Manifest | None) -> dict[str, Any] | None:
    if manifest is None:
        return None
    return {"content_digest": manifest.content["content_digest"], "rows": manifest.content["rows"]}


def _supervise(
    job: Job, work: Path, variables: dict[str, str], topology: Topology, log: Log, progress: Progress, parent: Parent
) -> dict[int, dict[str, Any]]:
    """Run the workers to their end, and nothing of them beyond it; rank -> report. UserError when the run failed."""
    world, workers = topology.world, list[Worker]()
    rendezvous = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port()), "WORLD_SIZE": str(world)}
    if topology.nodes == 1:
        rendezvous |= {"GLOO_SOCKET_IFNAME": "lo"}
    command = [job.python, "-m", "throughline.training.worker", str(work / "job.json")]
    try:
        for rank in range(world):
            own = {"RANK": str(rank), "LOCAL_RANK": str(rank % topology.devices)}
            workers.append(Worker(rank, command, variables | rendezvous | own, log.write))
        hang = _watch(job, work, workers, progress, parent)
        beats = _beats(work, world)
        ended = {worker.rank: status for worker in workers if (status := worker.exit_status()) is not None}
        if hang:
            for worker in workers:
                worker.signal(signal.SIGUSR1)  # the stacks of all its threads, into the log
            time.sleep(1.0)
    finally:
        for worker in workers:
            worker.end()
    if hang:
        raise _failed(job, hang, "the stacks of all threads are in the log")
    reports = _reports(work, world)
    for worker in workers:
        refused = outcome.out_of_memory(worker.rank, worker.last_words) if ended.get(worker.rank) else None
        if refused and worker.rank not in reports:
            reports[worker.rank] = refused
    if found := outcome.failure(reports, ended, world):
        rank, what = found
        raise _failed(job, f"{place(rank, beats[rank])}: {what}", None)
    return reports


def _watch(job: Job, work: Path, workers: list[Worker], progress: Progress, parent: Parent) -> str | None:
    """Wait until all workers have ended, or one has ended early; the watchdog's words when they hang."""
    dog = Watchdog(job.limit_s, time.monotonic())
    while True:
        statuses = [worker.exit_status() for worker in workers]
        beats = _beats(work, len(workers))
        if all(status is not None for status in statuses):
            return None
        early = any(status for status in statuses) or any(
            report["status"] != "ok" for report in _reports(work, len(workers)).values()
        )
        if early:
            wait_until(lambda: all(worker.exit_status() is not None for worker in workers), GRACE_S)
            return None
        if parent.is_gone():
            raise Interrupted
        progress.show(beats)
        if hang := dog.look(beats, time.monotonic()):
            return hang
        time.sleep(0.1)


def _beats(work: Path, world: int) -> list[heartbeat.Beat]:
    return [heartbeat.read(work / f"rank_{rank}.beat") for rank in range(world)]


def _reports(work: Path, world: int) -> dict[int, dict[str, Any]]:
    paths = {rank: work / f"rank_{rank}.json" for rank in range(world)}
    return {rank: json.loads(path.read_text()) for rank, path in paths.items() if path.is_file()}


def _failed(job: Job, what: str, why: str | None) -> UserError:
    return UserError(
        f"{job.spec.record}: {what}",
        why=why,
        next_step=f"read {job.log}; run snakemake again, only this run is made again",
    )


def _environment(reports: dict[int, dict[str, Any]], variables: dict[str, str]) -> dict[str, Any]:
    first = reports.get(0, {})
    return {
        "python": first.get("python"),
        "framework": first.get("versions"),
        **environment.describe(),
        "variables": environment.variables(variables),
    }


def _conclude(job: Job, record: dict[str, Any], seconds: float, log: Log, progress: Progress) -> None:
    if record["status"] == "ok":
        steps, window = record["steps_timed"], record["window_s"]
        what = f"{record['samples_per_s']:.1f} samples/s over {steps} steps in {window:.2f} s"
    else:
        what = f"{record['status']}: {record['reason']}"
    for warning in record["warnings"]:
        log.write(f"warning: {warning}")
    log.write(f"outcome: {what} (the whole run took {seconds:.1f} s)")
    log.write(f"next: snakemake {job.spec.summary} makes the medians of all its repeats")
    progress.say(what)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
