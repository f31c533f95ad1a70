"""Where a run takes place: its nodes, the device it takes there, and what is doubtful about any of it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
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


def survey(job: Job) -> Site:
    """Look at every node, and choose the device. UserError where this run does not fit."""
    topology, spec = Topology.parse(job.spec.topology), job.full
    framework, model, wants_gpus = job.spec.framework, job.spec.model, job.spec.device != "cpu"
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
        gpus = machine.gpus(framework, job.python, os.environ | variables) if wants_gpus else NO_GPUS
        cpu, facts = machine.processor(), environment.describe(framework, model)
    device = machine.choose(spec, gpus, cpu)
    ranks = topology.world if where.kind == "simulated" else topology.devices
    warnings = machine.fits(spec, ranks, device)
    if where.kind == "simulated":
        warnings.append(f"{topology.nodes} nodes simulated on one machine: no network lies between them")
    return Site(where, variables, device, facts, ranks, preflight.siblings(job.record), [*warnings, *doubts])


def doubts(site: Site, job: Job, others: environment.Others) -> list[str]:
    """What is doubtful just before the run; UserError where it should not start."""
    texts = preflight.same_surroundings(site.environment, site.earlier, job.strict)
    if not site.nodes.elsewhere:  # other machines have looked at themselves
        cores = environment.cpu_cores()
        texts += preflight.look(job.record, others, site.ranks, job.spec.threads, cores, site.earlier, job.strict)
    return texts


def host_names(names: Iterable[str]) -> str:
    return " ".join(name.rpartition("@")[2] for name in names)
