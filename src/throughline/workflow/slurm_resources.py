"""What a run requests from the machine or from Slurm: cores, memory, a partition, GPUs.

On Slurm a run is one job, which has the nodes of its topology for itself. Its launcher starts one agent on each node.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass

from throughline import frameworks
from throughline.launch import slurm_partition
from throughline.spec import RunSpec, Topology
from throughline.study.benchmark import Placement
from throughline.study.config import Config
from throughline.workflow.call import or_exit
from throughline.workflow.inside import Inside

MEMORY_MB = {"cpu": 1500} | dict.fromkeys(frameworks.accelerators(), 16000)
"""Main memory in MB that a job requests for each device of a node. slurm/config.yaml can set another amount."""


def shape(spec: RunSpec) -> Topology:
    """Return the topology in real machines: simulated nodes all lie on one machine."""
    return Topology(1, spec.topology.world) if spec.hosts == "simulated" else spec.topology


@dataclass(frozen=True)
class SlurmResources:
    """What the runs of a configuration request in this call of Snakemake."""

    config: Config
    inside: Inside

    def placement(self, spec: RunSpec) -> Placement:
        """Return what runs.slurm sets for a run's topology."""
        return self.config.block(spec.benchmark).slurm.get(str(spec.topology), Placement())

    def partition(self, spec: RunSpec) -> str | None:
        """Return the first partition that --set-resources, runs.slurm or the default resources name for a run.

        None: Slurm's default.
        """
        return self.first_partition("run", self.placement(spec).partition)

    def first_partition(self, rule: str, configured: str | None) -> str | None:
        """Return the partition of a rule's jobs if the configuration names `configured`."""
        chosen, default = self.inside.resource(rule, "slurm_partition")
        return next(map(str, filter(None, (chosen, configured, default))), None)

    def device(self, spec: RunSpec) -> str:
        """Return the device that a run reserves. If it reserves nothing, its own node decides what `auto` means."""
        if spec.device != "auto":
            return spec.device
        if not self.inside.submits or self.inside.is_submitted:
            return "cpu"
        return or_exit(slurm_partition.device, self.partition(spec))[0]

    def cores(self, spec: RunSpec) -> int:
        """Return the cores that a run needs on each node.

        On CPUs: one for each thread of its ranks, or for each process that decodes pictures, whichever are more. With
        GPUs on Slurm: all cores of the node, because batches are prepared there and devices are driven from there.
        Inside a Slurm job: what Slurm has granted.
        """
        threads = shape(spec).devices * max(spec.threads, spec.decoders)
        if self.inside.is_submitted:
            return int(os.environ.get("SLURM_CPUS_PER_TASK", threads))
        if not self.inside.submits or self.device(spec) == "cpu":
            return threads
        return or_exit(slurm_partition.cores, self.partition(spec))

    def memory_mb(self, spec: RunSpec) -> int:
        """Return the main memory in MB that a run requests on each node."""
        return shape(spec).devices * MEMORY_MB[self.device(spec)]

    def options(self, spec: RunSpec) -> str:
        """Return further options of a job for Slurm. Not `--gpus`: it would spread GPUs unevenly over the nodes."""
        gpus = f" --gpus-per-node={shape(spec).devices}" if self.device(spec) != "cpu" else ""
        return f"--ntasks-per-node=1{gpus} --exclusive"

    def reserved_devices(self, pending: Iterable[RunSpec]) -> list[str]:
        """Return what `runs.device: auto` means on this cluster: a line for each partition that these runs go to."""
        if not self.inside.submits:
            return []
        partitions = dict.fromkeys(self.partition(spec) for spec in pending if spec.device == "auto")
        return [
            f"runs.device is auto, and {reason}: runs reserve {'GPUs' if device == 'cuda' else 'no GPUs'}"
            for device, reason in map(slurm_partition.device, partitions)
        ]
