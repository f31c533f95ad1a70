"""What a partition of Slurm has, asked where Snakemake runs, before anything is submitted."""

import subprocess
from functools import cache
from typing import Literal

from throughline.files import UserError

MENDING = "set runs.device to cuda or cpu, for instance with --config 'runs={device: cuda}'"


@cache
def device(partition: str | None) -> tuple[Literal["cuda", "cpu"], str]:
    """What `runs.device: auto` reserves in a partition (None: the cluster's default one), and why.

    `cuda` where all of its nodes have GPUs, `cpu` where none has. UserError where some have, or Slurm does not say.
    """
    counts = {True: 0, False: 0}
    named = f"partition {partition}" if partition else "the default partition"
    for line in _sinfo(named, partition):
        name, nodes, resources = line.split("|")
        if partition or name.endswith("*"):
            kinds = {resource.partition(":")[0] for resource in resources.split(",")}
            counts["gpu" in kinds] += int(nodes)
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


def _sinfo(named: str, partition: str | None) -> list[str]:
    command = ["sinfo", "--noheader", "--format", "%P|%D|%G", *(["--partition", partition] if partition else [])]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        answer = getattr(error, "stderr", None) or error
        raise UserError(
            f"runs.device is auto, and Slurm does not say what {named} has",
            why=" ".join(f"`sinfo`: {answer}".split()),
            next_step=MENDING,
        ) from None
    return done.stdout.split("\n")[:-1]
