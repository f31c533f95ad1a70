"""Which rank this process is, as its starter says it, and where its node hears of it. Standard library only."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

NODE_FOLDER = "THROUGHLINE_NODE"
"""Variable with the folder of this node's agent."""


class Place(NamedTuple):
    rank: int
    local_rank: int
    world: int


STARTERS = {
    "torchrun": ("RANK", "LOCAL_RANK", "WORLD_SIZE"),
    "horovodrun": ("HOROVOD_RANK", "HOROVOD_LOCAL_RANK", "HOROVOD_SIZE"),
    "mpirun": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"),
}
"""A starter -> the variables in which it tells a process its rank, its rank on the node, and the world size."""

NAMES = frozenset(name for names in STARTERS.values() for name in names)


def of(environment: Mapping[str, str]) -> Place:
    """This process's place; RuntimeError where no starter has set one."""
    for names in STARTERS.values():
        if all(name in environment for name in names):
            return Place(*(int(environment[name]) for name in names))
    raise RuntimeError("no starter has said which rank this is; expected one of " + "; ".join(map(str, STARTERS)))


def folder(shared: Path) -> Path:
    """Where this rank's signs of life belong: with its node's agent, or in the run's folder where there is none."""
    own = Path(os.environ.get(NODE_FOLDER, ""))
    return own if os.environ.get(NODE_FOLDER) and own.is_dir() else shared


def speak_through(pipe: Path) -> None:
    """Send this process's output through the named pipe, where there is one: the agent marks it with the rank."""
    if pipe.is_fifo():
        descriptor = os.open(pipe, os.O_WRONLY)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        os.close(descriptor)
