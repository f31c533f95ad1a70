"""Where a run takes place: its nodes, the device it takes there, and what is doubtful about any of it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import throughline
from throughline import files
from throughline.launch import machine, nodes, preflight
from throughline.launch.job import Job
from throughline.launch.machine import NO_GPUS
from throughline.launch.nodes import Nodes
from throughline.messages import Device, Question
from throughline.observe import environment
from throughline.topology import Topology

WHERE = {
    "here": "this machine",
    "simulated": "simulated nodes of this machine",
    "slurm": "the nodes of this Slurm job",
    "ssh": "the first of runs.hosts",
}


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

    @property
    def earlier_gpus(self) -> list[dict[str, Any]]:
        """Facts of the first node's GPUs in the newest of the other repeats."""
        return next((one["environment"].get("gpus") or [] for one in reversed(self.earlier.values())), [])


def survey(job: Job) -> Site:
    """Look at every node, and choose the device. UserError where this run does not fit."""
    topology, spec = Topology.parse(job.spec.topology), job.full
    where = nodes.find(job.spec, job.hosts)
    variables = _variables(spec, where)
    doubts: list[str] = []
    if where.elsewhere:
        answer, doubts = nodes.survey(where, _question(job, topology), job.python, variables)
        gpus, cpu, facts = answer.gpus, answer.cpu, answer.environment
    else:
        gpus = machine.gpus(job.spec.framework, job.python, os.environ | variables) if _wants_gpus(job) else NO_GPUS
        cpu, facts = machine.processor(), environment.describe(job.spec.framework, job.spec.model)
    device = machine.choose(spec, gpus, cpu)
    ranks = topology.world if where.kind == "simulated" else topology.devices
    warnings = machine.fits(spec, ranks, device)
    if where.kind == "simulated":
        warnings.append(f"{topology.nodes} nodes simulated on one machine: no network lies between them")
    earlier = preflight.siblings(job.record)
    return Site(where, variables, device, facts, ranks, earlier, [*warnings, *doubts])


def with_doubts(site: Site, job: Job, others: environment.Others) -> Site:
    """The site with what is doubtful just before the run; UserError where it should not start."""
    doubts = preflight.same_surroundings(site.environment, site.earlier, job.strict)
    if not site.nodes.elsewhere:  # other machines have looked at themselves
        cores = environment.cpu_cores()
        doubts += preflight.look(job.record, others, site.ranks, job.spec.threads, cores, site.earlier, job.strict)
    return replace(site, warnings=[*site.warnings, *doubts])


def _wants_gpus(job: Job) -> bool:
    return job.spec.device != "cpu"


def _variables(spec: dict[str, Any], where: Nodes) -> dict[str, str]:
    """What every rank finds in its environment; from here on, what is written calls the nodes node0, node1, ..."""
    names = host_names(where.names)
    os.environ[files.NODES] = names
    variables = machine.worker_variables(spec, Path(throughline.__file__).parents[1]) | {files.NODES: names}
    return variables if where.elsewhere else variables | {"GLOO_SOCKET_IFNAME": "lo"}


def host_names(names: Iterable[str]) -> str:
    return " ".join(name.rpartition("@")[2] for name in names)


def _question(job: Job, topology: Topology) -> Question:
    return Question(
        framework=job.spec.framework,
        model=job.spec.model,
        gpus=_wants_gpus(job),
        seen=str(job.log.resolve()),
        record=str(job.record.resolve()),
        ranks=topology.devices,
        threads=job.spec.threads,
        strict=job.strict,
    )
