"""One run: what the launcher was asked for, its log, and its site: nodes, device, what is doubtful about them."""

import contextlib
import json
import os
import sys
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import throughline
from throughline import files, recipes, workloads
from throughline.files import UserError
from throughline.launch import machine, nodes
from throughline.launch.nodes import Nodes
from throughline.messages import Device, Question, Training
from throughline.observe import environment
from throughline.study.runs import RunSpec
from throughline.topology import Topology

WHERE = {
    "here": "this machine",
    "simulated": "simulated nodes of this machine",
    "slurm": "the nodes of this Slurm job",
    "ssh": "the first of runs.hosts",
}


@dataclass
class Job:
    """One run. `command` is what repeats it. With `weights` (an .npz file) it starts from these, and the record holds
    every rank's losses. `telemetry` off is for measuring what it costs. `strict`: what would be a warning before the
    run refuses it. With `convergence` nothing is measured, and no record is written. `part_of`: what Snakemake makes
    of this run and others."""

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
        """What Snakemake is asked for."""
        return self.part_of or (str(self.record) if self.convergence else self.spec.record)

    @property
    def lacks(self) -> str | None:
        """Why this machine cannot have the framework's environment; None where there is one to run in."""
        return lacks(self.spec.framework, self.python)

    @property
    def full(self) -> dict[str, Any]:
        """The specification with its defaults, as JSON values."""
        value: dict[str, Any] = json.loads(self.spec.model_dump_json())
        return value

    @property
    def handed(self) -> dict[str, Any]:
        """The same with what ranks are told beside it, from files that it names by their digests."""
        return workloads.handed(self.full)

    def failed(self, what: str, why: str | None) -> UserError:
        """The run's end by an infrastructure failure."""
        return UserError(
            f"{self.target}: {what}",
            why=why,
            next_step=f"read {self.log}; run snakemake again, only this run is made again",
        )


def lacks(framework: str, python: str) -> str | None:
    """Why a framework that was handed no interpreter of its own has none; None where it can run in this one."""
    return recipes.lacking(framework) if python == sys.executable else None


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


def is_strict(benchmark: str) -> bool:
    """Whether the workflow hands over `runs.strict` for a benchmark, derived or not."""
    return benchmark.split("__")[0] in os.environ.get("THROUGHLINE_STRICT", "").split()


@dataclass(frozen=True)
class Site:
    """environment: the first node's part of the record's; variables: what every rank finds in its environment; ranks:
    how many share a machine; earlier: records of this configuration's other repeats, the oldest first."""

    nodes: Nodes
    variables: dict[str, str]
    device: Device
    environment: dict[str, Any]
    ranks: int
    earlier: dict[str, dict[str, Any]]
    warnings: list[str]


def survey(job: Job) -> Site:
    """Look at every node, and choose the device. UserError where this run does not fit."""
    topology, spec = Topology.parse(job.spec.topology), job.full
    framework, model, wants_gpus = job.spec.framework, job.spec.model, job.spec.device != "cpu"
    if job.lacks:
        framework = "torch"  # what the workflow's own Python can ask for the devices
    where = nodes.find(job.spec, job.hosts)
    names = os.environ[files.NODES] = host_names(where.names)  # from here on, node0, node1, ... in all that is written
    variables = machine.worker_variables(spec, Path(throughline.__file__).parents[1]) | {files.NODES: names}
    doubts: list[str] = []
    if where.elsewhere:
        question = Question(
            framework=framework,
            model=model,
            gpus=wants_gpus,
            seen=str(job.log.resolve()),
            record=str(job.record.resolve()),
            ranks=topology.devices,
            threads=job.spec.threads,
            strict=job.strict,
        )
        answer, doubts = nodes.survey(where, question, job.python, variables)
        gpus, cpu, facts = answer.gpus, answer.cpu, answer.environment
    else:
        variables["GLOO_SOCKET_IFNAME"] = "lo"
        gpus = machine.gpus(framework, job.python, os.environ | variables) if wants_gpus else machine.NO_GPUS
        cpu, facts = machine.processor(), environment.describe(framework, model)
    device = machine.choose(spec, gpus, cpu)
    ranks = topology.world if where.kind == "simulated" else topology.devices
    warnings = machine.fits(spec, ranks, device)
    if where.kind == "simulated":
        warnings.append(f"{topology.nodes} nodes simulated on one machine: no network lies between them")
    return Site(where, variables, device, facts, ranks, machine.siblings(job.record), [*warnings, *doubts])


def last_doubts(site: Site, job: Job, others: environment.Others) -> list[str]:
    """What is doubtful just before the run; UserError where it should not start."""
    texts = machine.same_surroundings(site.environment, site.earlier, job.strict)
    if not site.nodes.elsewhere:  # other machines have looked at themselves
        texts += machine.look(job.record, others, site.ranks, job.spec.threads, job.strict)
    return texts


def host_names(names: Iterable[str]) -> str:
    return " ".join(name.rpartition("@")[2] for name in names)
