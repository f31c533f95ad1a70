"""Stands in for a CUDA graph on a CPU: a replay calls the recorded function again, with the batches in its memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from throughline.frameworks.torch import recorded
from throughline.frameworks.torch.ddp import TorchDDP


class Again:
    """As with a real graph, nothing is computed while it is recorded."""

    peak_bytes = 0
    result: Any

    def __init__(self, work: Callable[[], Any], aside: Any = None) -> None:
        self.work = work

    def replay(self) -> None:
        self.result = self.work()


def whole_step(rank: TorchDDP, first: int = recorded.FIRST) -> recorded.ReplayedStep:
    """Let the rank record its whole steps, and return what does so."""
    given = rank.whole, rank.update, first, rank.passes, rank.parameters, list(rank.changing.values())
    rank.recorded = recorded.ReplayedStep(*given, record=Again)
    return rank.recorded
