"""Measure one run: start its agents and ranks, supervise them, and make a record from their reports."""

import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from throughline import files, records, temporary, workloads
from throughline.files import UserError, now
from throughline.launch import launchers, lock, outcome
from throughline.launch.job import WHERE, Job, Log, Site, host_names, last_doubts, survey
from throughline.launch.progress import Progress
from throughline.launch.supervision import Agents, Interrupted, interruptible, supervise
from throughline.messages import Order, RankReport
from throughline.observe import environment, telemetry_record, telemetry_window, work
from throughline.observe.telemetry_record import Observation
from throughline.processes import Parent
from throughline.rank.data import Manifest
from throughline.spec import RunSpec
from throughline.study.runs import CONFIGURATION, unpacked

AS_IT_IS = frozenset({"spec", "framework", "packages", "kernel", "driver", "mpi"})
"""The keys of a record whose values are not scrubbed: `scrub` would take a version with four numbers for an address."""


@dataclass(frozen=True)
class Ended:
    """A run whose ranks have ended with a measured outcome: their reports, the site, and the observations.

    data: the identity of the data, None for synthetic data; device and environment: as the record has them.
    """

    reports: dict[int, RankReport]
    order: Order
    site: Site
    observations: list[Observation]
    device: dict[str, Any]
    data: dict[str, Any] | None
    environment: dict[str, Any]
    started: str
    ended: str


@dataclass(frozen=True)
class Turn:
    """The log, progress line and parent of a run while it holds the lock on this machine's devices.

    since: when the run got the lock, on the monotonic clock.
    """

    log: Log
    progress: Progress
    parent: Parent
    since: float

    def conclude(self, outcome: str) -> None:
        self.log.write(f"outcome: {outcome} (the whole run took {time.monotonic() - self.since:.1f} s)")


def run(job: Job) -> dict[str, Any]:
    """Measure a run, write its record, and return it. The outcomes oom, unsupported and invalid give a record too.

    Raise UserError if the run cannot start or does not end by itself. Then the log says why, and there is no record.
    """
    with _turn(job) as turn:
        ended = _attempt(job, turn)
        record = _record(job, ended)
        _write(job, record, ended)
        for warning in record["warnings"]:
            turn.log.write(f"warning: {warning}")
        came_to = f"{record['status']}: {record['reason']}"
        if record["status"] == "ok":
            steps, window = record["steps_timed"], record["window_s"]
            came_to = f"{record['samples_per_s']:.1f} samples/s over {steps} steps in {window:.2f} s"
        turn.conclude(came_to)
        if not job.part_of:
            turn.log.write(f"next: {files.snakemake(job.spec.summary)} makes the medians of all its repeats")
        turn.progress.say(came_to)
        return record


def train(job: Job) -> Ended:
    """Train as `job.convergence` says, without a measurement or a record. Raise UserError as `run` does."""
    with _turn(job) as turn:
        ended = _attempt(job, turn)
        turn.conclude("trained to the end")
        return ended


@contextlib.contextmanager
def _turn(job: Job) -> Iterator[Turn]:
    """Wait for the lock on the devices and hold it. If there will be no record, the end of the log says why."""
    with lock.record(job.record):
        log = Log(job.log)
        try:
            os.environ[files.NODES] = host_names(job.hosts)  # logs and records call them node0, node1, ...
            log.write(f"# again: {files.snakemake('--force', job.target)}")
            if job.command:
                log.write(f"# directly: {job.command}")
            progress = Progress(job.spec)
            with interruptible() as parent, lock.device(job.target, progress.say, parent.is_gone):
                yield Turn(log, progress, parent, time.monotonic())
        except (Interrupted, InterruptedError):
            log.write(
                "outcome: stopped from outside; no record\nnext: run snakemake again, only this run is made again"
            )
            raise UserError(f"{job.target}: stopped from outside", next_step="run snakemake again") from None
        except (UserError, OSError) as error:
            mendable = files.disk_error(error) if isinstance(error, OSError) else None
            log.write(f"outcome: failed; no record\n{mendable or error}")
            raise
        finally:
            log.close()


def _attempt(job: Job, turn: Turn) -> Ended:
    """Survey the nodes, check the data, write the order, and supervise the ranks until they end."""
    started, others = now(), environment.Others()
    where = survey(job)
    manifest = _checked_data(job)
    where.warnings.extend(last_doubts(where, job, others))
    order = _order(job, where)
    for warning in where.warnings:
        turn.log.write(f"warning: {warning}")
    device, place = where.device, WHERE[where.nodes.kind]
    turn.log.write(f"device: {device.kind}, {device.name}; {order.world} ranks on {place}")
    with _work_folder(job, order.shared) as folder:
        if job.lacks:
            reports = {0: RankReport(0, time.time(), "unsupported", job.lacks)}
        else:
            agents = Agents(order, folder, turn.log.write, where.nodes.names)
            reports = supervise(job, agents, turn.progress, turn.parent)
        observations = telemetry_record.observations(order, folder, reports)
    facts = _environment(job.spec, reports, where, observations)
    data = {"content_digest": manifest.content["content_digest"], "rows": manifest.all_rows} if manifest else None
    return Ended(reports, order, where, observations, asdict(device), data, facts, started, now())


def _order(job: Job, where: Site) -> Order:
    topology, spec = job.spec.topology, job.with_content
    return Order(
        spec=spec.values() | ({} if spec.content is None else {"content": spec.content}),
        python=job.python,
        world=topology.world,
        nodes=topology.nodes,
        per_node=topology.devices,
        agents=launchers.agents(job.spec.framework, topology.nodes),
        cores=where.nodes.cores,
        kind=where.device.kind,
        manifest=str(job.manifest.resolve()) if job.manifest and job.spec.options.data != "synthetic" else None,
        variables=where.variables,
        reach=where.nodes.kind,
        hosts=[name.rpartition("@")[2] for name in where.nodes.names],
        shared=where.nodes.elsewhere,
        weights=str(job.weights.resolve()) if job.weights else None,
        workflow=sys.executable,
        telemetry=job.telemetry,
        earlier_gpus=next((one.environment.get("gpus") or [] for one in reversed(where.earlier.values())), []),
        strict=job.strict,
        convergence=job.convergence,
    )


@contextlib.contextmanager
def _work_folder(job: Job, shared: bool) -> Iterator[Path]:
    """Yield the folder with the order for the ranks and their reports.

    If several machines take part, it is beside the record, because all machines have to see it.
    """
    if not shared:
        with temporary.folder() as folder:
            yield folder
        return
    start = f".{job.record.stem}.work."
    for left_over in job.record.parent.glob(f"{start}*"):  # from a run that was killed
        shutil.rmtree(left_over, ignore_errors=True)
    place = job.record.parent.resolve()
    with tempfile.TemporaryDirectory(prefix=start, dir=place, ignore_cleanup_errors=True) as name:
        yield Path(name)


def _checked_data(job: Job) -> Manifest | None:
    """Return the manifest after a check of every shard that this run will read; None for synthetic data."""
    spec = job.spec
    if spec.options.data == "synthetic":
        return None
    if job.manifest is None:
        raise UserError(f"{spec.record} trains on real data, and no manifest was given", next_step="add --manifest")
    workload = workloads.of(spec.model)
    manifest = Manifest.of_run(spec, job.manifest, job.repair)
    manifest.fits(workload, spec.parameters, spec.size.replicas)
    batches = (spec.steps.warmup + spec.steps.timed) * spec.size.accumulate
    read = manifest.used(spec.seed, spec.size.replicas, batches, spec.size.batch_per_replica)
    manifest.check(read, job.repair)
    return manifest


def _environment(
    spec: RunSpec, reports: dict[int, RankReport], where: Site, observations: list[Observation]
) -> dict[str, Any]:
    """Return the record's `environment`."""
    software = reports[0].software if 0 in reports else None
    sampled = observations[0].sampled
    facts = {
        "python": software.python if software else None,
        "framework": software.versions if software else None,
        "packages": software.packages if software else None,
        **where.environment,
        "gpus": sampled.cards or None if sampled else None,
        "variables": environment.variables(dict(os.environ) | where.variables),
    }
    bound = {rank: one.software.bound for rank, one in sorted(reports.items()) if one.software}
    facts["binding"] = environment.binding(bound, facts["variables"], spec.binding)
    facts["digest"] = environment.digest(facts, asdict(where.device))
    cards = sampled.reasons.devices if sampled else []
    return {**facts, "reasons": environment.reasons(facts, where.device.kind, cards)}


def _record(job: Job, ended: Ended) -> dict[str, Any]:
    """Return the validated record of a measured run."""
    order, reports = ended.order, ended.reports
    measured = outcome.assemble(job.spec, reports, order.per_node, every_loss=bool(job.weights))
    software = reports[0].software if 0 in reports else None
    record: dict[str, Any] = {
        "schema": records.SCHEMA,
        "spec": job.spec.values(),
        "unit": f"{workloads.of(job.spec.model).unit}/s",
        **measured.as_record(),
        "device": ended.device,
        "data": ended.data,
        "environment": ended.environment,
        "configuration": unpacked(os.environ.get(CONFIGURATION), job.spec.benchmark),
        "settings": software.settings if software else None,
        "started": ended.started,
        "ended": ended.ended,
        "work": work.of(job.spec, measured.samples_per_s, order.world, ended.device, work.measured(reports)),
    }
    record["warnings"] = ended.site.warnings + record["warnings"]
    record |= telemetry_record.parts(job.spec, order, reports, ended.observations, record)
    records.RunRecord.model_validate(record)
    return record


def _write(job: Job, record: dict[str, Any], ended: Ended) -> None:
    """Write the record and its telemetry: either both or neither."""
    rows = telemetry_window.table((one.node, one.sampled, one.window) for one in ended.observations)
    files.write_json(job.record, files.scrubbed(record, but=AS_IT_IS))
    try:
        files.write_text(job.record.with_suffix(".telemetry.csv"), rows)
    except OSError:
        job.record.unlink(missing_ok=True)
        raise
