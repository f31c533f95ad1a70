"""Launchers that a framework brings itself, for those whose ranks the agents do not start. Standard library only."""

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
    """`command`(order, path of job.json, the agent's folder) starts the ranks of all nodes: a run has one agent.

    `variables`: for each program behind it, those in which a process finds its rank, its rank on the node, and the
    world size.
    """

    name: str
    command: Callable[[Order, str, str], list[str]]
    variables: tuple[tuple[str, str, str], ...]


def horovod(order: Order, path: str, folder: str) -> list[str]:
    """Horovod's launcher, or MPI's where Horovod was built for it; it reaches the other nodes through `ssh`."""
    hosts, remote = [], []
    if order.hosts:
        hosts = ["-H", ",".join(f"{name}:{order.per_node}" for name in order.hosts)]
    if order.reach == "slurm":
        remote = ["env", f"PATH={_srun_as_ssh(order, folder)}{os.pathsep}{os.environ['PATH']}"]
    start = ["-np", str(order.world), *hosts]
    worker = [order.python, "-m", WORKER, path]
    wants_mpi = order.spec["options"].get("controller", "gloo") == "mpi"
    if wants_mpi and shutil.which("mpirun"):  # without it the ranks have to start to say that they cannot
        passed = [word for name in sorted(order.variables) if order.hosts for word in ("-x", name)]
        once = ["--oversubscribe", "--bind-to", "none", "--map-by", "slot"]
        once += ["--mca", "plm", "rsh", "--mca", "ras", "^slurm"]  # Snakemake hides from it that this is a Slurm job
        return [*remote, "mpirun", "--allow-run-as-root", *start, *once, *passed, *worker]
    return [*remote, str(Path(order.python).with_name("horovodrun")), *start, "--gloo", *worker]


def _srun_as_ssh(order: Order, folder: str) -> str:
    """A folder with an `ssh` that runs its command on a node of the Slurm job, where sshd often lets nobody in."""
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
    """One task on every node of the present Slurm job. All of it is said: Snakemake removes Slurm's own variables."""
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
