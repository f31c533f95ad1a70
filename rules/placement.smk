# Where runs run: a topology as what Slurm is asked for, and the hosts of runs.hosts.
#
# On Slurm a run is one job of its topology's nodes, with nobody else on them; its launcher starts one agent a node.
import json

from throughline import topology
from throughline.launch import partition

MEMORY_MB = {"cuda": 16000, "cpu": 1500}
"""Main memory per device and node, for a job to be granted; slurm/config.yaml can ask for another amount."""


def shape_of_spec(spec):
    """The topology as machines see it: nodes that are simulated are one machine."""
    shape = topology.Topology.parse(spec.topology)
    return topology.Topology(1, shape.world) if spec.hosts == "simulated" else shape


def partition_of_runs():
    """The partition that slurm/config.yaml or the command line names for runs; None: the cluster's default one."""
    settings = workflow.resource_settings
    for given in (settings._parsed_overwrite_resources.get("run", {}), settings._parsed_default_resources):
        if "slurm_partition" in given:
            return str(given["slurm_partition"].raw)


def device_of_spec(spec):
    """What a run reserves of Slurm's nodes; where it reserves nothing, its own node settles what `auto` is."""
    if spec.device != "auto":
        return spec.device
    if not workflow.non_local_exec or workflow.remote_exec:
        return "cpu"
    try:
        return partition.device(partition_of_runs())[0]
    except UserError as error:
        raise WorkflowError(str(error))


def reserved_devices(pending):
    """What `runs.device: auto` has come to on this cluster, in words; nothing where no pending run leaves it open."""
    if not workflow.non_local_exec or not any(spec.device == "auto" and spec.record in pending for spec in SPECS):
        return ""
    device, why = partition.device(partition_of_runs())
    return f"runs.device is auto, and {why}: runs reserve {'GPUs' if device == 'cuda' else 'no GPUs'}\n"


def slurm_options_of_spec(spec):
    """What a job asks of Slurm beside its resources. `--gpus` would spread GPUs unevenly over the nodes."""
    gpus = f" --gpus-per-node={shape_of_spec(spec).devices}" if device_of_spec(spec) == "cuda" else ""
    return f"--ntasks-per-node=1 --exclusive{gpus}"


def resources_of_run(spec_of):
    """What the job of a run asks of the machine or of Slurm; `spec_of` gives the specification of a job's wildcards."""

    def shape_of(wildcards):
        return shape_of_spec(spec_of(wildcards))

    return {
        "bench_slot": 1,
        "cpus_per_task": lambda wildcards: shape_of(wildcards).devices * spec_of(wildcards).threads,
        "nodes": lambda wildcards: shape_of(wildcards).nodes,
        "tasks": lambda wildcards: shape_of(wildcards).nodes,
        "mpi": lambda wildcards: "srun" if shape_of(wildcards).nodes > 1 else None,
        "slurm_extra": lambda wildcards: slurm_options_of_spec(spec_of(wildcards)),
        "mem_mb": lambda wildcards: shape_of(wildcards).devices * MEMORY_MB[device_of_spec(spec_of(wildcards))],
    }


def equivalence_slurm_options(wildcards):
    """What a proof asks of Slurm: the devices of its largest topology, on one node."""
    largest = compared_of(wildcards)[-1]
    return "--ntasks-per-node=1" + (
        f" --gpus-per-node={shape_of_spec(largest).devices}" if device_of_spec(largest) == "cuda" else ""
    )


# No parameter of a rule: other hosts make nothing again. And no word of a command: their names are in no log.
os.environ.update(
    THROUGHLINE_HOSTS=json.dumps(
        {name: block.hosts for name, block in CONFIG.benchmarks.items() if isinstance(block.hosts, list)}
    ),
    THROUGHLINE_STRICT=" ".join(name for name, block in CONFIG.benchmarks.items() if block.strict),
    **{
        runs.CONFIGURATION: runs.packed(CONFIG),
        files.STARTED_WITH: files.started_with(workflow.config_settings.configfiles, workflow.config_settings.config),
    },
)
