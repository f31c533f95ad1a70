"""The commands that start a run's agents: one agent per node, which starts the ranks of its node.

A node is this machine, a simulated node, a node of a Slurm job or a host behind ssh. Only the way to reach the agent
differs between them. Standard library only: the agents import this module in the framework's environment.
"""

import os
import shlex
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from throughline import frameworks, processes
from throughline.frameworks.starters import srun
from throughline.messages import Order

SSH_FAILED = 255
"""The exit status of ssh if ssh itself fails, before it runs the command."""


def agents(framework: str, nodes: int, reach: str) -> int:
    """Return the number of agents of a run: one per node, but a starter has one agent for all nodes on this machine."""
    return 1 if reach == "simulated" and frameworks.of(framework).starter else nodes


def share(order: Order, node: int) -> list[str]:
    """Return those GPUs of this machine that belong to the agent of a simulated node."""
    count, visible = order.devices, os.environ.get("CUDA_VISIBLE_DEVICES")
    every = visible.split(",") if visible else [str(number) for number in range(order.world)]
    return every[node * count : (node + 1) * count]


def commands(order: Order, path: Path, names: Sequence[str] = ()) -> list[list[str]]:
    """Return the commands to run on this machine. Each is an agent, or starts agents on other machines."""

    def agent(node: int | str) -> list[str]:
        return processes.module(order.python, "throughline.launch.agent", str(path), str(node))

    count = order.agents
    if order.reach == "slurm" and count > 1:
        # A starter reaches the other nodes through steps of its own, beside this one.
        beside = ["--overlap"] if frameworks.of(order.spec["framework"]).starter else []
        return [[*srun(count, order.cores), *beside, *agent("slurm")]]
    if order.reach == "ssh":
        return [through_ssh(names[node], agent(node), order.variables) for node in range(count)]
    return [agent(node) for node in range(count)]


def through_ssh(name: str, command: Sequence[str], variables: Mapping[str, str]) -> list[str]:
    """Return the command that runs `command` on another host, in the same folder, with `variables`.

    ssh fails instead of asking for a password.
    """
    assigned = shlex.join(f"{key}={value}" for key, value in variables.items())
    remote = f"cd {shlex.quote(os.getcwd())} && exec env {assigned} {shlex.join(command)}"
    return ["ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15", "-o", "LogLevel=ERROR", "--", name, remote]


def reserved_port() -> socket.socket:
    """Return a socket with a port that the system gives to no other process while the socket is open.

    The process that listens on this port has to set SO_REUSEADDR, as servers usually do.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("", 0))
    return held
