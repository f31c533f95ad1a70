"""How a topology is started: one agent per node, wherever the nodes are, and in each the framework's own starter.

Here, on nodes that are simulated, on those of a Slurm job, on hosts behind ssh: the agents differ in how they are
reached, and in nothing else. Standard library only: the agents import this in the framework's environment.
"""

from __future__ import annotations

import os
import shlex
import shutil
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from throughline import frameworks
from throughline.messages import Order

WORKER = "throughline.rank.worker"
SSH_FAILED = 255
"""ssh's own exit status, where it did not come to the command."""


def torchrun(order: Order, node: int, path: str, folder: str) -> list[str]:
    """PyTorch's launcher with static rendezvous: this node's ranks meet at the first node."""
    return [
        *(order.python, "-m", "torch.distributed.run"),
        *("--nnodes", str(order.nodes), "--nproc-per-node", str(order.per_node), "--node-rank", str(node)),
        *("--rdzv-backend", "static", "--master-addr", order.master, "--master-port", str(order.port)),
        *("--max-restarts", "0", "--log-dir", folder, "--module", WORKER, path),
    ]


def horovod(order: Order, node: int, path: str, folder: str) -> list[str]:
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
        once = ["--oversubscribe", "--bind-to", "none", "--map-by", "slot"]
        once += ["--mca", "plm", "rsh", "--mca", "ras", "^slurm"]  # Snakemake hides from it that this is a Slurm job
        return [*remote, "mpirun", "--allow-run-as-root", *start, *once, *worker]
    return [*remote, str(Path(order.python).with_name("horovodrun")), *start, "--gloo", *worker]


def _srun_as_ssh(order: Order, folder: str) -> str:
    """A folder with an `ssh` that runs its command on a node of the Slurm job, where sshd often lets nobody in."""
    place = Path(folder, "bin")
    place.mkdir()
    step = shlex.join(srun(1, order.per_node * order.spec["threads"]))
    (place / "ssh").write_text(
        "#!/bin/sh\n"
        "host=\n"
        'while :; do case "$1" in -[opi]) shift 2 ;; -*) shift ;;\n'
        '  *) if [ "$host" ]; then break; fi; host=$1; shift ;; esac; done\n'
        f'exec {step} --overlap --nodelist="$host" sh -c "$*" < /dev/null\n'
    )
    (place / "ssh").chmod(0o755)
    return str(place)


STARTERS: dict[str, Callable[[Order, int, str, str], list[str]]] = {"torchrun": torchrun, "horovod": horovod}
"""A framework's starter -> command(order, node, path of job.json, the agent's folder) that starts a node's ranks."""


def starter(framework: str) -> Callable[[Order, int, str, str], list[str]]:
    return STARTERS[frameworks.of(framework).starter.name]


def agents(framework: str, nodes: int) -> int:
    """How many agents a run has."""
    return 1 if frameworks.of(framework).starter.reaches_nodes else nodes


def share(order: Order, node: int) -> list[str]:
    """This machine's GPUs that belong to a simulated node."""
    count, visible = order.per_node, os.environ.get("CUDA_VISIBLE_DEVICES")
    every = visible.split(",") if visible else [str(number) for number in range(count * order.nodes)]
    return every[node * count : (node + 1) * count]


def commands(order: Order, path: Path, names: Sequence[str] = ()) -> list[list[str]]:
    """The processes to start here, which are the agents of all nodes, or reach them."""

    def agent(node: int | str) -> list[str]:
        return [order.python, "-m", "throughline.launch.agent", str(path), str(node)]

    count = order.agents
    if order.reach == "slurm" and count > 1:
        return [[*srun(count, order.per_node * order.spec["threads"]), *agent("slurm")]]
    if order.reach == "ssh":
        return [through_ssh(names[node], agent(node), order.variables) for node in range(count)]
    return [agent(node) for node in range(count)]


def srun(nodes: int, cores: int) -> list[str]:
    """One task on every node of the present Slurm job. All of it is said: Snakemake removes Slurm's own variables."""
    return [
        *("srun", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1", f"--cpus-per-task={cores}"),
        *("--mpi=none", "--kill-on-bad-exit=0", "--wait=0", "--export=ALL", "--quiet"),
    ]


def through_ssh(name: str, command: Sequence[str], variables: Mapping[str, str]) -> list[str]:
    """The command on another host, in the same folder, with `variables`; nobody is asked for a password."""
    assigned = shlex.join(f"{key}={value}" for key, value in variables.items())
    remote = f"cd {shlex.quote(os.getcwd())} && exec env {assigned} {shlex.join(command)}"
    return ["ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15", "-o", "LogLevel=ERROR", "--", name, remote]


def free_port() -> int:
    """A port that nobody listens on here just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
