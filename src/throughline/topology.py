"""On how many devices a run trains (Topology), and how its model lies on them (Layout).

Standard library only: ranks import this too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from throughline.files import UserError


@dataclass(frozen=True, order=True)
class Topology:
    """`<nodes>n<devices per node>g`; a device is a GPU, or one worker process on a CPU.

    Nodes that one machine makes up are marked wherever the topology is printed.
    """

    nodes: int
    devices: int
    simulated: bool = False

    @classmethod
    def parse(cls, text: str) -> Topology:
        match = re.fullmatch(r"([1-9]\d*)n([1-9]\d*)g", text)
        if not match:
            raise UserError(f"{text!r} is not a topology", next_step="write <nodes>n<devices per node>g, such as 1n2g")
        return cls(int(match[1]), int(match[2]))

    @property
    def world(self) -> int:
        """World size: the number of ranks."""
        return self.nodes * self.devices

    def __str__(self) -> str:
        return f"{self.nodes}n{self.devices}g" + (" (simulated)" if self.simulated else "")


@dataclass(frozen=True)
class Layout:
    """How a model lies on its ranks: `tensor` consecutive ranks share a replica; `sharding` is what replicas split."""

    tensor: int = 1
    sharding: str = "none"
