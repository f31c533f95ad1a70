"""The survey before a run: where it takes place, on which device, with which variables, and the warnings about it.

The launcher asks every node (nodes.py), or this machine alone (machine.py).
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from throughline import files, frameworks
from throughline.files import UserError
from throughline.gpus import visible_devices
from throughline.installation.choose import torch_cuda
from throughline.launch import machine, nodes
from throughline.launch.nodes import Nodes
from throughline.launch.request import RunRequest, lacks_environment
from throughline.messages import Device, Gpus, Question
from throughline.numbers import counted
from throughline.observe import environment
from throughline.observe.other_processes import OtherProcesses
from throughline.records import RunRecord, stored_run
from throughline.spec import RunSpec, Topology
from throughline.variables import VARIABLES

IN_WORDS = {
    "here": "this machine",
    "simulated": "simulated nodes of this machine",
    "slurm": "the nodes of this Slurm job",
    "ssh": "hosts behind ssh",
}
"""Map each kind of nodes to its words in the log."""
NETWORK = re.compile(r"(NCCL_(?!HOSTID)|GLOO_|UCX_|FI_)\w+|LD_LIBRARY_PATH|PYTHONPATH")
"""Variables that ranks need to find each other and their libraries, in addition to those in a record."""
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
"""Variables that hide devices. AMD's runtime knows the first one too, and prefers the second."""
CONTENT = "the content of the data"
"""The name of what `data_of` returns, as warnings print it."""
TF32 = "NVIDIA_TF32_OVERRIDE"
"""With 0, NVIDIA's libraries never round an operand to TF32, whatever a framework asks for."""
DECLARED = "declared"
"""The kind of accelerators that the configuration states, because we cannot count them."""


class TooFewGpus(UserError):
    """A machine has fewer GPUs than a run has ranks there."""

    def __init__(self, topology: Topology, ranks: int, gpus: int) -> None:
        self.ranks, self.gpus = ranks, gpus
        super().__init__(
            f"topology {topology} needs {ranks} GPUs a machine, and there are {gpus}",
            why=f"CUDA_VISIBLE_DEVICES is {os.environ.get('CUDA_VISIBLE_DEVICES', 'not set')}",
            next_step="choose a smaller topology, or runs.device: cpu",
        )


@dataclass(frozen=True)
class Survey:
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
    earlier: dict[str, RunRecord]
    warnings: list[str]


def survey_nodes(request: RunRequest) -> Survey:
    """Ask every node, and choose the device. Raise UserError if the run cannot take place on these nodes."""
    spec, topology = request.spec, request.spec.topology
    # Only an acceptance lets runs on several hosts go side by side. Its hosts are not those of runs.hosts.
    where, earlier = nodes.find(spec, request.hosts, in_runs_hosts=not request.side_by_side), siblings(request.record)
    names = os.environ[files.NODES] = host_names(where.names)  # from now on, logs and records say node0, node1, ...
    variables = worker_variables(spec) | {files.NODES: names} | request.of_program["variables"]
    variables |= only_devices(request.visible, {} if where.elsewhere else os.environ)
    on_cpu = [run.peak_memory_bytes or 0 for run in earlier.values() if run.device and run.device.kind == "cpu"]
    lacking = lacks_environment(spec, request.python)
    question = Question(
        # In the workflow's own environment, torch can tell which devices there are. Its CPU build sees no GPU.
        framework="torch" if lacking else spec.framework,
        model=spec.model,
        device="cpu" if lacking and torch_cuda() == "" else spec.device,
        seen=str(request.log.resolve()),
        record=str(request.record.resolve()),
        ranks=topology.world if where.kind == "simulated" else topology.devices,
        threads=spec.threads,
        strict=request.strict,
        rank_bytes=max(on_cpu, default=0),
        compiles=machine.needs_compiler(spec),
    )
    warnings: list[str] = []
    if where.elsewhere:
        answer, warnings = nodes.ask(where, question, request.python, variables)
        gpus, cpu, facts = answer.gpus, answer.cpu, answer.environment
    else:
        variables["GLOO_SOCKET_IFNAME"] = "lo"
        gpus = machine.gpus(question.framework, request.python, os.environ | variables, question.device)
        cpu, facts = machine.processor(), environment.describe(question.framework, spec.model)
    device = choose_device(spec, gpus, cpu)
    variables |= devices_of_program(spec, device, os.environ)
    if device.kind != "cpu":
        variables |= frameworks.of(spec.framework).on_gpus(os.environ)
    if question.compiles and device.kind == "cuda" and not where.elsewhere:  # other machines have asked themselves
        machine.check_compiler(request.python, os.environ | variables)
    variables |= allocator(spec, device.kind) | tf32(spec, device.kind)
    shared = check_fit(spec, question.ranks, device)
    if where.kind == "simulated":
        shared.append(f"{topology.nodes} nodes simulated on one machine: there is no network between them")
    return Survey(where, variables, device, facts, question, earlier, [*shared, *warnings])


def siblings(record: Path) -> dict[str, RunRecord]:
    """Return the successful records of the same framework and topology by name, oldest first."""
    paths = [path for path in record.parent.glob("run*.json") if path.name != record.name]
    repeats = {path.stem: stored_run(path) for path in sorted(paths, key=lambda path: path.stat().st_mtime)}
    return {name: run for name, run in repeats.items() if run and run.status == "ok" and run.environment}


def final_warnings(survey: Survey, data: Mapping[str, Any] | None, others: OtherProcesses) -> list[str]:
    """Return the warnings just before the run, which reads `data`. Raise UserError if the run should not start."""
    states = {
        name: run.environment | data_of(run.data.model_dump() if run.data else None)
        for name, run in survey.earlier.items()
    }
    warnings = changes_since(states, survey.environment | data_of(data), survey.question.strict)
    # Other machines have already checked themselves.
    return warnings + ([] if survey.nodes.elsewhere else machine.check_ready(survey.question, others))


def choose_device(spec: RunSpec, seen: Gpus, cpu: Device) -> Device:
    """Return the device for `runs.device`. Raise UserError if it is an accelerator and the framework sees none."""
    if spec.program and spec.program.accelerator:
        return Device(DECLARED, spec.program.accelerator.name, spec.program.accelerator.per_node, None)
    if spec.device == "cpu" or (spec.device == "auto" and not seen.count):
        return cpu
    if seen.kind is None:
        raise UserError(
            f"runs.device is {spec.device}, but the framework sees no GPU here",
            why=f"the environment of {spec.framework} finds none (driver, container or a CPU-only build)",
            next_step=f"set runs.device: auto or cpu, or install the framework's {spec.device.upper()} build",
        )
    return Device(seen.kind, str(seen.name), seen.count, seen.fp16)


def check_fit(spec: RunSpec, per_machine: int, device: Device) -> list[str]:
    """Return warnings about `per_machine` ranks on one machine. Raise UserError if the machine cannot run them."""
    if device.kind != "cpu":
        if per_machine > device.count:
            raise TooFewGpus(spec.topology, per_machine, device.count)
        return []
    warnings = []
    if not spec.program and per_machine * spec.threads > device.count:
        warnings.append(
            f"{counted(per_machine, 'worker')} with {counted(spec.threads, 'thread')} each on "
            f"{counted(device.count, 'core')}: they share cores, so the speedup says nothing about scaling"
        )
    if spec.precision == "fp16" and device.fp16_native is False:
        warnings.append("this CPU has no fp16 units: fp16 is emulated and gains nothing")
    return warnings


def worker_variables(spec: RunSpec) -> dict[str, str]:
    """Return the environment variables of every rank on every node: the user's variables that a record keeps or that a
    network needs, and the number of threads of the specification."""
    handed_on = {
        name: value
        for name, value in os.environ.items()
        if NETWORK.fullmatch(name) or (VARIABLES.fullmatch(name) and name not in environment.ASSIGNED)
    }
    return {
        **handed_on,
        **({} if spec.program else dict.fromkeys(THREADS, str(spec.threads))),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # number devices as NVML does, and so nvidia-smi and our telemetry
        "PYTHONUNBUFFERED": "1",
    }


def only_devices(devices: Sequence[int] | None, given: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with which ranks and telemetry see only these devices of their machine; None: all.

    A device is named by its index among those that the variables in `given` let a process see. Raise UserError if
    there are too few.
    """
    if devices is None:
        return {}
    variables = {}
    for name in [name for name in VISIBLE if given.get(name)] or VISIBLE[:1]:
        seen = visible_devices(given.get(name))
        if seen is not None and max(devices) >= len(seen):
            raise UserError(
                f"GPU {max(devices)} is to be measured, and this process sees {len(seen)}",
                why=f"{name} is {given[name]}",
                next_step="let it see all GPUs, or measure fewer (accept.devices)",
            )
        variables[name] = ",".join(str(device) if seen is None else seen[device] for device in devices)
    return variables


def devices_of_program(spec: RunSpec, device: Device, given: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with which a program, which may take all that it sees, sees the devices of its topology."""
    program = spec.program
    if program is None:
        return {}
    if device.kind == DECLARED:
        name = program.accelerator and program.accelerator.visible
        return {name: ",".join(map(str, range(spec.topology.devices)))} if name else {}
    if device.kind == "cpu":
        return {"CUDA_VISIBLE_DEVICES": ""}
    return only_devices(range(spec.topology.devices), given)


def allocator(spec: RunSpec, kind: str) -> dict[str, str]:
    """Return the variable for PyTorch's allocator on a GPU, if batches have different sizes and the user set none.

    Without expandable segments, the allocator would ask the driver for memory again within the timed window.
    """
    set_by_user = {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"} & os.environ.keys()
    left_out = frameworks.resolved(spec, kind).options.remove_padding is True
    if kind != "cuda" or set_by_user or not left_out or frameworks.of(spec.framework).library != "torch":
        return {}
    return {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}


def tf32(spec: RunSpec, kind: str) -> dict[str, str]:
    """Return the variable that keeps NVIDIA's libraries from computing fp32 in TF32, unless the run is to, or the user
    has set it.

    Frameworks have switches of their own, and their ranks set them. Some parts have none: MXNet asks cuDNN for its
    usual mathematics, which is TF32 for convolutions on compute capability 8.0 and later.
    """
    if kind != "cuda" or spec.precision == "tf32" or TF32 in os.environ:
        return {}
    return {TF32: "0"}


def changes_since(earlier: Mapping[str, Mapping[str, Any]], now: Mapping[str, Any], strict: bool) -> list[str]:
    """Return a warning for each difference to the latest earlier repeat. With `strict`, raise UserError instead.

    `earlier`: the environment and `data_of` of each earlier repeat by name, oldest first.
    """
    if not earlier:
        return []
    name, before = list(earlier.items())[-1]
    known = [key for key in (*environment.DECIDES, CONTENT) if key in now and key in before]
    changed = [f"{key} was {before[key]} and is {now[key]}" for key in known if now[key] != before[key]]
    if changed and strict:
        raise UserError(
            f"this machine is not as it was for {name}: {'; '.join(changed)}",
            why="repeats from different environments are never pooled, and runs.strict is on",
            next_step="undo the change, or make the earlier repeats again: the first line of their logs says how",
        )
    return [f"since {name}, {text}: the repeats will not be pooled" for text in changed]


def data_of(data: Mapping[str, Any] | None) -> dict[str, str]:
    """Return what `changes_since` compares of the data of a run, as its record has them; nothing without data."""
    if not data:
        return {}
    dumps = ", ".join((data.get("dumps") or {}).values())
    return {CONTENT: data["content_digest"][:12] + (f" ({dumps})" if dumps else "")}


def host_names(names: Iterable[str]) -> str:
    return " ".join(name.rpartition("@")[2] for name in names)
