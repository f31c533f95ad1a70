"""Find the nodes of an acceptance, give each a number for ever, and say which of them are away now.

The nodes are those of a Slurm partition, hosts behind ssh, or this machine. Their names go into one file
(`acceptance.LOCAL`) and nowhere else. Simulated nodes have no names: they leave this file as it is.
"""

import os
import platform
import re
import secrets
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from throughline import files, messages, processes
from throughline.files import UserError
from throughline.launch import nodes, seen_devices, slurm_partition
from throughline.messages import Answer, Question
from throughline.observe import environment
from throughline.spec import canonical, read
from throughline.study.accept_section import Accept
from throughline.study.acceptance import FOLDER, LOCAL, Fleet

FRAMEWORK = "torch"
"""The framework that says which GPUs a node has."""


@dataclass(frozen=True)
class Settled:
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
        names = {str(number): name for number, name in sorted({**known(path), **self.names}.items())}
        if not path.is_file() or files.read_json(path) != {"nodes": names, "fleet": _plain(self.fleet)}:
            files.write_json(path, {"nodes": names, "fleet": _plain(self.fleet)}, mode=0o600)


@dataclass(frozen=True)
class Seen:
    """What one node has. gpus: how many, of this kind; away: why it cannot be measured now."""

    name: str
    kind: str = "cpu"
    gpus: int = 0
    cores: int = 1
    away: str | None = None


def known(path: Path = Path(LOCAL)) -> dict[int, str]:
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


def settled(path: Path = Path(LOCAL)) -> Settled:
    """Return the nodes as the call that has submitted this job has found them."""
    names = known(path)
    if not names:
        raise UserError(f"{path} is not on this node", next_step="run Throughline from a folder that all nodes share")
    return Settled(read(Fleet, files.read_json(path)["fleet"]), names)


def find(accept: Accept, on_slurm: bool, partition: str | None = None, path: Path = Path(LOCAL)) -> Settled:
    """Return the nodes that the section `accept` asks for. A node that is unlike most of the others is away.

    Raise UserError if there are too few nodes, or if no kind of node is in the majority. on_slurm: jobs run on the
    nodes of a partition, None for the default one.
    """
    found = _found(accept, on_slurm, partition, path)
    if found.fleet.hosts == "simulated":  # their numbers are those of no other acceptance
        return found
    return replace(found, fleet=replace(found.fleet, numbering=_numbering(path)))


def _numbering(path: Path) -> str:
    """Return the word for the numbers in a file of names. A new file begins with a new one."""
    kept = files.read_json(path).get("fleet") if known(path) else None
    word = kept.get("numbering") if isinstance(kept, dict) else None
    return str(word) if word else secrets.token_hex(8)


def _found(accept: Accept, on_slurm: bool, partition: str | None, path: Path) -> Settled:
    if on_slurm:
        return _settle(accept, _of_partition(accept, partition), None, path)
    if isinstance(accept.hosts, list):
        return _settle(accept, _behind_ssh(accept), "ssh", path)
    here = _here(accept)
    if accept.hosts == "simulated":
        count = accept.nodes or 2
        devices = accept.devices or (here.gpus // count if here.gpus else 1)
        if here.kind != "cpu" and count * devices > here.gpus:
            raise UserError(
                f"{devices} GPUs of each of {count} simulated nodes are to be measured, and this machine has "
                f"{_gpus(here.gpus)}",
                next_step="set accept.devices or accept.nodes to fewer",
            )
        return Settled(_fleet(accept, range(count), here, devices, "simulated"), {})
    if (accept.nodes or 1) > 1:
        raise UserError(
            f"accept.nodes is {accept.nodes}, and this machine is one node",
            why="nothing says where the others are: accept.hosts is not set, and nothing is submitted to Slurm",
            next_step="on a cluster: snakemake --profile slurm; with ssh: accept.hosts: [names]; "
            "to try it on one machine: accept.hosts: simulated",
        )
    return _settle(accept, [here], None, path)


def away_text(settled: Settled) -> str:
    """Return why nodes cannot be measured now as a JSON map by their numbers, on one line and without names."""
    return canonical({str(node): _nameless(why, settled.names) for node, why in sorted(settled.away.items())})


def _nameless(text: str, names: Mapping[int, str]) -> str:
    hosts = {number: name.rpartition("@")[2] for number, name in names.items()}
    known = [(name, number) for number, host in hosts.items() for name in dict.fromkeys([host, host.split(".")[0]])]
    for name, number in sorted(known, key=lambda pair: -len(pair[0])):
        text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", f"node {number}", text)
    return files.scrub(" ".join(text.split()))


def _settle(accept: Accept, seen: Sequence[Seen], hosts: Any, path: Path) -> Settled:
    """Number the nodes, take as many as are asked for, and return what they have in common."""
    numbers = {name: number for number, name in known(path).items()}
    for node in seen:
        numbers.setdefault(node.name, max(numbers.values(), default=-1) + 1)
    chosen = sorted(seen, key=lambda node: numbers[node.name])[: accept.nodes]
    if len(chosen) < (accept.nodes or 1):
        raise UserError(
            f"accept.nodes is {accept.nodes}, and there are {len(chosen)} nodes",
            next_step="ask for fewer, or check accept.partition, accept.constraint and accept.hosts",
        )
    there = [node for node in chosen if node.away is None]
    if not there:
        raise UserError(f"none of the {len(chosen)} nodes can be measured now", why=chosen[0].away)
    odd = _odd(accept, there, numbers)
    alike = [node for node in there if node.name not in odd]
    fewest = Seen("", alike[0].kind, min(node.gpus for node in alike), min(node.cores for node in alike))
    fleet = _fleet(accept, [numbers[node.name] for node in chosen], fewest, accept.devices or fewest.gpus or 1, hosts)
    names = {numbers[node.name]: node.name for node in chosen}
    away = {numbers[node.name]: why for node in chosen if (why := node.away or odd.get(node.name))}
    return Settled(fleet, names, away)


def _odd(accept: Accept, there: Sequence[Seen], numbers: Mapping[str, int]) -> dict[str, str]:
    """Map the nodes that cannot be compared with most of the others to the reason. Raise UserError if all have too few
    GPUs."""
    usual, wanted = _usual(accept, there, numbers), accept.devices or 0
    found: dict[str, str] = {}
    for node in there:
        if _what(accept, node) != _what(accept, usual):
            found[node.name] = f"it has {_has(node, usual)}, and most nodes have {_has(usual, node)}"
        elif node.kind != "cpu" and node.gpus < wanted:
            found[node.name] = f"it has {_gpus(node.gpus)}, and accept.devices is {wanted}"
    if len(found) == len(there):
        raise UserError(
            f"accept.devices is {wanted}, and node {numbers[usual.name]} has {_gpus(usual.gpus)}",
            next_step="set accept.devices to fewer",
        )
    return found


def _usual(accept: Accept, there: Sequence[Seen], numbers: Mapping[str, int]) -> Seen:
    """Return a node that most of the others are like. Raise UserError if there is none."""
    what, count = Counter(_what(accept, node) for node in there).most_common(1)[0]
    usual = next(node for node in there if _what(accept, node) == what)
    if 2 * count > len(there):
        return usual
    other = next(node for node in there if _what(accept, node) != what)
    raise UserError(
        f"node {numbers[usual.name]} has {_has(usual, other)}, and node {numbers[other.name]} has {_has(other, usual)}",
        why="nodes are compared with each other, so most of them should be alike",
        next_step="choose alike nodes (accept.partition, accept.constraint, accept.hosts), or set accept.devices or "
        "accept.device",
    )


def _what(accept: Accept, node: Seen) -> tuple[str, int]:
    """Return what alike nodes have in common. If accept.devices is set, a node may have more GPUs than it needs."""
    return node.kind, 0 if accept.devices else node.gpus


def _has(node: Seen, other: Seen) -> str:
    """Return what a node has, beside another node."""
    of_kind = f" of kind {node.kind}" if node.gpus and other.gpus and node.kind != other.kind else ""
    return _gpus(node.gpus) + of_kind


def _gpus(count: int) -> str:
    return f"{count or 'no'} GPU{'' if count < 2 else 's'}"


def _fleet(accept: Accept, numbers: Sequence[int], seen: Seen, devices: int, hosts: Any) -> Fleet:
    threads = accept.threads or max(1, seen.cores // devices)
    return Fleet(tuple(numbers), devices, seen.kind, threads if seen.kind == "cpu" else 1, hosts)


def _here(accept: Accept) -> Seen:
    """Return what this machine has."""
    python, cores = seen_devices.python_of(FRAMEWORK) or sys.executable, environment.cpu_cores()
    if accept.device == "cpu":
        return Seen(platform.node(), cores=cores)
    gpus = seen_devices.seen(FRAMEWORK, python, accept.device, os.environ)
    if not gpus.count and accept.device != "auto":
        raise UserError(f"accept.device is {accept.device}, and there is none here", next_step="set accept.device: cpu")
    return Seen(platform.node(), gpus.kind or "cpu", gpus.count, cores)


def _of_partition(accept: Accept, partition: str | None) -> list[Seen]:
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
    return [
        Seen(
            node.name,
            kind,
            node.gpus if kind != "cpu" else 0,
            node.cores,
            None if node.is_up else f"Slurm says that it is {node.state}",
        )
        for node in listed
    ]


def _behind_ssh(accept: Accept) -> list[Seen]:
    """Ask the hosts of the list what they have."""
    assert isinstance(accept.hosts, list)
    question = Question(
        framework=FRAMEWORK,
        model="matmul",
        device=accept.device,
        seen=str(processes.START),
        record=str(Path(FOLDER).absolute() / "asked.json"),
        ranks=1,
        threads=1,
        strict=False,
        rank_bytes=0,
    )
    python = seen_devices.python_of(FRAMEWORK) or sys.executable
    command = processes.module(python, "throughline.launch.machine", messages.text(question))
    variables = {files.NODES: " ".join(name.rpartition("@")[2] for name in accept.hosts)}
    replies = nodes.ask_hosts(accept.hosts, command, variables)
    return [_answered(name, reply, accept.device) for name, reply in zip(accept.hosts, replies, strict=True)]


def _answered(name: str, reply: Answer | str, device: str) -> Seen:
    if isinstance(reply, str):
        return Seen(name, away=f"it {reply}")
    if not reply.sees_files:
        return Seen(name, away="it does not see this project's files")
    if reply.refused:
        return Seen(name, away=reply.refused.what)
    if device not in ("auto", "cpu") and not reply.gpus.count:
        return Seen(name, away=f"it has no {device}")
    on_cpu = device == "cpu" or not reply.gpus.count
    kind = "cpu" if on_cpu else str(reply.gpus.kind)
    return Seen(name, kind, 0 if on_cpu else reply.gpus.count, reply.cpu.count)


class NodeFiles:
    """Files that tell Slurm the nodes of a job (`sbatch --nodefile`), so that no command and no log names a node.

    They lie in a private temporary folder, which `remove` removes.
    """

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._files: dict[tuple[str, ...], Path] = {}

    def file(self, names: Sequence[str]) -> Path:
        self._folder = self._folder or Path(tempfile.mkdtemp(prefix="throughline-nodes-"))
        if tuple(names) not in self._files:
            path = self._files[tuple(names)] = self._folder / f"nodes{len(self._files)}"
            path.write_text("\n".join(names) + "\n")
        return self._files[tuple(names)]

    def remove(self) -> None:
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)


def _plain(fleet: Fleet) -> dict[str, Any]:
    return asdict(fleet) | {"nodes": list(fleet.nodes)}
