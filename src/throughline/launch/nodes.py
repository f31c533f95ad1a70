"""The nodes of a run: find them, reach them, and ask each of them whether it is fit for the run.

A node is this machine, a simulated node, a node of a Slurm job or a host behind ssh. We use the names of nodes only to
reach them. Every text says `entry 2 of runs.hosts` or, of other hosts such as those of an acceptance, `node 1` instead.
"""

import json
import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from throughline import files, frameworks, handover, messages, processes
from throughline.files import UserError
from throughline.frameworks.starters import srun
from throughline.messages import Answer, LaunchPlan, Question
from throughline.observe.environment import DECIDES
from throughline.spec import RunSpec, read

TRY = {
    "ssh": "try it: ssh -o BatchMode=yes <that host> true; see docs/how-to/slurm-problems.md",
    "slurm": "try it in a job of your own: srun <the Python of this run> --version on every node",
}
"""Map each kind of nodes to what to try if one of them does not answer."""
SSH = (
    "ssh", "-T", "-o", "BatchMode=yes", "-o", "LogLevel=ERROR",
    "-o", "ConnectTimeout=15", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3",
)  # fmt: skip
"""ssh fails instead of asking for a password, and if the host is silent for 15 s, before or after the connection."""
SSH_FAILED = 255
"""The exit status of ssh if ssh itself fails, before it runs the command."""


@dataclass(frozen=True)
class Nodes:
    """The nodes of a run.

    names: in the order of the ranks, empty if all ranks are on this machine; cores: the cores of each node that the
    Slurm job has reserved; in_runs_hosts: the names are the first entries of runs.hosts.
    """

    kind: Literal["here", "simulated", "slurm", "ssh"]
    names: tuple[str, ...] = field(default=(), repr=False)
    cores: int = 0
    in_runs_hosts: bool = False

    @property
    def elsewhere(self) -> bool:
        """True if other machines take part. Then all of them have to see the run's files."""
        return bool(self.names)


def configured(benchmark: str) -> list[str]:
    """Return the names in runs.hosts of a benchmark (derived or not)."""
    names: list[str] = handover.get("hosts", {}).get(benchmark.split("__")[0], [])
    return names


def find(
    spec: RunSpec, hosts: Sequence[str], variables: Mapping[str, str] = os.environ, in_runs_hosts: bool = True
) -> Nodes:
    """Return the nodes for this run. Raise UserError if there are too few. in_runs_hosts: see `Nodes`."""
    topology = spec.topology
    if spec.hosts == "ssh":
        if len(hosts) < topology.nodes:
            raise UserError(
                f"topology {topology} needs {topology.nodes} hosts, and runs.hosts has {len(hosts)}",
                next_step="add hosts, or choose a topology of fewer nodes",
            )
        return Nodes("ssh", tuple(hosts[: topology.nodes]), in_runs_hosts=in_runs_hosts)
    if spec.hosts == "simulated":
        return Nodes("simulated")
    if topology.nodes == 1:
        return Nodes("here")
    if "SLURM_JOB_ID" not in variables:
        raise UserError(
            f"topology {topology} needs {topology.nodes} nodes, and this machine is one",
            why="nothing says where the others are: runs.hosts is not set, and this is no Slurm job",
            next_step="on a cluster: snakemake --profile slurm; with ssh: runs.hosts: [names]; "
            "to try it on one machine: runs.hosts: simulated",
        )
    job = ["squeue", "--noheader", "--jobs", variables["SLURM_JOB_ID"]]  # Snakemake removes most SLURM_ variables
    names = tuple(_output(["scontrol", "show", "hostnames", _output([*job, "--format", "%N"])]).split())
    if len(names) != topology.nodes:
        raise UserError(
            f"topology {topology} needs {topology.nodes} nodes, and the Slurm job has {len(names)}",
            why="Snakemake runs inside the allocation (salloc, sbatch), and a run there takes all of its nodes",
            next_step="outside of it: snakemake --profile slurm, which asks for the nodes of each run; or inside: "
            f"topologies of {len(names)} nodes, or an allocation with --nodes={topology.nodes}",
        )
    return Nodes("slurm", names, int(_output([*job, "--Format", "cpus-per-task"])))


def _output(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()
    except (OSError, subprocess.SubprocessError) as error:
        raise UserError(
            f"`{command[0]}` does not answer inside the Slurm job",
            why=" ".join(str(getattr(error, "stderr", None) or type(error).__name__).split()),
            next_step="check that it is installed on the nodes, and reaches the controller from there",
        ) from None


def agents(framework: str, nodes: int, reach: str) -> int:
    """Return the number of agents of a run: one per node, but a starter has one agent for all nodes on this machine."""
    return 1 if reach == "simulated" and frameworks.of(framework).starter else nodes


def commands(plan: LaunchPlan, path: Path, names: Sequence[str] = ()) -> list[list[str]]:
    """Return the commands to run on this machine. Each is an agent, or starts agents on other machines."""

    def agent(node: int | str) -> list[str]:
        return processes.module(plan.python, "throughline.launch.agent", str(path), str(node))

    count = plan.agents
    if plan.reach == "slurm" and count > 1:
        # A starter reaches the other nodes through steps of its own, beside this one.
        beside = ["--overlap"] if frameworks.of(plan.spec["framework"]).starter else []
        return [[*srun(count, plan.cores), *beside, *agent("slurm")]]
    if plan.reach == "ssh":
        return [through_ssh(names[node], agent(node), plan.variables) for node in range(count)]
    return [agent(node) for node in range(count)]


def through_ssh(name: str, command: Sequence[str], variables: Mapping[str, str]) -> list[str]:
    """Return the command that runs `command` on another host, in the same folder, with `variables`."""
    assigned = shlex.join(f"{key}={value}" for key, value in variables.items())
    remote = f"cd {shlex.quote(os.getcwd())} && exec env {assigned} {shlex.join(command)}"
    return [*SSH, "--", name, remote]


def ask(nodes: Nodes, question: Question, python: str, variables: Mapping[str, str]) -> tuple[Answer, list[str]]:
    """Return the first node's answer, with the GPUs of the node that has the fewest, and the warnings of all nodes.

    Raise UserError unless every node answers, sees the file `question.seen`, has the same software, and is fit for a
    run now.
    """
    command = processes.module(python, "throughline.launch.machine", messages.text(question))
    if nodes.kind == "slurm":
        count = len(nodes.names)
        step = [*srun(count, nodes.cores), "--overlap", "--label"]
        replies = _through_srun(count, [*step, *command], variables)
    else:
        replies = ask_hosts(nodes.names, command, variables)
    answers: list[Answer] = []
    warnings: list[str] = []
    for number, answer in enumerate(replies):
        where = f"entry {number + 1} of runs.hosts" if nodes.in_runs_hosts else f"node {number}"
        if isinstance(answer, str):
            raise UserError(f"{where} {answer}", next_step=TRY[nodes.kind])
        answers.append(answer)
        _refuse_unfit(where, answer, answers[0])
        doubts = [*answer.warnings, *_unlike(answer, answers[0])]
        if doubts and question.strict:
            raise UserError(
                f"{where}: {doubts[0]}",
                why="runs.strict is on",
                next_step="choose nodes that are alike, or set runs.strict: false to measure with a warning",
            )
        warnings += [f"node {number}: {text}" for text in doubts]
    fewest = min((answer.gpus for answer in answers), key=lambda gpus: gpus.count)
    return replace(answers[0], gpus=fewest), warnings


def ask_hosts(names: Sequence[str], command: list[str], variables: Mapping[str, str]) -> list[Answer | str]:
    """Ask all hosts at the same time. Return the answer of each, or a string that says what is wrong with it."""
    with ThreadPoolExecutor(32) as pool:
        return list(pool.map(lambda name: _through_ssh(name, command, variables), names))


def _refuse_unfit(where: str, answer: Answer, first: Answer) -> None:
    """Raise UserError if a node cannot take part at all, or cannot take part now."""
    if not answer.sees_files:
        raise UserError(
            f"{where} does not see this project's files",
            why="results/ has to lie at the same path on every host (a shared file system)",
            next_step="run Throughline from a folder that all hosts share",
        )
    for name, version in first.software.items():
        if answer.software.get(name) != version:
            raise UserError(
                f"{where} has {name} {answer.software.get(name)}, the first has {version}",
                why="all ranks of a run must have the same software",
                next_step="install the same version on both",
            )
    if answer.refused:
        raise UserError(f"{where}: {answer.refused.what}", why=answer.refused.why, next_step=answer.refused.next_step)


def _unlike(answer: Answer, first: Answer) -> list[str]:
    """Return a warning that lists the differences between a node and the first node, if there are any."""
    here, there = (
        {key: node.environment.get(key) for key in DECIDES} | {"number of GPUs": node.gpus.count, "GPU": node.gpus.name}
        for node in (answer, first)
    )
    changed = [f"{key} is {here[key]}, not {there[key]}" for key in here if here[key] != there[key]]
    return [f"it is not like node 0 ({'; '.join(changed)}): the slowest node sets the pace"] if changed else []


def _through_srun(count: int, command: list[str], variables: Mapping[str, str]) -> list[Answer | str]:
    """Return the answers of this Slurm job's nodes in the order of the ranks, or a string if something is wrong."""
    try:
        done = _run(command, variables)
    except (OSError, subprocess.TimeoutExpired) as error:
        return [f"does not answer through srun ({type(error).__name__})"] * count
    by_node = {answer.node: answer for answer in map(_parsed, joined(done.stdout)) if isinstance(answer, Answer)}
    reason = files.scrub(" ".join(done.stderr.split()))[-300:] or f"exit status {done.returncode}"
    return [by_node.get(node, f"does not answer through srun ({reason})") for node in range(count)]


def joined(labelled: str) -> list[str]:
    """Return the answers in the output of `srun --label`.

    srun passes on at most 1,024 bytes at a time. So longer lines come in pieces, and those of several nodes are mixed.
    The label before each piece says whose it is.
    """
    outputs: dict[str, str] = {}
    for line in labelled.splitlines():
        label, _, piece = line.partition(": ")
        if label.strip().isdecimal():
            outputs[label.strip()] = outputs.get(label.strip(), "") + piece
    return [output[start:] for output in outputs.values() if (start := output.rfind('{"node": ')) >= 0]


def _through_ssh(name: str, command: list[str], variables: Mapping[str, str]) -> Answer | str:
    """Return a host's answer, or a string that says what is wrong with the host."""
    try:
        done = _run(through_ssh(name, command, variables), {})
    except FileNotFoundError:
        return "cannot be reached: there is no ssh on this machine"
    except subprocess.TimeoutExpired:
        return "does not answer within 120 s"
    errors = " ".join(done.stderr.split()).replace(name, "it").replace(name.rpartition("@")[2], "it")
    if done.returncode == SSH_FAILED:
        return f"cannot be reached through ssh ({errors or 'it is silent'})"
    if done.returncode:
        return f"cannot run {shlex.join(command[:3])} ({errors[-300:]})"
    return _parsed(done.stdout.strip().splitlines()[-1])


def _run(command: list[str], variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    environment, nothing = {**os.environ, **variables}, subprocess.DEVNULL
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, stdin=nothing)


def _parsed(line: str) -> Answer | str:
    try:
        return read(Answer, json.loads(line))
    except ValueError as error:
        return f"gives an unexpected answer ({error})"
