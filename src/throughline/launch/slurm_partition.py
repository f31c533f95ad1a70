"""Ask Slurm for the nodes of a partition, and give up its jobs that wait for a node which has gone down.

Slurm keeps jobs that wait for a node in its queue until the node is back, which may take days. So an acceptance gives
them up and ends without that node. A node job that is given up fails like any other: its figures are missing in the
verdict, and the next call makes it. A node that was down before Snakemake started has no jobs (fleet.py).
"""

import re
import subprocess
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from throughline import files
from throughline.files import UserError

SINFO = ["sinfo", "--noheader", "--exact", "--Node", "--format", "%N|%P|%T|%G|%c|%f"]
UP = ("idle", "mixed", "allocated", "completing", "planned", "reserved")
"""The states of nodes on which jobs start, now or later."""
LOOK_EVERY_S = 30.0
WAITING = ["squeue", "--me", "--noheader", "--states", "PENDING", "--format", "%A|%Z|%k|%n"]


@dataclass(frozen=True)
class SlurmNode:
    """A node of a partition. state: in Slurm's words; gpus: how many it has; features: as `sbatch --constraint` names
    them."""

    name: str
    state: str
    gpus: int
    cores: int
    features: frozenset[str]

    @property
    def is_up(self) -> bool:
        """True if jobs start on it, now or when other jobs have ended. A star means that it does not respond."""
        return self.state.rstrip("~#!%$@^-+") in UP

    @property
    def is_lost(self) -> bool:
        """True if no job starts on it before somebody brings it back. One that only does not respond may do so soon."""
        return self.state.rstrip("*~#!%$@^-+") not in UP


@cache
def nodes(partition: str | None) -> tuple[SlurmNode, ...]:
    """Return the nodes of a partition, as they were when they were first asked for."""
    return nodes_now(partition)


def nodes_now(partition: str | None) -> tuple[SlurmNode, ...]:
    """Return the nodes of a partition (None: the default one) by name. Raise UserError if Slurm names none."""
    listed, lines, why = list[SlurmNode](), list[str](), None
    try:
        lines = _output([*SINFO, *(["--partition", partition] if partition else [])]).splitlines()
    except (OSError, subprocess.SubprocessError) as error:
        why = " ".join(f"`sinfo`: {getattr(error, 'stderr', None) or error}".split())
    for line in lines:
        name, partition_name, state, resources, cpus, features = line.split("|")
        if partition or partition_name.endswith("*"):
            listed.append(SlurmNode(name, state, _gpus(resources), int(cpus), frozenset(features.split(","))))
    if not listed:
        raise UserError(
            f"Slurm names no node of {named(partition)}",
            why=why,
            next_step="check slurm_partition in slurm/config.yaml and accept.partition against `sinfo`; without it, "
            "name the topologies, set runs.device, and use --set-resources run:cpus_per_task=<cores of a node>",
        )
    return tuple(sorted(listed, key=lambda node: files.natural(Path(node.name))))


def _gpus(resources: str) -> int:
    """Return the GPUs among a node's generic resources, such as `gpu:a100:no_consume:4(S:0,2),nvme:1`.

    The last word is the number, and without it there is one. The type and flags may stand before it.
    """
    words = [entry.split(":")[-1] for entry in re.findall(r"(?:^|,)(gpu(?::[^:,()]+)*)(?=[,(]|$)", resources)]
    return sum(int(word) if word.isdigit() else 1 for word in words)


def device(partition: str | None) -> tuple[str, str]:
    """Return the device that `runs.device: auto` means in a partition (None: the default partition), and the reason.

    It is `cuda` if all nodes of the partition have GPUs, and `cpu` if no node has. Raise UserError if only some nodes
    have GPUs.
    """
    with_gpus, count = sum(node.gpus > 0 for node in nodes(partition)), len(nodes(partition))
    if 0 < with_gpus < count:
        raise UserError(
            f"runs.device is auto, and {named(partition)} has nodes with GPUs ({with_gpus}) and without "
            f"({count - with_gpus})",
            why="one run has to get nodes of one kind",
            next_step="set runs.device to cuda or cpu, for instance with --config 'runs={device: cuda}'; or name "
            "another partition (slurm_partition in slurm/config.yaml)",
        )
    if with_gpus:
        return "cuda", f"every node of {named(partition)} has GPUs"
    return "cpu", f"no node of {named(partition)} has GPUs"


def cores(partition: str | None) -> int:
    """Return the number of cores of the nodes with GPUs in a partition, or the smallest one if they differ.

    Raise UserError if the partition has no such nodes.
    """
    with_gpus = [node.cores for node in nodes(partition) if node.gpus]
    if not with_gpus:
        raise UserError(
            f"Slurm names no node with GPUs in {named(partition)}",
            why="a run with GPUs asks for all cores of its nodes",
            next_step="choose a partition with GPUs, or runs.device: cpu; or say how many cores a node of yours has, "
            "with --set-resources run:cpus_per_task=<cores>",
        )
    return min(with_gpus)


def capacity(partition: str | None, with_gpus: bool) -> tuple[int, int, int]:
    """Return the nodes of a partition on which jobs start now or later, and the GPUs and cores that each of them has.

    with_gpus: only nodes with GPUs count; otherwise all count, and their GPUs do not. Raise UserError if there is none.
    """
    up = [node for node in nodes(partition) if node.is_up and (node.gpus or not with_gpus)]
    if not up:
        raise UserError(
            f"topologies: auto, and no node {'with GPUs ' * with_gpus}of {named(partition)} is up",
            next_step="check `sinfo`, or name the topologies",
        )
    return len(up), min(node.gpus for node in up) if with_gpus else 0, min(node.cores for node in up)


def named(partition: str | None) -> str:
    """Return a partition in words."""
    return f"partition {partition}" if partition else "the default partition"


def watch_lost_nodes(
    names: Mapping[int, str], partition: str | None, say: Callable[[str], None], folder: Path | None = None
) -> threading.Event:
    """Look for lost nodes from time to time, in a thread, until the returned event is set.

    names: of the nodes by their number; folder: the one in which Snakemake works.
    """
    over = threading.Event()
    here = str(folder or Path.cwd())

    def look() -> None:
        before: set[str] = set()
        while not over.wait(LOOK_EVERY_S):
            with suppress(UserError, OSError, subprocess.SubprocessError):  # Slurm is busy: it is asked again
                before = give_up(names, nodes_now(partition), before, here, say)

    threading.Thread(target=look, daemon=True, name="lost nodes").start()
    return over


def give_up(
    names: Mapping[int, str],
    nodes: Collection[SlurmNode],
    before: Collection[str],
    folder: str,
    say: Callable[[str], None],
) -> set[str]:
    """Cancel the node jobs that wait for a node which is away now and was away before. Return all that are away.

    names: of the nodes by their number; before: what the call before has returned.
    """
    away = {node.name: node.state for node in nodes if node.name in names.values() and node.is_lost}
    for number, name in names.items():
        if name not in away or name not in before:
            continue
        if jobs := [job for job, wanted in _waiting(folder).items() if name in wanted]:
            subprocess.run(["scancel", *jobs], check=True, capture_output=True, timeout=60)
            visits = "1 node job that waits" if len(jobs) == 1 else f"{len(jobs)} node jobs that wait"
            say(f"node {number}: Slurm says that it is {away[name]}; {visits} for it given up, a later call makes them")
    return set(away)


def _waiting(folder: str) -> dict[str, list[str]]:
    """Map the node jobs of this folder that wait in Slurm's queue to the nodes that they ask for."""
    found = {}
    for line in _output(WAITING).splitlines():
        job, where, comment, wanted = line.split("|")
        if where == folder and comment.startswith("rule_accept_visit"):
            found[job] = _output(["scontrol", "show", "hostnames", wanted]).split()
    return found


def _output(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
