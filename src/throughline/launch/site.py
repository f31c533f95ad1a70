"""Where a run takes place: its nodes and its device, what is known about them, and the warnings about them."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from throughline import files, frameworks, recipes
from throughline.launch import compiler, machine, nodes
from throughline.launch.nodes import Nodes
from throughline.launch.request import RunRequest, lacks_environment
from throughline.messages import Device, Question
from throughline.observe import environment
from throughline.observe.other_processes import OtherProcesses
from throughline.records.glance import Glance, siblings

IN_WORDS = {
    "here": "this machine",
    "simulated": "simulated nodes of this machine",
    "slurm": "the nodes of this Slurm job",
    "ssh": "hosts behind ssh",
}
"""Map each kind of nodes to its words in the log."""


@dataclass(frozen=True)
class Site:
    """The nodes and the device of a run, and what is known about them.

    variables: the environment variables of every rank; environment: the first node's part of the record's environment;
    question: what every machine of the run is asked; earlier: records of other repeats of this configuration, oldest
    first.
    """

    nodes: Nodes
    variables: dict[str, str]
    device: Device
    environment: dict[str, Any]
    question: Question
    earlier: dict[str, Glance]
    warnings: list[str]


def survey(request: RunRequest) -> Site:
    """Ask every node, and choose the device. Raise UserError if the run cannot take place on these nodes."""
    spec, topology = request.spec, request.spec.topology
    found, earlier = _nodes(request), siblings(request.record)
    names = os.environ[files.NODES] = host_names(found.names)  # from now on, logs and records say node0, node1, ...
    variables = machine.worker_variables(spec) | {files.NODES: names}
    variables |= machine.only(request.visible, {} if found.elsewhere else os.environ)
    on_cpu = [repeat.peak_memory_bytes or 0 for repeat in earlier.values() if repeat.device == "cpu"]
    lacking = lacks_environment(spec, request.python)
    question = Question(
        # In the workflow's own environment, torch can tell which devices there are. Its CPU build sees no GPU.
        framework="torch" if lacking else spec.framework,
        model=spec.model,
        device="cpu" if lacking and recipes.torch_cuda() == "" else spec.device,
        seen=str(request.log.resolve()),
        record=str(request.record.resolve()),
        ranks=topology.world if found.kind == "simulated" else topology.devices,
        threads=spec.threads,
        strict=request.strict,
        rank_bytes=max(on_cpu, default=0),
        compiles=compiler.is_needed(spec),
    )
    doubts: list[str] = []
    if found.elsewhere:
        answer, doubts = nodes.ask(found, question, request.python, variables)
        gpus, cpu, facts = answer.gpus, answer.cpu, answer.environment
    else:
        variables["GLOO_SOCKET_IFNAME"] = "lo"
        gpus = machine.gpus(question.framework, request.python, os.environ | variables, question.device)
        cpu, facts = machine.processor(), environment.describe(question.framework, spec.model)
    device = machine.choose(spec, gpus, cpu)
    if device.kind != "cpu":
        variables |= frameworks.of(spec.framework).on_gpus(os.environ)
    if question.compiles and device.kind == "cuda" and not found.elsewhere:  # other machines have asked themselves
        compiler.check(request.python, os.environ | variables)
    variables |= machine.allocator(spec, device.kind) | machine.tf32(spec, device.kind)
    warnings = machine.fits(spec, question.ranks, device)
    if found.kind == "simulated":
        warnings.append(f"{topology.nodes} nodes simulated on one machine: there is no network between them")
    return Site(found, variables, device, facts, question, earlier, [*warnings, *doubts])


def _nodes(request: RunRequest) -> Nodes:
    """Return the nodes of a run. Only an acceptance lets runs on several hosts go side by side."""
    return nodes.find(request.spec, request.hosts, in_runs_hosts=not request.side_by_side)


def last_doubts(site: Site, data: Mapping[str, Any] | None, others: OtherProcesses) -> list[str]:
    """Return the warnings just before the run, which reads `data`. Raise UserError if the run should not start."""
    states = {name: repeat.environment | machine.of_data(repeat.data) for name, repeat in site.earlier.items()}
    warnings = machine.changes_since(states, site.environment | machine.of_data(data), site.question.strict)
    if not site.nodes.elsewhere:  # other machines have already checked themselves
        warnings += machine.check_ready(site.question, others)
    return warnings


def host_names(names: Iterable[str]) -> str:
    return " ".join(name.rpartition("@")[2] for name in names)
