"""Find out which rank this process is, and where it reports its progress to its node. Standard library only."""

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from throughline import frameworks

NODE_FOLDER = "THROUGHLINE_NODE"
"""The environment variable with the folder of this node's agent."""
OURS = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
STARTERS = [starter for name in frameworks.NAMES if (starter := frameworks.of(name).starter)]
VARIABLES = (OURS, *dict.fromkeys(names for starter in STARTERS for names in starter.variables))
"""The variables with rank, local rank and world size: those of our agent, and those of each framework's starter."""

NAMES = frozenset(name for names in VARIABLES for name in names)


def read_place(environment: Mapping[str, str]) -> tuple[int, int, int]:
    """Return this process's rank, its rank on the node, and the world size. Raise RuntimeError if they are not set."""
    for names in VARIABLES:
        if all(name in environment for name in names):
            rank, local_rank, world = (int(environment[name]) for name in names)
            return rank, local_rank, world
    raise RuntimeError(f"no starter has said which rank this is: none of {', '.join(n for n, *_ in VARIABLES)} is set")


def variables(rank: int, local_rank: int, addresses: Sequence[str]) -> dict[str, str]:
    """Return the variables that an agent sets for a rank. `addresses` has where each rank may listen (`host:port`)."""
    host, _, port = addresses[0].rpartition(":")
    numbers = dict(zip(OURS, map(str, (rank, local_rank, len(addresses))), strict=True))
    return {**numbers, "MASTER_ADDR": host, "MASTER_PORT": port, "RANK_ADDRESSES": ",".join(addresses)}


def folder_file(work: Path, agent: int) -> Path:
    """Return the file in which an agent names its folder to the ranks that a starter starts on its node."""
    return work / f"agent_{agent}.folder"


def folder(work: Path, agent: int) -> Path:
    """Return the folder for this rank's heartbeat: its agent's folder, or the run's folder if it cannot be found.

    An agent names its folder in a variable and, because a starter has the variables of the first node, in a file.
    """
    named = os.environ.get(NODE_FOLDER)
    if not named:
        with contextlib.suppress(OSError):
            named = folder_file(work, agent).read_text()
    return Path(named) if named and Path(named).is_dir() else work


def redirect_output(pipe: Path) -> None:
    """Send this process's output through the named pipe, if it exists. The agent adds the rank to each line."""
    if pipe.is_fifo():
        descriptor = os.open(pipe, os.O_WRONLY)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        os.close(descriptor)
