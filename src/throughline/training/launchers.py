"""How a topology is started: one agent per node, wherever the nodes are, and in each the framework's own starter.

Here, on nodes that are simulated, on those of a Slurm job, on hosts behind ssh: the agents differ in how they are
reached, and in nothing else. Standard library only: the agents import this in the framework's environment.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

Job = dict[str, Any]
"""job.json: spec, python, world, nodes, per_node, master, port, folder, variables, hosts and more."""

WORKER = "throughline.training.worker"


def torchrun(job: Job, node: int, path: str, folder: str) -> list[str]:
    """PyTorch's launcher with static rendezvous: this node's ranks meet at the first node."""
    return [
        *(job["python"], "-m", "torch.distributed.run"),
        *("--nnodes", str(job["nodes"]), "--nproc-per-node", str(job["per_node"]), "--node-rank", str(node)),
        *("--rdzv-backend", "static", "--master-addr", job["master"], "--master-port", str(job["port"])),
        *("--max-restarts", "0", "--log-dir", folder, "--module", WORKER, path),
    ]


def horovod(job: Job, node: int, path: str, folder: str) -> list[str]:
    """Horovod's launcher, or MPI's where Horovod was built for it; it starts the ranks of all nodes."""
    world, worker = str(job["world"]), [job["python"], "-m", WORKER, path]
    if job["spec"]["options"].get("controller", "gloo") == "mpi":
        once = ["--oversubscribe", "--bind-to", "none", "--map-by", "slot"]
        return ["mpirun", "--allow-run-as-root", "-np", world, *once, *worker]
    return [str(Path(job["python"]).with_name("horovodrun")), "-np", world, "--gloo", *worker]


STARTERS: dict[str, Callable[[Job, int, str, str], list[str]]] = {
    "torch": torchrun,
    "torch-horovod": horovod,
    "mxnet-horovod": horovod,
}
"""Framework -> command(job, node, path of job.json, the agent's folder) that starts the ranks of a node."""

ONE_AGENT = (horovod,)
"""Starters that reach the other nodes by themselves."""


def starter(job: Job) -> Callable[[Job, int, str, str], list[str]]:
    return STARTERS[job["spec"]["framework"]]


def agents(job: Job) -> int:
    """How many agents this run has."""
    return 1 if starter(job) in ONE_AGENT else int(job["nodes"])


def ranks_of(job: Job, node: int) -> range:
    """The ranks that the agent of `node` answers for."""
    count = job["world"] // agents(job)
    return range(node * count, (node + 1) * count)


def commands(job: Job, path: Path) -> list[list[str]]:
    """The processes to start here, which are or reach the agents of all nodes."""

    def agent(node: int | str) -> list[str]:
        return [job["python"], "-m", "throughline.training.agent", str(path), str(node)]

    return [agent(node) for node in range(agents(job))]


def free_port() -> int:
    """A port that nobody listens on here just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
