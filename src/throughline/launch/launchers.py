"""How a topology is started: one agent per node, wherever the nodes are, which starts the node's ranks.

Here, on nodes that are simulated, on those of a Slurm job, on hosts behind ssh: the agents differ in how they are
reached, and in nothing else. Standard library only: the agents import this in the framework's environment.
"""

import os
import shlex
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from throughline import frameworks
from throughline.frameworks.starters import srun
from throughline.messages import Order

SSH_FAILED = 255
"""ssh's own exit status, where it did not come to the command."""


def agents(framework: str, nodes: int) -> int:
    """How many agents a run has."""
    return 1 if frameworks.of(framework).starter else nodes


def share(order: Order, node: int) -> list[str]:
    """This machine's GPUs that belong to the agent of a simulated node."""
    count, visible = order.devices, os.environ.get("CUDA_VISIBLE_DEVICES")
    every = visible.split(",") if visible else [str(number) for number in range(order.world)]
    return every[node * count : (node + 1) * count]


def commands(order: Order, path: Path, names: Sequence[str] = ()) -> list[list[str]]:
    """The processes to start here, which are the agents of all nodes, or reach them."""

    def agent(node: int | str) -> list[str]:
        return [order.python, "-m", "throughline.launch.agent", str(path), str(node)]

    count = order.agents
    if order.reach == "slurm" and count > 1:
        return [[*srun(count, order.cores), *agent("slurm")]]
    if order.reach == "ssh":
        return [through_ssh(names[node], agent(node), order.variables) for node in range(count)]
    return [agent(node) for node in range(count)]


def through_ssh(name: str, command: Sequence[str], variables: Mapping[str, str]) -> list[str]:
    """The command on another host, in the same folder, with `variables`; nobody is asked for a password."""
    assigned = shlex.join(f"{key}={value}" for key, value in variables.items())
    remote = f"cd {shlex.quote(os.getcwd())} && exec env {assigned} {shlex.join(command)}"
    return ["ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15", "-o", "LogLevel=ERROR", "--", name, remote]


def reserved_port() -> socket.socket:
    """A port of this machine that the system gives to nobody as long as the socket is open.

    Who listens on it has to set SO_REUSEADDR, as servers do.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("", 0))
    return held
