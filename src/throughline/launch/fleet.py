"""Find the nodes of an acceptance, give each a number for ever, and say which of them are away now.

The nodes are those of a Slurm partition, hosts behind ssh, or this machine. Their names go into one file
(`acceptance.LOCAL`) and nowhere else. Simulated nodes have no names: they leave this file as it is.
"""

import atexit
import platform
import re
import secrets
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from throughline import files, messages, processes
from throughline.files import UserError
from throughline.launch import nodes, seen_devices, slurm_partition, survey
from throughline.messages import Answer, Question
from throughline.observe import environment
from throughline.spec import canonical, read
from throughline.study.accept_section import Accept
from throughline.study.acceptance import FOLDER, LOCAL, Fleet


@dataclass(frozen=True)
class FleetNodes:
    """The nodes of an acceptance. names: by number; away: why nodes cannot be measured now, by number.

    Simulated nodes have no names.
    """

    fleet: Fleet
    names: Mapping[int, str] = field(repr=False)
    away: Mapping[int, str] = field(default_factory=dict)

    def write(self, path: Path = Path(LOCAL)) -> None:
        """Write the names, for this user's eyes only, and the facts that the jobs on the nodes have to know.

        Simulated nodes are not written, because they would take the numbers of a cluster's nodes.
        """
        if self.fleet.hosts == "simulated":
            return
        names = {str(number): name for number, name in sorted({**node_names(path), **self.names}.items())}
        content = {"nodes": names, "fleet": asdict(self.fleet) | {"nodes": list(self.fleet.nodes)}}
        if not path.is_file() or files.read_json(path) != content:
            files.write_json(path, content, mode=0o600)

    @property
    def away_text(self) -> str:
        """Why nodes cannot be measured now, as a JSON map by their numbers, on one line.

        The verdict states it, and names must not leave this machine.
        """
        return canonical({str(node): self._nameless(why) for node, why in sorted(self.away.items())})

    def _nameless(self, text: str) -> str:
        hosts = {number: name.rpartition("@")[2] for number, name in self.names.items()}
        spellings = {name: number for number, host in hosts.items() for name in (host.split(".")[0], host)}
        for name in sorted(spellings, key=len, reverse=True):
            text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", f"node {spellings[name]}", text)
        return files.scrub(" ".join(text.split()))


@dataclass(frozen=True)
class NodeDevices:
    """The devices of one node. gpus: how many, of this kind; away: why the node cannot be measured now."""

    name: str
    kind: str = "cpu"
    gpus: int = 0
    cores: int = 1
    away: str | None = None

    def beside(self, other: "NodeDevices") -> str:
        """Return the GPUs in words, with their kind if that of the other node is different."""
        of_kind = f" of kind {self.kind}" if self.gpus and other.gpus and self.kind != other.kind else ""
        return _gpus(self.gpus) + of_kind


def node_names(path: Path = Path(LOCAL)) -> dict[int, str]:
    """Return the names of nodes by number, as an earlier call has written them."""
    if not path.is_file():
        return {}
    value = files.read_json(path)
    try:
        return {int(number): str(name) for number, name in value["nodes"].items()}
    except (KeyError, TypeError, ValueError, AttributeError):
        raise UserError(
            f"{path} does not say which number a node has",
            why='it has no map `nodes`, such as {"0": "first"}',
            next_step="correct the file, or remove it: then all nodes get new numbers",
        ) from None


def read_nodes(path: Path = Path(LOCAL)) -> FleetNodes:
    """Return the nodes as the call that has submitted this job has written them."""
    names = node_names(path)
    if not names:
        raise UserError(f"{path} is not on this node", next_step="run Throughline from a folder that all nodes share")
    return FleetNodes(read(Fleet, files.read_json(path)["fleet"]), names)


def find(accept: Accept, on_slurm: bool, partition: str | None = None, path: Path = Path(LOCAL)) -> FleetNodes:
    """Return the nodes that the section `accept` asks for. A node that is unlike most of the others is away.

    Raise UserError if there are too few nodes, or if no kind of node is in the majority.
    """
    if on_slurm:
        candidates = _of_partition(accept, partition)
    elif isinstance(accept.hosts, list):
        candidates = _behind_ssh(accept)
    elif accept.hosts == "simulated":
        return _simulated(accept)
    else:
        candidates = [_this_machine(accept)]
    numbers = {name: number for number, name in node_names(path).items()}
    for node in candidates:
        numbers.setdefault(node.name, max(numbers.values(), default=-1) + 1)
    chosen = sorted(candidates, key=lambda node: numbers[node.name])[: accept.nodes]
    if len(chosen) < (accept.nodes or 1):
        raise UserError(
            f"accept.nodes is {accept.nodes}, and the number of nodes here is {len(chosen)}",
            next_step="ask for fewer, or say where the others are: snakemake --profile slurm (accept.partition, "
            "accept.constraint), or accept.hosts: [names]; to try it on one machine: accept.hosts: simulated",
        )
    odd = _odd(accept, [node for node in chosen if node.away is None], numbers)
    away = {numbers[node.name]: why for node in chosen if (why := node.away or odd.get(node.name))}
    alike = [node for node in chosen if numbers[node.name] not in away]
    if not alike:
        raise UserError(f"none of the {len(chosen)} nodes can be measured now", why=chosen[0].away)
    fewest = NodeDevices("", alike[0].kind, min(node.gpus for node in alike), min(node.cores for node in alike))
    hosts = "ssh" if isinstance(accept.hosts, list) and not on_slurm else None
    names = {numbers[node.name]: node.name for node in chosen}
    return FleetNodes(_fleet(accept, list(names), fewest, hosts, _numbering(path)), names, away)


def _numbering(path: Path) -> str:
    """Return the word for the numbers in a file of names. A new file begins with a new one."""
    kept = files.read_json(path).get("fleet") if node_names(path) else None
    word = kept.get("numbering") if isinstance(kept, dict) else None
    return str(word) if word else secrets.token_hex(8)


def _odd(accept: Accept, there: Sequence[NodeDevices], numbers: Mapping[str, int]) -> dict[str, str]:
    """Map the nodes that cannot be compared with most of the others to the reason.

    Raise UserError if no kind of node is in the majority, or if all have too few GPUs.
    """
    if not there:
        return {}
    wanted = accept.devices or 0
    kinds = [(node.kind, 0 if accept.devices else node.gpus) for node in there]
    kind, count = Counter(kinds).most_common(1)[0]
    usual = there[kinds.index(kind)]
    if 2 * count <= len(there):
        other = next(node for node, its in zip(there, kinds, strict=True) if its != kind)
        first = f"node {numbers[usual.name]} has {usual.beside(other)}"
        raise UserError(
            f"{first}, and node {numbers[other.name]} has {other.beside(usual)}",
            why="nodes are compared with each other, so most of them should be alike",
            next_step="choose alike nodes (accept.partition, accept.constraint, accept.hosts), or set accept.devices "
            "or accept.device",
        )
    odd: dict[str, str] = {}
    for node, its in zip(there, kinds, strict=True):
        if its != kind:
            odd[node.name] = f"it has {node.beside(usual)}, and most nodes have {usual.beside(node)}"
        elif node.kind != "cpu" and node.gpus < wanted:
            odd[node.name] = f"it has {_gpus(node.gpus)}, and accept.devices is {wanted}"
    if len(odd) == len(there):
        raise UserError(
            f"accept.devices is {wanted}, and node {numbers[usual.name]} has {_gpus(usual.gpus)}",
            next_step="set accept.devices to fewer",
        )
    return odd


def _gpus(count: int) -> str:
    return f"{count or 'no'} GPU{'' if count < 2 else 's'}"


def _fleet(accept: Accept, numbers: Sequence[int], node: NodeDevices, hosts: Any, numbering: str | None) -> Fleet:
    devices = accept.devices or node.gpus or 1
    threads = accept.threads or max(1, node.cores // devices)
    return Fleet(tuple(numbers), devices, node.kind, threads if node.kind == "cpu" else 1, hosts, numbering)


def _simulated(accept: Accept) -> FleetNodes:
    """Return simulated nodes, which share this machine. Their numbers are those of no other acceptance."""
    here, count = _this_machine(accept), accept.nodes or 2
    each = NodeDevices("", here.kind, accept.devices or here.gpus // count, here.cores)
    if here.kind != "cpu" and not 0 < count * each.gpus <= here.gpus:
        raise UserError(
            f"{each.gpus or 1} GPUs of each of {count} simulated nodes are to be measured, and this machine has "
            f"{_gpus(here.gpus)}",
            next_step="set accept.devices or accept.nodes to fewer",
        )
    return FleetNodes(_fleet(accept, range(count), each, "simulated", None), {})


def _this_machine(accept: Accept) -> NodeDevices:
    cores = environment.cpu_cores()
    if accept.device == "cpu":
        return NodeDevices(platform.node(), cores=cores)
    gpus = seen_devices.here(accept.device)
    if not gpus.count and accept.device != "auto":
        raise UserError(f"accept.device is {accept.device}, and there is none here", next_step="set accept.device: cpu")
    return NodeDevices(platform.node(), gpus.kind or "cpu", gpus.count, cores)


def _of_partition(accept: Accept, partition: str | None) -> list[NodeDevices]:
    """Return the nodes of Slurm's partition."""
    wanted = frozenset(accept.constraint.split("&") if accept.constraint else ())
    listed = [node for node in slurm_partition.nodes(partition) if wanted <= node.features]
    if isinstance(accept.hosts, list):
        by_name = {node.name: node for node in listed}
        if missing := [number for number, name in enumerate(accept.hosts, 1) if name not in by_name]:
            raise UserError(
                f"entry {missing[0]} of accept.hosts is no node of Slurm's partition, or lacks accept.constraint",
                next_step="check it against `sinfo --Node`",
            )
        listed = [by_name[name] for name in accept.hosts]
    kind = accept.device
    if kind == "auto":
        with_gpus = sum(node.gpus > 0 for node in listed)
        if 0 < with_gpus < len(listed):
            raise UserError(
                f"accept.device is auto, and {with_gpus} of the partition's {len(listed)} nodes have GPUs",
                why="nodes are compared with each other, so they should be alike",
                next_step="set accept.device, accept.partition or accept.constraint",
            )
        kind = "cuda" if with_gpus else "cpu"
    away = {node.name: f"Slurm says that it is {node.state}" for node in listed if not node.is_up}
    gpus = {node.name: node.gpus if kind != "cpu" else 0 for node in listed}
    return [NodeDevices(node.name, kind, gpus[node.name], node.cores, away.get(node.name)) for node in listed]


def _behind_ssh(accept: Accept) -> list[NodeDevices]:
    """Ask the hosts of the list what they have."""
    assert isinstance(accept.hosts, list)
    question = Question(
        framework=seen_devices.TORCH,
        model="matmul",
        device=accept.device,
        seen=str(processes.START),
        record=str(Path(FOLDER).absolute() / "asked.json"),
        ranks=1,
        threads=1,
    )
    python = seen_devices.python_of(seen_devices.TORCH) or sys.executable
    command = processes.module(python, "throughline.launch.machine", messages.text(question))
    replies = nodes.ask_hosts(accept.hosts, command, {files.NODES: survey.host_names(accept.hosts)})
    return [_answered(name, reply, accept.device) for name, reply in zip(accept.hosts, replies, strict=True)]


def _answered(name: str, reply: Answer | str, device: str) -> NodeDevices:
    if isinstance(reply, str):
        return NodeDevices(name, away=f"it {reply}")
    if not reply.sees_files:
        return NodeDevices(name, away="it does not see this project's files")
    if reply.refused:
        return NodeDevices(name, away=reply.refused.what)
    if device not in ("auto", "cpu") and not reply.gpus.count:
        return NodeDevices(name, away=f"it has no {device}")
    on_cpu = device == "cpu" or not reply.gpus.count
    kind = "cpu" if on_cpu else str(reply.gpus.kind)
    return NodeDevices(name, kind, 0 if on_cpu else reply.gpus.count, reply.cpu.count)


@cache
def node_file(names: tuple[str, ...]) -> str:
    """Return a file that tells Slurm the nodes of a job (`sbatch --nodefile`), so that no command and no log names one.

    It lies in a private temporary folder, which is removed when this process ends.
    """
    with tempfile.NamedTemporaryFile("w", dir=_private_folder(), delete=False) as file:
        file.write("".join(f"{name}\n" for name in names))
    return file.name


@cache
def _private_folder() -> str:
    folder = tempfile.mkdtemp(prefix="throughline-nodes-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
