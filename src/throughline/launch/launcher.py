"""Measure one run: start its agents and ranks, supervise them, and make a record from their reports."""

import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from throughline import files, frameworks, handover, records, temporary, workloads
from throughline.files import UserError, now
from throughline.launch import costs, lock, nodes, outcome, program_outcome
from throughline.launch.request import Log, RunRequest, lacks_environment
from throughline.launch.supervision import Agents, Interrupted, Progress, interruptible, supervise
from throughline.launch.survey import IN_WORDS, THREADS, Survey, final_warnings, host_names, survey_nodes
from throughline.messages import LaunchPlan, ProgramPlan, RankReport
from throughline.observe import environment, telemetry_record, telemetry_window, work
from throughline.observe.other_processes import OtherProcesses
from throughline.observe.telemetry_record import Observation
from throughline.processes import Parent
from throughline.rank.data import Manifest
from throughline.spec import RunSpec
from throughline.study.config import block_name
from throughline.study.runs import unpacked

AS_IT_IS = frozenset({"spec", "framework", "packages", "kernel", "driver", "mpi"})
"""The keys of a record whose values are not scrubbed: `scrub` would take a version with four numbers for an address."""


class Stopped(UserError):
    """Somebody or something has ended the run from outside."""


@dataclass(frozen=True)
class FinishedRun:
    """A run whose ranks have ended with a measured outcome: their reports, the survey, and the observations.

    data: the identity of the data, None for synthetic data; environment: as the record has it; began: `time.time()`
    when the run got the lock.
    """

    reports: dict[int, RankReport]
    plan: LaunchPlan
    survey: Survey
    observations: list[Observation]
    data: dict[str, Any] | None
    environment: dict[str, Any]
    started: str
    ended: str
    began: float


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


def run(request: RunRequest) -> dict[str, Any]:
    """Measure a run, write its record, and return it. The outcomes oom, unsupported and invalid give a record too.

    Raise UserError if the run cannot start or does not end by itself. Then the log says why, and there is no record.
    """
    with _turn(request) as turn:
        with _checkpoint_folder(request) as folder:
            request = replace(request, checkpoints=folder)
            ended = _attempt(request, turn)
            restarted = _restarted(request, turn, ended)
        record = _record(request, ended, restarted)
        _write(request, record, ended)
        for warning in record["warnings"]:
            turn.log.write(f"warning: {warning}")
        came_to = f"{record['status']}: {record['reason']}"
        if record["status"] == "ok":
            steps, window = record["steps_timed"], record["window_s"]
            came_to = f"{record['samples_per_s']:.1f} {record['unit']} over {steps} steps in {window:.2f} s"
        turn.conclude(came_to)
        if not request.part_of:
            turn.log.write(f"next: {files.snakemake(request.spec.summary)} makes the medians of all its repeats")
        turn.progress.say(came_to)
        return record


def _restarted(request: RunRequest, turn: Turn, ended: FinishedRun) -> costs.Restart | None:
    """Start new ranks after the killed ones, which make a step from the last checkpoint; None if no rank was killed.

    If that fails, the run counts, and the log and a warning say why there is no restart.
    """
    if not all(report.is_killed for report in ended.reports.values()):
        return None
    turn.log.write("all ranks were killed on purpose; new ones begin again from the last checkpoint")
    began = time.time()
    try:
        again = _attempt(replace(request, restart=True, telemetry=False), turn)
    except UserError as error:
        ended.survey.warnings.append(f"no restart was measured: {error.what}")
        return None
    return began, again.reports


def train(request: RunRequest) -> FinishedRun:
    """Train as `request.convergence` says, without a measurement or a record. Raise UserError as `run` does."""
    with _turn(request) as turn:
        ended = _attempt(request, turn)
        if invalid := outcome.fake_cuda(ended.reports):
            raise UserError(f"{request.target}: {invalid}", next_step="train without the fake driver in front of CUDA")
        turn.conclude("trained to the end")
        return ended


@contextlib.contextmanager
def _turn(request: RunRequest) -> Iterator[Turn]:
    """Wait for the lock on the devices and hold it. If there will be no record, the end of the log says why."""
    with lock.record(request.record):
        log = Log(request.log)
        try:
            os.environ[files.NODES] = host_names(request.hosts)  # logs and records call them node0, node1, ...
            for name in THREADS if request.spec.program else ():  # Snakemake sets them, and a program decides its own
                os.environ.pop(name, None)
            log.write(f"# again: {files.snakemake('--force', request.target)}")
            if request.command:
                log.write(f"# directly: {request.command}")
            progress = Progress(request.spec)
            machines = [name.rpartition("@")[2] for name in request.hosts] if request.side_by_side else None
            with interruptible() as parent, lock.device(request.target, progress.say, parent.is_gone, machines):
                yield Turn(log, progress, parent, time.monotonic())
        except (Interrupted, InterruptedError):
            log.write("outcome: stopped from outside; no record")
            log.write("next: run snakemake again, only this run is made again")
            raise Stopped(f"{request.target}: stopped from outside", next_step="run snakemake again") from None
        except (UserError, OSError) as error:
            fixable = files.disk_error(error) if isinstance(error, OSError) else None
            log.write(f"outcome: failed; no record\n{fixable or error}")
            raise
        finally:
            log.close()


def _attempt(request: RunRequest, turn: Turn) -> FinishedRun:
    """Survey the nodes, check the data, write the plan, and supervise the ranks until they end."""
    started = now()
    others = OtherProcesses()
    survey = survey_nodes(request)
    manifest = _checked_data(request)
    data: dict[str, Any] | None = None
    if manifest:
        data = {"content_digest": manifest.content["content_digest"], "rows": manifest.all_rows}
        data |= {"dumps": manifest.content["dumps"]} if "dumps" in manifest.content else {}
    survey.warnings.extend(final_warnings(survey, data, others))
    plan = _plan(request, survey)
    for warning in survey.warnings:
        turn.log.write(f"warning: {warning}")
    device = survey.device
    turn.log.write(f"device: {device.kind}, {device.name}; {plan.world} ranks on {IN_WORDS[survey.nodes.kind]}")
    with _work_folder(request, plan.distributed) as folder:
        no_telemetry: dict[int, str] = {}
        if lacking := lacks_environment(request.spec, request.python):
            reports = {0: RankReport(0, time.time(), "unsupported", lacking)}
        else:
            agents = Agents(plan, folder, turn.log.write, survey.nodes.names)
            reports = supervise(request, agents, turn.progress, turn.parent)
            reports = program_outcome.with_windows(reports) if request.spec.program else reports
            no_telemetry = agents.no_telemetry
        observations = telemetry_record.observations(plan, folder, reports, no_telemetry)
    if manifest:
        _check_rest(request.spec, manifest, reports)
    facts = _environment(request.spec, reports, survey, observations)
    began = time.time() - (time.monotonic() - turn.since)
    return FinishedRun(reports, plan, survey, observations, data, facts, started, now(), began)


def _plan(request: RunRequest, survey: Survey) -> LaunchPlan:
    topology, spec = request.spec.topology, request.with_content
    manifest = None if spec.options.data == "synthetic" else request.manifest
    program = None
    if spec.program:
        given = {name: request.of_program[name] for name in ("folder", "files", "python", "silent_for", "timeout")}
        program = ProgramPlan(**given, min_window_seconds=spec.steps.shortest_s(survey.device.kind))
    return LaunchPlan(
        spec=spec.values() | ({} if spec.content is None else {"content": spec.content}),
        python=request.python,
        nodes=topology.nodes,
        per_node=topology.devices,
        agents=nodes.agents(request.spec.framework, topology.nodes, survey.nodes.kind),
        cores=survey.nodes.cores,
        kind=survey.device.kind,
        manifest=str(manifest.resolve()) if manifest else None,
        variables=survey.variables,
        reach=survey.nodes.kind,
        hosts=[name.rpartition("@")[2] for name in survey.nodes.names],
        weights=str(request.weights.resolve()) if request.weights else None,
        workflow=sys.executable,
        telemetry=request.telemetry,
        earlier_gpus=next((repeat.environment.get("gpus") or [] for repeat in reversed(survey.earlier.values())), []),
        strict=request.strict,
        convergence=request.convergence,
        updates=str(request.updates.resolve()) if request.updates else None,
        program=program,
        checkpoints=str(request.checkpoints) if request.checkpoints else None,
        restart=request.restart,
    )


@contextlib.contextmanager
def _work_folder(request: RunRequest, distributed: bool) -> Iterator[Path]:
    """Yield the folder with the plan for the ranks and their reports.

    If several machines take part, it is beside the record, because all machines have to see it.
    """
    if not distributed:
        with temporary.folder() as folder:
            yield folder
        return
    start = f".{request.record.stem}.work."
    for left_over in request.record.parent.glob(f"{start}*"):  # from a run that was killed
        shutil.rmtree(left_over, ignore_errors=True)
    beside = request.record.parent.resolve()
    with tempfile.TemporaryDirectory(prefix=start, dir=beside, ignore_cleanup_errors=True) as name:
        yield Path(name)


@contextlib.contextmanager
def _checkpoint_folder(request: RunRequest) -> Iterator[Path | None]:
    """Yield the folder for the checkpoints of a run, in `runs.checkpoints` or beside the record; None if it makes none.

    What a killed run has left there is removed first.
    """
    if not request.spec.options.checkpoint:
        yield None
        return
    chosen = handover.get("checkpoints", {}).get(block_name(request.spec.benchmark))
    parent = Path(chosen or request.record.parent).resolve()
    parent.mkdir(parents=True, exist_ok=True)
    folder = parent / f".{files.digest(str(request.record.resolve()))}.checkpoints"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _checked_data(request: RunRequest) -> Manifest | None:
    """Return the manifest after a check of every shard that this run will read; None for synthetic data."""
    spec = request.spec
    if spec.options.data == "synthetic" or spec.program:
        return None
    if request.manifest is None:
        raise UserError(f"{spec.record} trains on real data, and no manifest was given", next_step="add --manifest")
    workload = workloads.of(spec.model)
    manifest = Manifest.of_run(spec, request.manifest)
    manifest.fits(workload, spec.parameters, spec.size.replicas)
    manifest.check(_shards(spec, manifest, spec.steps.warmup + spec.steps.timed))
    return manifest


def _shards(spec: RunSpec, manifest: Manifest, steps: int) -> list[dict[str, Any]]:
    """Return the shards that any replica reads for so many steps."""
    size = spec.size
    return manifest.used(spec.seed, size.replicas, steps * size.gradient_accumulation, size.batch_per_replica)


def _check_rest(spec: RunSpec, manifest: Manifest, reports: dict[int, RankReport]) -> None:
    """Check the shards that were read for more steps than were asked for, which nobody knew before the run."""
    measured = reports[0].measured if 0 in reports else None
    if measured and measured.min_window_seconds:
        before = _shards(spec, manifest, spec.steps.warmup + spec.steps.timed)
        read = _shards(spec, manifest, measured.warmup_steps + measured.steps_timed)
        manifest.check([shard for shard in read if shard not in before])


def _environment(
    spec: RunSpec, reports: dict[int, RankReport], survey: Survey, observations: list[Observation]
) -> dict[str, Any]:
    """Return the record's `environment`."""
    software = reports[0].software if 0 in reports else None
    sampled = observations[0].sampled
    facts = {
        "python": software.python if software else None,
        "framework": software.versions if software else None,
        "packages": software.packages if software else None,
        **survey.environment,
        "gpus": sampled.cards or None if sampled else None,
        "variables": environment.variables(dict(os.environ) | survey.variables),
    }
    bound = {rank: report.software.bound for rank, report in sorted(reports.items()) if report.software}
    facts["binding"] = environment.binding(bound, facts["variables"], spec.binding)
    if any(report.double_of_cuda for report in reports.values()):
        facts["double_of_cuda"] = True
    facts["digest"] = environment.digest(facts, asdict(survey.device))
    cards = sampled.reasons.devices if sampled else []
    return {**facts, "reasons": environment.reasons(facts, survey.device.kind, cards)}


def _record(request: RunRequest, ended: FinishedRun, restarted: costs.Restart | None) -> dict[str, Any]:
    """Return the validated record of a measured run."""
    plan, reports = ended.plan, ended.reports
    settles = plan.kind != "cpu" and not request.part_of
    measured = (
        program_outcome.assemble(request.spec, reports, settles)
        if request.spec.program
        else outcome.assemble(request.spec, reports, plan.per_node, bool(request.weights), settles)
    )
    software = reports[0].software if 0 in reports else None
    device = asdict(ended.survey.device)
    spec = frameworks.resolved(request.spec, plan.kind)  # FLOPs are those of the tokens that were computed
    record: dict[str, Any] = {
        "schema": records.SCHEMA,
        "spec": request.spec.values(),
        "unit": f"{workloads.unit(request.spec)}/s",
        **measured.as_record(),
        "device": device,
        "data": ended.data,
        "environment": ended.environment,
        "configuration": unpacked(handover.get("configuration"), request.spec.benchmark),
        "settings": software.settings if software else None,
        "started": ended.started,
        "ended": ended.ended,
        "work": work.of(spec, measured.samples_per_s, plan.world, device, work.measured(reports)),
    }
    record["warnings"] = ended.survey.warnings + record["warnings"]
    if request.spec.program:
        record["program"] = program_outcome.part(reports)
    if started := costs.start_up(reports, ended.began):
        record["start_up"] = started
    if checkpoints := costs.checkpoints(reports, restarted):
        record["checkpoints"] = checkpoints
    record |= telemetry_record.parts(request.spec, plan, reports, ended.observations, record)
    records.RunRecord.model_validate(record)
    return record


def _write(request: RunRequest, record: dict[str, Any], ended: FinishedRun) -> None:
    """Write the record and its telemetry: either both or neither."""
    rows = telemetry_window.table((node.node, node.sampled, node.window) for node in ended.observations)
    files.write_json(request.record, files.scrubbed(record, but=AS_IT_IS))
    try:
        files.write_text(request.record.with_suffix(".telemetry.csv"), rows)
    except OSError:
        request.record.unlink(missing_ok=True)
        raise
