# Where runs take place: what a topology requests from Slurm, and the hosts of runs.hosts.
#
# On Slurm a run is one job, which has the nodes of its topology for itself. Its launcher starts one agent on each node.
import json
import os

from throughline import files, frameworks
from throughline.launch import slurm_partition
from throughline.spec import Topology
from throughline.study import runs
from throughline.study.benchmark import Placement

MEMORY_MB = {"cpu": 1500} | dict.fromkeys(frameworks.accelerators(), 16000)
"""Main memory in MB that a job requests for each device of a node. slurm/config.yaml can set another amount."""


def shape_of_spec(spec):
    """The topology in real machines: simulated nodes all lie on one machine."""
    return Topology(1, spec.topology.world) if spec.hosts == "simulated" else spec.topology


def placement_of_spec(spec):
    """What runs.slurm sets for a run's topology."""
    return CONFIG.block(spec.benchmark).slurm.get(str(spec.topology), Placement())


def partition_of_spec(spec):
    """The first partition that --set-resources, runs.slurm or the default resources name for a run; None: Slurm's
    default."""
    chosen, default = INSIDE.resource("run", "slurm_partition")
    names = (chosen, placement_of_spec(spec).partition, default)
    return next(map(str, filter(None, names)), None)


def device_of_spec(spec):
    """The device that a run reserves from Slurm. If it reserves nothing, its own node decides what `auto` means."""
    if spec.device != "auto":
        return spec.device
    if not INSIDE.submits or INSIDE.is_submitted:
        return "cpu"
    return answered(slurm_partition.device, partition_of_spec(spec))[0]


def reserved_devices(pending):
    """What `runs.device: auto` means on this cluster: one line for each partition that pending runs go to."""
    if not INSIDE.submits:
        return []
    open_specs = [spec for spec in SPECS if spec.device == "auto" and spec.record in pending]
    settled = map(slurm_partition.device, dict.fromkeys(map(partition_of_spec, open_specs)))
    return [
        f"runs.device is auto, and {reason}: runs reserve {'GPUs' if device == 'cuda' else 'no GPUs'}"
        for device, reason in settled
    ]


def cores_of_spec(spec):
    """Cores that a run needs on each node.

    On CPUs: one for each thread of its ranks, or for each process that decodes pictures, whichever are more. With GPUs
    on Slurm: all cores of the node, because batches are prepared there and devices are driven from there. Inside a
    Slurm job: what Slurm has granted.
    """
    threads = shape_of_spec(spec).devices * max(spec.threads, spec.decoders)
    if INSIDE.is_submitted:
        return int(os.environ.get("SLURM_CPUS_PER_TASK", threads))
    if not INSIDE.submits or device_of_spec(spec) == "cpu":
        return threads
    return answered(slurm_partition.cores, partition_of_spec(spec))


def memory_mb_of_spec(spec):
    """Main memory in MB that a run requests on each node."""
    return shape_of_spec(spec).devices * MEMORY_MB[device_of_spec(spec)]


def slurm_options_of_spec(spec):
    """Further options of a job for Slurm. Not `--gpus`: it would spread the GPUs unevenly over the nodes."""
    gpus = f" --gpus-per-node={shape_of_spec(spec).devices}" if device_of_spec(spec) != "cpu" else ""
    return f"--ntasks-per-node=1{gpus}"


def resources_of_specs(specs_of, options=""):
    """The resources of a job that trains several specifications one after the other, the largest topology last.
    `specs_of` maps the job's wildcards to the specifications; `options`: further options for Slurm."""

    def largest(look_up):
        return lambda wildcards: look_up(specs_of(wildcards)[-1])

    return {
        "bench_slot": 1,
        "cpus_per_task": largest(cores_of_spec),
        "slurm_partition": largest(partition_of_spec),
        "constraint": largest(lambda spec: placement_of_spec(spec).constraint),
        "slurm_extra": largest(lambda spec: slurm_options_of_spec(spec) + options),
        "mem_mb": largest(memory_mb_of_spec),
    }


def resources_of_run(spec_of):
    """The resources that the job of a run requests from the machine or from Slurm. `spec_of` maps the job's wildcards
    to its specification."""

    def nodes_of(wildcards):
        return shape_of_spec(spec_of(wildcards)).nodes

    return {
        **resources_of_specs(lambda wildcards: [spec_of(wildcards)], options=" --exclusive"),
        "nodes": nodes_of,
        "tasks": nodes_of,
        "mpi": lambda wildcards: "srun" if nodes_of(wildcards) > 1 else None,
    }


# These settings are environment variables. They are not parameters of a rule, so other hosts, or a model's file at
# another path, do not make finished results again. They are not words of a command, so host names appear in no log.
os.environ.update(
    THROUGHLINE_HOSTS=json.dumps(
        {name: block.hosts for name, block in CONFIG.benchmarks.items() if isinstance(block.hosts, list)}
    ),
    THROUGHLINE_MODELS=json.dumps(CONFIG.model_files()),
    THROUGHLINE_STRICT=" ".join(name for name, block in CONFIG.benchmarks.items() if block.strict),
    **{
        runs.CONFIGURATION: runs.packed(CONFIG),
        files.STARTED_WITH: files.started_with(*INSIDE.given, INSIDE.snakefile),
    },
)
