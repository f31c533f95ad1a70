"""The blocks of the configuration that are not for this machine (`only_on`), and so are no default targets.

The call of Snakemake that the user starts decides it. Its jobs get the answer (handover.py), so that all of them have
the same runs.
"""

import os
from collections.abc import Collection, Mapping, MutableMapping

from throughline import handover
from throughline.gpus import visible_devices
from throughline.installation import choose
from throughline.launch import slurm_partition
from throughline.study.benchmark import Benchmark
from throughline.study.config import block_name

NAMES = {"cuda": "GPUs", "cpu": "CPUs"}


def skipped(
    blocks: Mapping[str, Benchmark],
    targets: Collection[str],
    on_slurm: bool,
    partition: str | None,
    variables: MutableMapping[str, str] = os.environ,
) -> dict[str, str]:
    """Map each block that is for another kind of device to that kind. A block whose file is a target is never skipped.

    targets: what the user has named. on_slurm: runs are jobs on the nodes of a partition, None for the default one.
    """
    given: dict[str, str] | None = handover.get("skipped", None, variables)
    if given is None:
        named = {block_name(parts[1]) for target in targets if len(parts := target.split("/")) > 1}
        asked = {name: block for name, block in blocks.items() if block.only_on and name not in named}
        auto = "" if all(block.device != "auto" for block in asked.values()) else _here(on_slurm, partition, variables)
        kinds = {name: auto if block.device == "auto" else block.device for name, block in asked.items()}
        given = {name: str(block.only_on) for name, block in asked.items() if block.only_on != kinds[name]}
        handover.add(variables, skipped=given)
    return given


def _here(on_slurm: bool, partition: str | None, variables: Mapping[str, str]) -> str:
    """Return the kind of the devices on which runs with `device: auto` take place."""
    if on_slurm:
        return slurm_partition.device(partition)[0]
    hidden = visible_devices(variables.get("CUDA_VISIBLE_DEVICES")) == []
    return "cuda" if choose.facts().cards and not hidden and choose.wanted() != "none" else "cpu"
