"""The learning rate of every step: a warm-up, then a decay. Standard library only: ranks import this too.

Steps are counted from 1, from a run's first step on; one that a loss scaler skips counts as well.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Name = Literal["constant", "linear", "polynomial", "cosine"]
From = Literal["warmup_end", "start"]


@dataclass(frozen=True)
class Schedule:
    """The rate rises in equal parts and is whole in step `warmup_steps`. Step `total_steps`, and every later one, has
    the share `last` of it. The decay between them is counted from the end of the warm-up, or from the start."""

    name: Name = "constant"
    warmup_steps: int = 0
    total_steps: int | None = None
    power: float = 1.0
    last: float = 0.0
    decay_from: From = "warmup_end"

    @classmethod
    def of(cls, optimizer: Mapping[str, Any]) -> "Schedule | None":
        """That of a run specification's optimizer as parsed JSON; None where every step has the same rate."""
        schedule = cls(**optimizer.get("schedule") or {})
        return schedule if schedule.changes else None

    @property
    def changes(self) -> bool:
        """Whether the rate ever changes."""
        return self.name != "constant" or self.warmup_steps > 0

    def share(self, step: int) -> float:
        """The share of the whole learning rate that a step has."""
        if step <= self.warmup_steps:
            return step / self.warmup_steps
        if self.name == "constant" or self.total_steps is None:
            return 1.0
        begin = self.warmup_steps if self.decay_from == "warmup_end" else 0
        left = 1 - min(1.0, (step - begin) / (self.total_steps - begin))
        decayed = {"linear": left, "polynomial": left**self.power, "cosine": (1 - math.cos(math.pi * left)) / 2}
        return self.last + (1 - self.last) * float(decayed[self.name])

    @property
    def words(self) -> str:
        """`linear, 100 steps of warm-up, 1,000 in all`."""
        parts = [self.name + (f" of power {self.power:g}" if self.name == "polynomial" else "")]
        if self.warmup_steps:
            parts.append(f"{self.warmup_steps:,} steps of warm-up")
        if self.total_steps:
            parts.append(f"{self.total_steps:,} in all")
        if self.last:
            parts.append(f"to {self.last:g} of the rate")
        if self.decay_from == "start":
            parts.append("decay from the start")
        return ", ".join(parts)


def rates(optimizer: Mapping[str, Any]) -> Callable[[int], float] | None:
    """The rate of each step by its number, with a run specification's optimizer; None where all have the same."""
    schedule, whole = Schedule.of(optimizer), float(optimizer["learning_rate"])
    return (lambda step: whole * schedule.share(step)) if schedule else None
