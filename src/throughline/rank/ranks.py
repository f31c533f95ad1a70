"""Which rank this process is, as its starter says it, and where its node hears of it. Standard library only."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from throughline import frameworks

NODE_FOLDER = "THROUGHLINE_NODE"
"""Variable with the folder of this node's agent."""
OWN = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
STARTERS = [starter for name in frameworks.NAMES if (starter := frameworks.of(name).starter)]
VARIABLES = (OWN, *dict.fromkeys(names for starter in STARTERS for names in starter.variables))
"""For the agent and every other program that starts ranks, the variables in which it tells a process its place."""

NAMES = frozenset(name for names in VARIABLES for name in names)


def of(environment: Mapping[str, str]) -> tuple[int, int, int]:
    """This process's rank, its rank on the node, and the number of all; RuntimeError where no starter has set them."""
    for names in VARIABLES:
        if all(name in environment for name in names):
            rank, local_rank, world = (int(environment[name]) for name in names)
            return rank, local_rank, world
    raise RuntimeError(f"no starter has said which rank this is: none of {', '.join(n for n, *_ in VARIABLES)} is set")


def variables(rank: int, local_rank: int, addresses: Sequence[str]) -> dict[str, str]:
    """What an agent tells a rank; `addresses`: for every rank of the run, where it may listen (`host:port`)."""
    host, _, port = addresses[0].rpartition(":")
    place = dict(zip(OWN, map(str, (rank, local_rank, len(addresses))), strict=True))
    return {**place, "MASTER_ADDR": host, "MASTER_PORT": port, "RANK_ADDRESSES": ",".join(addresses)}


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
