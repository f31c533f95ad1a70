"""A run's inputs: what the launcher has to do (Job), the log, and the nodes and device with their warnings (Site)."""

import contextlib
import os
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from throughline import files, recipes, workloads
from throughline.files import UserError
from throughline.launch import machine, nodes
from throughline.launch.nodes import Nodes
from throughline.messages import Device, Question, Training
from throughline.observe import environment
from throughline.records.glance import Glance, siblings
from throughline.spec import RunSpec

WHERE = {
    "here": "this machine",
    "simulated": "simulated nodes of this machine",
    "slurm": "the nodes of this Slurm job",
    "ssh": "the first of runs.hosts",
}


@dataclass
class Job:
    """One run that the launcher has to do.

    command: the command that repeats this run; weights: an .npz file with the weights to start from, which also makes
    the record keep the losses of every rank; telemetry: off to measure what telemetry costs; strict: refuse the run if
    there is any warning before it; convergence: the training of a convergence check, without a measurement or a record;
    part_of: the file that Snakemake makes from this run and other runs.
    """

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
    convergence: Training | None = None
    strict: bool = False
    part_of: str | None = None

    @property
    def target(self) -> str:
        """The file that Snakemake has to make."""
        return self.part_of or (str(self.record) if self.convergence else self.spec.record)

    @property
    def lacks(self) -> str | None:
        """Why this machine cannot build the framework's environment; None if there is an environment to run in."""
        return lacks(self.spec.framework, self.python)

    @property
    def with_content(self) -> RunSpec:
        """The specification with the content of the files that it names by digest, as ranks get it."""
        return replace(self.spec, content=workloads.of(self.spec.model).content(self.spec))

    def failed(self, what: str, why: str | None) -> UserError:
        """Return the UserError for a run that an infrastructure failure ended."""
        return UserError(
            f"{self.target}: {what}",
            why=why,
            next_step=f"read {self.log}; run snakemake again, only this run is made again",
        )


def lacks(framework: str, python: str) -> str | None:
    """Return why a framework has no interpreter of its own, if the workflow gave it none; None if it can run."""
    return recipes.lacking(framework) if python == sys.executable else None


class Log:
    """The run's log. Every line is scrubbed and written immediately."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("w", encoding="utf-8", buffering=1)
        self._guard = threading.Lock()

    def write(self, text: str) -> None:
        with self._guard, contextlib.suppress(OSError):  # if the disk is full, the run continues and writes its record
            self._file.write(files.scrub(text) + "\n")

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()


def is_strict(benchmark: str) -> bool:
    """True if the workflow passes `runs.strict` for a benchmark (derived or not)."""
    return benchmark.split("__")[0] in os.environ.get("THROUGHLINE_STRICT", "").split()


@dataclass(frozen=True)
class Site:
    """The nodes and the device of a run, and what is known about them.

    variables: the environment variables of every rank; environment: the first node's part of the record's environment;
    ranks: the number of ranks on one machine; earlier: records of other repeats of this configuration, oldest first.
    """

    nodes: Nodes
    variables: dict[str, str]
    device: Device
    environment: dict[str, Any]
    ranks: int
    earlier: dict[str, Glance]
    warnings: list[str]


def survey(job: Job) -> Site:
    """Ask every node, and choose the device. Raise UserError if the run cannot take place on these nodes."""
    spec, topology = job.spec, job.spec.topology
    framework, model = spec.framework, spec.model
    if job.lacks:
        framework = "torch"  # in the workflow's own environment, torch can tell which devices there are
    where, earlier = nodes.find(job.spec, job.hosts), siblings(job.record)
    names = os.environ[files.NODES] = host_names(where.names)  # from now on, logs and records say node0, node1, ...
    variables = machine.worker_variables(spec) | {files.NODES: names}
    doubts: list[str] = []
    if where.elsewhere:
        question = Question(
            framework=framework,
            model=model,
            device=spec.device,
            seen=str(job.log.resolve()),
            record=str(job.record.resolve()),
            ranks=topology.devices,
            threads=job.spec.threads,
            strict=job.strict,
            rank_bytes=rank_bytes(earlier),
        )
        answer, doubts = nodes.survey(where, question, job.python, variables)
        gpus, cpu, facts = answer.gpus, answer.cpu, answer.environment
    else:
        variables["GLOO_SOCKET_IFNAME"] = "lo"
        gpus = machine.gpus(framework, job.python, os.environ | variables, spec.device)
        cpu, facts = machine.processor(), environment.describe(framework, model)
    device = machine.choose(spec, gpus, cpu)
    ranks = topology.world if where.kind == "simulated" else topology.devices
    warnings = machine.fits(spec, ranks, device)
    if where.kind == "simulated":
        warnings.append(f"{topology.nodes} nodes simulated on one machine: there is no network between them")
    return Site(where, variables, device, facts, ranks, earlier, [*warnings, *doubts])


def last_doubts(site: Site, job: Job, others: environment.Others) -> list[str]:
    """Return the warnings just before the run. Raise UserError if the run should not start."""
    environments = {name: one.environment for name, one in site.earlier.items()}
    texts = machine.same_surroundings(site.environment, environments, job.strict)
    if not site.nodes.elsewhere:  # other machines have already checked themselves
        texts += machine.look(job.record, others, site.ranks, job.spec.threads, job.strict, rank_bytes(site.earlier))
    return texts


def rank_bytes(earlier: Mapping[str, Glance]) -> int:
    """Return the most memory that a rank of an earlier repeat took on a CPU; 0 if that is not known."""
    return max((one.peak_memory_bytes or 0 for one in earlier.values() if one.device == "cpu"), default=0)


def host_names(names: Iterable[str]) -> str:
    return " ".join(name.rpartition("@")[2] for name in names)
