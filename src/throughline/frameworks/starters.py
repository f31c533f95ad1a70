"""Who starts a framework's ranks on a node, and how it tells each of them its place. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Starter:
    """`variables`: for each program behind it, those in which a process finds its rank, its rank on the node, and the
    world size. `reaches_nodes`: it starts the ranks of the other nodes as well, so that a run has one agent."""

    name: str
    variables: tuple[tuple[str, str, str], ...]
    reaches_nodes: bool


TORCHRUN = Starter("torchrun", (("RANK", "LOCAL_RANK", "WORLD_SIZE"),), reaches_nodes=False)
HOROVOD = Starter(
    "horovod",
    (
        ("HOROVOD_RANK", "HOROVOD_LOCAL_RANK", "HOROVOD_SIZE"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"),
    ),
    reaches_nodes=True,
)
