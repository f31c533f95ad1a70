"""Have one run's agents start its ranks, watch these, and turn what they report into a record."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import throughline
from throughline import files, records, workloads
from throughline.clock import now
from throughline.files import UserError
from throughline.launch import launchers, lock, machine, nodes, outcome, preflight, watchdog
from throughline.launch.crew import Crew
from throughline.launch.progress import Progress
from throughline.launch.watchdog import Watchdog, place
from throughline.observe import environment, observed, telemetry_window, work
from throughline.processes import Parent, die_with_parent, wait_until
from throughline.rank.data import Manifest
from throughline.study.runs import CONFIGURATION, RunSpec, unpacked
from throughline.topology import Topology

GRACE_S = 10.0
"""How long other ranks may take to end once one has: to find their connection broken, or to report the same."""
WHERE = {
    "here": "this machine",
    "simulated": "simulated nodes of this machine",
    "slurm": "the nodes of this Slurm job",
    "ssh": "the first of runs.hosts",
}
AS_IT_IS = frozenset({"spec", "framework", "packages", "kernel", "driver", "mpi"})
"""What of a record is not scrubbed: versions of four numbers would pass for addresses."""


class Interrupted(Exception):
    """Somebody wants the run to end."""


@dataclass
class Job:
    """One run, as the launcher was asked for it. `command` is what repeats it. With `weights` (an .npz file) it starts
    from these, and the record holds every rank's losses. `telemetry` off is for measuring what it costs. `strict`: what
    would be a warning before the run refuses it. With `convergence` (the order of `convergence.train`) nothing is
    measured, and no record is written. `part_of`: what Snakemake makes of this run and others."""

    spec: RunSpec
    record: Path
    log: Path
    manifest: Path | None = None
    python: str = sys.executable
    repair: str | None = None
    command: str = ""
    hang_after_s: float | None = None
    hosts: Sequence[str] = ()
    weights: Path | None = None
    telemetry: bool = True
    convergence: dict[str, Any] | None = None
    strict: bool = False
    part_of: str | None = None

    @property
    def target(self) -> str:
        """What Snakemake is asked for."""
        return self.part_of or (str(self.record) if self.convergence else self.spec.record)

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
    """The run's log: written at once; every line scrubbed."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("w", encoding="utf-8", buffering=1)
        self._guard = threading.Lock()

    def write(self, text: str) -> None:
        with self._guard, contextlib.suppress(OSError):  # a full disk ends no run before its record is written
            self._file.write(files.scrub(text) + "\n")

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()


def run(job: Job) -> dict[str, Any]:
    """Measure, and write the record; returns it. A measured outcome (oom, unsupported, invalid) is a record as well.

    UserError where the run cannot start or did not end by itself: the log says why, and there is no record.
    """
    with lock.record(job.record):
        log = Log(job.log)
        try:
            return _run(job, log)
        except (Interrupted, InterruptedError):
            log.write(
                "outcome: stopped from outside; no record\nnext: run snakemake again, only this run is made again"
            )
            raise UserError(f"{job.target}: stopped from outside", next_step="run snakemake again") from None
        except UserError as error:
            log.write(f"outcome: failed; no record\n{error}")
            raise
        except OSError as error:
            log.write(f"outcome: failed; no record\n{files.disk_error(error) or error}")
            raise
        finally:
            log.close()


def _run(job: Job, log: Log) -> dict[str, Any]:
    os.environ[files.NODES] = _host_names(job.hosts)  # what is written from here on calls them node0, node1, ...
    log.write(f"# again: snakemake --force {shlex.quote(job.target)}")
    if job.command:
        log.write(f"# directly: {job.command}")
    topology = Topology.parse(job.spec.topology)
    progress = Progress(job.full, job.spec.size.samples_per_step)
    with _interruptible() as parent, lock.device(job.target, progress.say, parent.is_gone):
        return _measure(job, topology, log, progress, parent)


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
    started, clock, others = now(), time.monotonic(), preflight.Others()
    spec, variables = job.full, machine.worker_variables(job.full, Path(throughline.__file__).parents[1])
    where = nodes.find(job.spec, job.hosts)
    os.environ[files.NODES] = variables[files.NODES] = _host_names(where.names)
    if not where.elsewhere:
        variables |= {"GLOO_SOCKET_IFNAME": "lo"}
    everything = dict(os.environ) | variables
    doubts: list[str] = []
    if where.elsewhere:
        found, doubts = nodes.survey(where, _asked(job, topology), job.python, variables)
        seen, cpu, surroundings = found["gpus"], found["cpu"], found["environment"]
    else:
        asked = spec["device"] != "cpu"
        seen = machine.gpus(spec["framework"], job.python, everything) if asked else machine.NO_GPUS
        cpu, surroundings = machine.processor(), environment.describe()
    device = machine.choose(spec, seen, cpu)
    warnings = machine.fits(spec, topology.world if where.kind == "simulated" else topology.devices, device)
    if where.kind == "simulated":
        warnings.append(f"{topology.nodes} nodes simulated on one machine: no network lies between them")
    manifest = _checked_data(job)
    earlier = preflight.siblings(job.record)
    warnings += [*preflight.same_surroundings(surroundings, earlier, job.strict), *doubts]
    if not where.elsewhere:
        ranks = topology.world if where.kind == "simulated" else topology.devices
        warnings += preflight.look(job.record, others, ranks, spec["threads"], cpu["count"], earlier, job.strict)
    for warning in warnings:
        log.write(f"warning: {warning}")
    log.write(f"device: {device['kind']}, {device['name']}; {topology.world} ranks on {WHERE[where.kind]}")

    order = {
        "spec": spec,
        "python": job.python,
        "world": topology.world,
        "nodes": topology.nodes,
        "per_node": topology.devices,
        "kind": device["kind"],
        "manifest": str(job.manifest.resolve()) if manifest and job.manifest else None,
        "variables": variables,
        "reach": where.kind,
        "hosts": [name.rpartition("@")[2] for name in where.names],
        "master": where.master,
        "port": launchers.free_port(),
        "shared": where.elsewhere,
        "weights": str(job.weights.resolve()) if job.weights else None,
        "telemetry": sys.executable if job.telemetry else None,
        "convergence": job.convergence,
        "earlier_gpus": next((one["environment"].get("gpus") or [] for one in reversed(earlier.values())), []),
        "strict": job.strict,
    }
    with _work_folder(job, where.elsewhere) as folder:
        crew = Crew(order, folder, log.write, where.names)
        reports = _supervise(job, crew, topology.world, progress, parent)
        sampled = observed.nodes(order, folder, reports)

    if job.convergence:
        log.write(f"outcome: trained to the end (the whole run took {time.monotonic() - clock:.1f} s)")
        found = _environment(reports, surroundings, everything, device, sampled)
        about = {"device": device, "data": _identity(manifest), "environment": found, "warnings": warnings}
        return {"reports": reports, **about, "started": started, "ended": now()}
    record = {
        "schema": records.SCHEMA,
        "spec": spec,
        "unit": f"{workloads.of(job.spec.model).UNIT}/s",
        **outcome.assemble(spec, reports, topology.devices, topology.world),
        "device": device,
        "data": _identity(manifest),
        "environment": _environment(reports, surroundings, everything, device, sampled),
        "configuration": unpacked(os.environ.get(CONFIGURATION), job.spec.benchmark),
        "settings": reports.get(0, {}).get("settings"),
        "started": started,
        "ended": now(),
    }
    record["work"] = work.of(spec, record["samples_per_s"], topology.world, device, work.measured(reports))
    record["warnings"] = warnings + record["warnings"]
    if job.weights:
        for rank in record["ranks"]:
            rank["loss"] = reports[rank["rank"]]["loss"]
    record |= observed.record(order, reports, sampled, record)
    records.RunRecord.model_validate_json(json.dumps(record, allow_nan=False))
    files.write_json(job.record, files.scrubbed(record, but=AS_IT_IS))
    try:
        files.write_text(job.record.with_suffix(".telemetry.csv"), telemetry_window.table(one[:3] for one in sampled))
    except OSError:  # both or neither
        job.record.unlink(missing_ok=True)
        raise
    _conclude(job, record, time.monotonic() - clock, log, progress)
    return record


def _asked(job: Job, topology: Topology) -> dict[str, Any]:
    """What `training.survey` is asked on every node."""
    return {
        "framework": job.spec.framework,
        "gpus": job.spec.device != "cpu",
        "seen": str(job.log.resolve()),
        "record": str(job.record.resolve()),
        "ranks": topology.devices,
        "threads": job.spec.threads,
        "strict": job.strict,
    }


@contextlib.contextmanager
def _work_folder(job: Job, shared: bool) -> Iterator[Path]:
    """Where the ranks find their order and leave their reports: beside the record where several machines take part."""
    start = f".{job.record.stem}.work."
    if shared:
        for left_over in job.record.parent.glob(f"{start}*"):  # of a run that was killed
            shutil.rmtree(left_over, ignore_errors=True)
    place = (start, job.record.parent.resolve()) if shared else ("throughline-", None)
    with tempfile.TemporaryDirectory(prefix=place[0], dir=place[1], ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _checked_data(job: Job) -> Manifest | None:
    """The manifest, with every shard that this run will read as it should be; None for synthetic data."""
    spec = job.spec
    if spec.options.data == "synthetic":
        return None
    if job.manifest is None:
        raise UserError(f"{spec.record} trains on real data, and no manifest was given", next_step="add --manifest")
    workload = workloads.of(spec.model)
    manifest = Manifest(job.manifest, str(workload.DATA), job.repair)
    manifest.fits(workload, workloads.parameters(job.full), spec.size.replicas)
    rows_per_step = spec.size.batch_per_replica * spec.size.accumulate
    rows = (spec.steps.warmup + spec.steps.timed) * rows_per_step
    manifest.check(manifest.used(spec.seed, spec.size.replicas, rows), job.repair)
    return manifest


def _identity(manifest: Manifest | None) -> dict[str, Any] | None:
    if manifest is None:
        return None
    return {"content_digest": manifest.content["content_digest"], "rows": manifest.content["rows"]}


def _supervise(job: Job, crew: Crew, world: int, progress: Progress, parent: Parent) -> dict[int, dict[str, Any]]:
    """Run the ranks to their end, and nothing of them beyond it; rank -> report. UserError when the run failed."""
    try:
        hang = _watch(job, crew, progress, parent)
        beats, ended, lost, statuses = list(crew.beats), crew.ended.copy(), crew.lost(), crew.statuses()
        if hang:
            crew.write_stacks()
    finally:
        crew.end()
    if crew.refusal:
        raise crew.refusal
    if hang:
        raise _failed(job, hang, "the stacks of all threads are in the log")
    if all(status is not None for status in statuses):  # what they told last
        beats, ended, lost = list(crew.beats), crew.ended.copy(), crew.lost()
    reports = crew.reports(range(world))
    for rank, words in enumerate(crew.last_words):
        refused = outcome.out_of_memory(rank, words) if rank not in reports else None
        if refused:
            reports[rank] = refused
    if found := outcome.failure(reports, ended, world, lost):
        rank, what = found
        spoken = crew.last_words[rank] if rank not in reports else None
        raise _failed(job, f"{place(rank, beats[rank])}: {what}", f"it said last: {spoken[-1]}" if spoken else None)
    return reports


def _watch(job: Job, crew: Crew, progress: Progress, parent: Parent) -> str | None:
    """Wait until all agents have ended, or a rank has ended early; the watchdog's words when they hang."""
    dog = Watchdog(job.limit_s, time.monotonic())
    while not all(status is not None for status in crew.statuses()):
        if crew.has_failed():
            wait_until(lambda: all(status is not None for status in crew.statuses()), GRACE_S)
            return None
        if parent.is_gone():
            raise Interrupted
        beats = list(crew.beats)
        progress.show(beats)
        if hang := dog.look(beats, time.monotonic()):
            return hang
        time.sleep(0.1)
    return None


def _failed(job: Job, what: str, why: str | None) -> UserError:
    return UserError(
        f"{job.target}: {what}",
        why=why,
        next_step=f"read {job.log}; run snakemake again, only this run is made again",
    )


def _environment(
    reports: dict[int, dict[str, Any]],
    surroundings: dict[str, Any],
    variables: dict[str, str],
    device: dict[str, Any],
    sampled: Sequence[observed.Node],
) -> dict[str, Any]:
    first = reports.get(0, {})
    told = sampled[0].told or {}
    found = {
        "python": first.get("python"),
        "framework": first.get("versions"),
        "packages": first.get("packages"),
        **surroundings,
        "gpus": told.get("cards") or None,
        "variables": environment.variables(variables),
    }
    found["digest"] = environment.digest(found, device)
    said = (told.get("reasons") or {}).get("devices") or []
    return {**found, "reasons": environment.reasons(found, device["kind"], said)}


def _conclude(job: Job, record: dict[str, Any], seconds: float, log: Log, progress: Progress) -> None:
    if record["status"] == "ok":
        steps, window = record["steps_timed"], record["window_s"]
        what = f"{record['samples_per_s']:.1f} samples/s over {steps} steps in {window:.2f} s"
    else:
        what = f"{record['status']}: {record['reason']}"
    for warning in record["warnings"]:
        log.write(f"warning: {warning}")
    log.write(f"outcome: {what} (the whole run took {seconds:.1f} s)")
    if not job.part_of:
        log.write(f"next: snakemake {job.spec.summary} makes the medians of all its repeats")
    progress.say(what)


def is_strict(benchmark: str) -> bool:
    """Whether the workflow hands over `runs.strict` for a benchmark, derived or not."""
    return benchmark.split("__")[0] in os.environ.get("THROUGHLINE_STRICT", "").split()


def _host_names(names: Iterable[str]) -> str:
    return " ".join(name.rpartition("@")[2] for name in names)
