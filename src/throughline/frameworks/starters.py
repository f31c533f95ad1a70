"""Launchers that belong to a framework and start its ranks in place of the agents. Standard library only."""

import os
import shlex
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from throughline.messages import Order

WORKER = "throughline.rank.worker"


@dataclass(frozen=True)
class Starter:
    """A framework's own launcher, which starts the ranks of all nodes. A run with a starter has only one agent.

    `command` takes the order, the path of job.json and the agent's folder, and returns the command line. `variables`
    has an entry for each program that may start the ranks: the names of the environment variables in which a process
    finds its rank, its rank on the node, and the world size.
    """

    name: str
    command: Callable[[Order, str, str], list[str]]
    variables: tuple[tuple[str, str, str], ...]


def horovod(order: Order, path: str, folder: str) -> list[str]:
    """Return the command of horovodrun, or of mpirun if the options ask for MPI.

    Both reach the other nodes through `ssh`.
    """
    hosts, remote = [], []
    if order.hosts:
        hosts = ["-H", ",".join(f"{name}:{order.per_node}" for name in order.hosts)]
    if order.reach == "slurm":
        remote = ["env", f"PATH={_srun_as_ssh(order, folder)}{os.pathsep}{os.environ['PATH']}"]
    start = ["-np", str(order.world), *hosts]
    worker = [order.python, "-m", WORKER, path]
    wants_mpi = order.spec["options"].get("controller", "gloo") == "mpi"
    if wants_mpi and shutil.which("mpirun"):  # without mpirun, ranks start over gloo and report that it is missing
        passed = [word for name in sorted(order.variables) if order.hosts for word in ("-x", name)]
        once = ["--oversubscribe", "--bind-to", "none", "--map-by", "slot"]
        # MPI must not use its own support for Slurm, because Snakemake removes the variables that this needs.
        once += ["--mca", "plm", "rsh", "--mca", "ras", "^slurm"]
        return [*remote, "mpirun", "--allow-run-as-root", *start, *once, *passed, *worker]
    return [*remote, str(Path(order.python).with_name("horovodrun")), *start, "--gloo", *worker]


def _srun_as_ssh(order: Order, folder: str) -> str:
    """Make a folder with a program `ssh` that runs its command on a node of the Slurm job, and return its path.

    The program uses srun, because on the nodes of a Slurm cluster the real ssh is often not allowed.
    """
    place = Path(folder, "bin")
    place.mkdir()
    step = shlex.join(srun(1, order.cores))
    (place / "ssh").write_text(
        "#!/bin/sh\n"
        "host=\n"
        'while :; do case "$1" in -[opi]) shift 2 ;; -*) shift ;;\n'
        '  *) if [ "$host" ]; then break; fi; host=$1; shift ;; esac; done\n'
        f'exec {step} --overlap --nodelist="$host" sh -c "$*" < /dev/null\n'
    )
    (place / "ssh").chmod(0o755)
    return str(place)


def srun(nodes: int, cores: int) -> list[str]:
    """Return the srun command that starts one task on every node of the current Slurm job.

    Every option is written out, because Snakemake removes the variables of Slurm that hold the defaults.
    """
    return [
        *("srun", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1", f"--cpus-per-task={cores}"),
        *("--mpi=none", "--kill-on-bad-exit=0", "--wait=0", "--export=ALL", "--quiet"),
    ]


HOROVOD = Starter(
    "horovod",
    horovod,
    (
        ("HOROVOD_RANK", "HOROVOD_LOCAL_RANK", "HOROVOD_SIZE"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"),
    ),
)
