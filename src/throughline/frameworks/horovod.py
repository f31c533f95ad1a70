"""What the frameworks on Horovod share: their options, how their ranks start and meet, and the versions of Horovod.

Standard library only at its top.
"""

import os
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Literal

from throughline import processes
from throughline.frameworks.description import Variables
from throughline.frameworks.rank import refuse_if
from throughline.frameworks.starters import WORKER, Starter, srun
from throughline.messages import LaunchPlan
from throughline.spec import Options, Part, RunSpec, key

JOB_VARIABLES = ("SLURM_CONF", "SLURM_JOB_ID", "SLURM_JOBID")
"""The variables of Slurm with which srun finds the job."""
ASYNCHRONOUS = "HOROVOD_ENABLE_ASYNC_COMPLETION"
"""The variable that lets `synchronize` return as soon as the exchange is queued on the device."""


@dataclass(frozen=True)
class HorovodOptions(Part):
    """The options that only Horovod has."""

    controller: Literal["gloo", "mpi"] = key(
        "how Horovod's ranks find each other, and on CPUs exchange gradients", default="gloo"
    )
    nccl: bool = key("false: Horovod exchanges gradients of GPUs without NCCL; it has to be built so", default=True)


def command(spec: RunSpec, plan: LaunchPlan, path: str, folder: str) -> list[str]:
    """Return the command of horovodrun, or of mpirun if the options ask for MPI.

    Both reach the other nodes through `ssh`.
    """
    hosts, remote = [], []
    if plan.hosts:
        hosts = ["-H", ",".join(f"{name}:{plan.per_node}" for name in plan.hosts)]
    if plan.reach == "slurm":
        remote = ["env", *_without_step(), f"PATH={_srun_as_ssh(plan, folder)}{os.pathsep}{os.environ['PATH']}"]
    start = ["-np", str(plan.world), *hosts]
    worker = processes.module(plan.python, WORKER, path)
    wants_mpi = isinstance(spec.options, HorovodOptions) and spec.options.controller == "mpi"
    if wants_mpi and shutil.which("mpirun"):  # without mpirun, ranks start over gloo and report that it is missing
        passed = [word for name in sorted(plan.variables) if plan.hosts for word in ("-x", name)]
        once = ["--oversubscribe", "--bind-to", "none", "--map-by", "slot"]
        # MPI must not use its own support for Slurm, because Snakemake removes the variables that this needs.
        once += ["--mca", "plm", "rsh", "--mca", "ras", "^slurm"]
        return [*remote, "mpirun", "--allow-run-as-root", *start, *once, *passed, *worker]
    return [*remote, str(Path(plan.python).with_name("horovodrun")), *start, "--gloo", *worker]


def _without_step() -> list[str]:
    """Return options of `env` that hide the agent's own step of Slurm. Its settings would bind the steps of srun."""
    of_step = sorted(name for name in os.environ if name.startswith("SLURM_") and name not in JOB_VARIABLES)
    return [word for name in of_step for word in ("-u", name)]


def _srun_as_ssh(plan: LaunchPlan, folder: str) -> str:
    """Make a folder with a program `ssh` that runs its command on a node of the Slurm job, and return its path.

    The program uses srun, because on the nodes of a Slurm cluster the real ssh is often not allowed.
    """
    programs = Path(folder, "bin")
    programs.mkdir()
    step = shlex.join(srun(1, plan.cores))
    ssh = programs / "ssh"
    ssh.write_text(
        "#!/bin/sh\n"
        "host=\n"
        'while :; do case "$1" in -[opi]) shift 2 ;; -*) shift ;;\n'
        '  *) if [ "$host" ]; then break; fi; host=$1; shift ;; esac; done\n'
        f'exec {step} --overlap --nodelist="$host" sh -c "$*" < /dev/null\n'
    )
    ssh.chmod(0o755)
    return str(programs)


STARTER = Starter(
    "horovod",
    command,
    (
        ("HOROVOD_RANK", "HOROVOD_LOCAL_RANK", "HOROVOD_SIZE"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"),
    ),
)


def on_gpus(given: Variables) -> dict[str, str]:
    """Let the device wait for the gradients of the other ranks. By default, the host waits for them in every step."""
    return {ASYNCHRONOUS: given.get(ASYNCHRONOUS, "1")}


def join(hvd: ModuleType, options: Options, kind: str) -> None:
    """Meet the other ranks through the launcher that started this rank. Raise Unsupported if Horovod was built without
    the controller, and on GPUs if the options say about NCCL what is not built in."""
    assert isinstance(options, HorovodOptions)
    mpi, on_gpu = options.controller == "mpi", kind == "cuda"
    refuse_if(mpi and shutil.which("mpirun") is None, "there is no mpirun here (Debian, Ubuntu: openmpi-bin)")
    refuse_if(
        mpi and not hvd.mpi_built(),
        "Horovod was built without MPI: install its compiler (Debian, Ubuntu: libopenmpi-dev), then make frameworks",
    )
    refuse_if(
        on_gpu and options.nccl and not hvd.nccl_built(),
        "Horovod was built without NCCL, so gradients would travel through the host: GPU=auto make frameworks builds "
        "it with NCCL, or measure it as it is with options: {nccl: false}",
    )
    refuse_if(
        on_gpu and not options.nccl and bool(hvd.nccl_built()),
        "Horovod was built with NCCL, and options.nccl is false: HOROVOD_GPU_OPERATIONS= make frameworks builds one "
        "without, and with the same variable set snakemake uses it",
    )
    # The size of Horovod's buckets: gradients that are ready in the same cycle travel together, up to this many bytes.
    os.environ["HOROVOD_FUSION_THRESHOLD"] = str(options.bucket_mb << 20)
    hvd.init()


def versions(hvd: ModuleType, options: Options) -> dict[str, str | None]:
    import horovod

    assert isinstance(options, HorovodOptions)
    nccl = int(hvd.nccl_built())
    return {
        "horovod": horovod.__version__,
        "controller": options.controller,
        "horovod_nccl": dotted(nccl, 10000, 100) if nccl else "not built",
    }


def dotted(code: int, major: int, minor: int) -> str:
    """Return a version from its number, such as 11.8 from 11080: `major` and `minor` are what one of each counts.

    A last part follows if the minor version leaves one: 8.9.6 from 8906, 2.21.5 from 22105.
    """
    parts = [code // major, code % major // minor]
    return ".".join(map(str, [*parts, code % minor] if minor == 100 else parts))
