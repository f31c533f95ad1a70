"""Ask Slurm for the nodes of a partition. Snakemake does so before it submits anything."""

import subprocess
from dataclasses import dataclass
from functools import cache

from throughline.files import UserError

COMMAND = ["sinfo", "--noheader", "--exact", "--format", "%P|%D|%G|%c"]
MENDING = "set runs.device to cuda or cpu, for instance with --config 'runs={device: cuda}'"


@cache
def device(partition: str | None) -> tuple[str, str]:
    """Return the device that `runs.device: auto` means in a partition (None: the default partition), and the reason.

    It is `cuda` if all nodes of the partition have GPUs, and `cpu` if no node has. Raise UserError if only some nodes
    have GPUs, or if Slurm does not answer.
    """
    counts = {True: 0, False: 0}
    named = _named(partition)
    for group in _groups(partition, f"runs.device is auto, and Slurm does not say what {named} has", MENDING):
        counts[group.has_gpus] += group.nodes
    if not any(counts.values()):
        raise UserError(
            f"runs.device is auto, and Slurm names no node of {named}",
            next_step="check slurm_partition in slurm/config.yaml against `sinfo`, or " + MENDING,
        )
    if all(counts.values()):
        raise UserError(
            f"runs.device is auto, and {named} has nodes with GPUs ({counts[True]}) and without ({counts[False]})",
            why="one run has to get nodes of one kind",
            next_step=MENDING + "; or name another partition (slurm_partition in slurm/config.yaml)",
        )
    if counts[True]:
        return "cuda", f"every node of {named} has GPUs"
    return "cpu", f"no node of {named} has GPUs"


@cache
def cores(partition: str | None) -> int:
    """Return the number of cores of the nodes with GPUs in a partition, or the smallest one if they differ.

    Raise UserError if the partition has no such nodes.
    """
    what = f"Slurm names no node with GPUs in {_named(partition)}"
    mending = "choose a partition with GPUs, or runs.device: cpu; or say how many cores a node of yours has, with "
    mending += "--set-resources run:cpus_per_task=<cores>"
    cores = [group.cores for group in _groups(partition, what, mending) if group.has_gpus]
    if not cores:
        raise UserError(what, why="a run with GPUs asks for all cores of its nodes", next_step=mending)
    return min(cores)


def _named(partition: str | None) -> str:
    return f"partition {partition}" if partition else "the default partition"


@dataclass(frozen=True)
class Group:
    """Nodes of a partition with the same resources."""

    nodes: int
    has_gpus: bool
    cores: int


def _groups(partition: str | None, what: str, mending: str) -> list[Group]:
    """Return the nodes of a partition. Raise UserError(what) if Slurm does not answer."""
    command = [*COMMAND, *(["--partition", partition] if partition else [])]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        answer = getattr(error, "stderr", None) or error
        raise UserError(what, why=" ".join(f"`sinfo`: {answer}".split()), next_step=mending) from None
    groups = []
    for line in done.stdout.split("\n")[:-1]:
        name, nodes, resources, cpus = line.split("|")
        if partition or name.endswith("*"):
            kinds = {resource.partition(":")[0] for resource in resources.split(",")}
            groups.append(Group(int(nodes), "gpu" in kinds, int(cpus)))
    return groups
