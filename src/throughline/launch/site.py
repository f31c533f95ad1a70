"""Where a run takes place: its nodes and its device, what is known about them, and the warnings about them."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from throughline import files
from throughline.launch import machine, nodes
from throughline.launch.nodes import Nodes
from throughline.launch.request import RunRequest
from throughline.messages import Device, Question
from throughline.observe import environment
from throughline.records.glance import Glance, siblings

IN_WORDS = {
    "here": "this machine",
    "simulated": "simulated nodes of this machine",
    "slurm": "the nodes of this Slurm job",
    "ssh": "the first of runs.hosts",
}
"""Map each kind of nodes to its words in the log."""


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


def survey(request: RunRequest) -> Site:
    """Ask every node, and choose the device. Raise UserError if the run cannot take place on these nodes."""
    spec, topology = request.spec, request.spec.topology
    framework, model = spec.framework, spec.model
    if request.lacks:
        framework = "torch"  # in the workflow's own environment, torch can tell which devices there are
    where, earlier = nodes.find(spec, request.hosts), siblings(request.record)
    names = os.environ[files.NODES] = host_names(where.names)  # from now on, logs and records say node0, node1, ...
    variables = machine.worker_variables(spec) | {files.NODES: names}
    doubts: list[str] = []
    if where.elsewhere:
        question = Question(
            framework=framework,
            model=model,
            device=spec.device,
            seen=str(request.log.resolve()),
            record=str(request.record.resolve()),
            ranks=topology.devices,
            threads=spec.threads,
            strict=request.strict,
            rank_bytes=rank_bytes(earlier),
        )
        answer, doubts = nodes.survey(where, question, request.python, variables)
        gpus, cpu, facts = answer.gpus, answer.cpu, answer.environment
    else:
        variables["GLOO_SOCKET_IFNAME"] = "lo"
        gpus = machine.gpus(framework, request.python, os.environ | variables, spec.device)
        cpu, facts = machine.processor(), environment.describe(framework, model)
    device = machine.choose(spec, gpus, cpu)
    ranks = topology.world if where.kind == "simulated" else topology.devices
    warnings = machine.fits(spec, ranks, device)
    if where.kind == "simulated":
        warnings.append(f"{topology.nodes} nodes simulated on one machine: there is no network between them")
    return Site(where, variables, device, facts, ranks, earlier, [*warnings, *doubts])


def last_doubts(site: Site, request: RunRequest, others: environment.Others) -> list[str]:
    """Return the warnings just before the run. Raise UserError if the run should not start."""
    environments = {name: repeat.environment for name, repeat in site.earlier.items()}
    texts = machine.same_surroundings(site.environment, environments, request.strict)
    if not site.nodes.elsewhere:  # other machines have already checked themselves
        each_bytes = rank_bytes(site.earlier)
        texts += machine.look(request.record, others, site.ranks, request.spec.threads, request.strict, each_bytes)
    return texts


def rank_bytes(earlier: Mapping[str, Glance]) -> int:
    """Return the most memory that a rank of an earlier repeat took on a CPU; 0 if that is not known."""
    on_cpu = [repeat.peak_memory_bytes or 0 for repeat in earlier.values() if repeat.device == "cpu"]
    return max(on_cpu, default=0)


def host_names(names: Iterable[str]) -> str:
    return " ".join(name.rpartition("@")[2] for name in names)
