"""What a block of the configuration means on the devices that are here, or on those of Slurm's partition.

The call of Snakemake that the user starts finds the devices. Jobs that it starts, here or on other machines, get the
answers (handover.py), so that all of them have the same runs.
"""

import os
from collections.abc import Collection, Mapping, MutableMapping
from dataclasses import astuple, dataclass, field

from throughline import handover
from throughline.files import UserError
from throughline.gpus import visible_devices
from throughline.installation import choose
from throughline.launch import seen_devices, slurm_partition
from throughline.numbers import counted
from throughline.observe import environment
from throughline.spec import Topology
from throughline.study.benchmark import Benchmark
from throughline.study.config import block_name

NAMES = {"cuda": "GPUs", "cpu": "CPUs"}


@dataclass(frozen=True)
class Devices:
    """Nodes, and the devices of each of them. text: where they are, in words."""

    nodes: int
    devices: int
    text: str


@dataclass
class AutoTopologies:
    """The topologies of blocks that say `auto`, and the blocks that are for another kind of device.

    on_slurm: runs are jobs on the nodes of a partition, None for the default one. lines: what is said of both in the
    plan.
    """

    on_slurm: bool = False
    partition: str | None = None
    variables: MutableMapping[str, str] = field(default_factory=lambda: os.environ)
    lines: dict[str, None] = field(default_factory=dict)

    def __call__(self, block: Benchmark) -> list[str]:
        """Return the topologies of a block. Those on which its steps cannot have their size are left out.

        Raise UserError if the block has hosts, or if Slurm or a framework does not say which devices there are.
        """
        if block.hosts:
            raise UserError(
                "topologies: auto, and runs.hosts is set",
                why="auto asks this machine or a partition of Slurm for their devices, and no other hosts",
                next_step="name the topologies, such as [1n1g, 1n8g, 2n8g]; or remove runs.hosts",
            )
        answers = handover.get("topologies", {}, self.variables)
        question = f"{block.device} {block.threads} {block.nodes_at_most}"
        if question not in answers:
            answers[question] = astuple(self._on_slurm(block) if self.on_slurm else _here(block))
            handover.add(self.variables, topologies=answers)
        devices = Devices(*answers[question])
        names = ladder(devices)
        chosen = [name for name in names if _has_size(block, name)] or names  # if none is left, errors name them all
        means = f"auto is {', '.join(chosen)}" if block.topologies == "auto" else f"all is {chosen[-1]}"
        self.lines[f"topologies: {means}: {devices.text}"] = None
        return chosen

    def _on_slurm(self, block: Benchmark) -> Devices:
        device = slurm_partition.device(self.partition)[0] if block.device == "auto" else block.device
        nodes, gpus, cores = slurm_partition.capacity(self.partition, device != "cpu")
        used = min(nodes, block.nodes_at_most)
        each = f"{gpus} GPUs" if gpus else f"{cores} CPU cores"
        limit = f", of which runs.nodes_at_most takes {used}" if used < nodes else ""
        text = f"{nodes} nodes of {slurm_partition.named(self.partition)} with {each} each{limit}"
        return Devices(used, gpus or max(1, cores // block.threads), text)

    def skipped(self, targets: Collection[str], blocks: Mapping[str, Benchmark]) -> Collection[str]:
        """Return the blocks that are for another kind of device. A block whose file is a target is never skipped.

        targets: what the user has named.
        """
        given: dict[str, str] | None = handover.get("skipped", None, self.variables)
        if given is None:
            named = {block_name(parts[1]) for target in targets if len(parts := target.split("/")) > 1}
            asked = {name: block for name, block in blocks.items() if block.only_on and name not in named}
            auto = self._kind_here() if any(block.device == "auto" for block in asked.values()) else ""
            kinds = {name: auto if block.device == "auto" else block.device for name, block in asked.items()}
            given = {name: str(block.only_on) for name, block in asked.items() if block.only_on != kinds[name]}
            handover.add(self.variables, skipped=given)
        self.lines.update({f"{name}: skipped, it is for {NAMES[kind]}": None for name, kind in given.items()})
        return given

    def _kind_here(self) -> str:
        """Return the kind of the devices on which runs with `device: auto` take place."""
        if self.on_slurm:
            return slurm_partition.device(self.partition)[0]
        hidden = visible_devices(self.variables.get("CUDA_VISIBLE_DEVICES")) == []
        return "cuda" if choose.facts().cards and not hidden and choose.wanted() != "none" else "cpu"


def _here(block: Benchmark) -> Devices:
    """Return the devices of this machine: its GPUs, or as many workers as its cores have threads for."""
    if block.device != "cpu":
        gpus = seen_devices.here(block.device).count
        if gpus:
            return Devices(1, gpus, f"{counted(gpus, 'GPU')} of this machine")
        if block.device != "auto":
            raise UserError(
                f"the configuration asks for all GPUs (topologies: auto), and {seen_devices.TORCH} sees none here",
                next_step="make doctor says what this machine has; without GPUs, choose another preset or device",
            )
    cores = environment.cpu_cores()
    return Devices(1, max(1, cores // block.threads), f"{counted(cores, 'CPU core')} of this machine")


def ladder(devices: Devices) -> list[str]:
    """Return 1n1g, then twice as many devices up to all of a node, then twice as many nodes up to all."""
    on_one = [Topology(1, count) for count in _doubled(devices.devices)]
    on_several = [Topology(count, devices.devices) for count in _doubled(devices.nodes)[1:]]
    return [str(topology) for topology in [*on_one, *on_several]]


def _doubled(most: int) -> list[int]:
    """Return 1, 2, 4 ... and `most` itself."""
    return [*(1 << power for power in range((most - 1).bit_length())), most]


def _has_size(block: Benchmark, topology: str) -> bool:
    try:
        for batches in block.batch.values():
            for batch in batches:
                block.size(Topology.parse(topology), batch)
    except UserError:
        return False
    return True
