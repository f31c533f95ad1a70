"""The learning rate of every step: a warm-up, then a decay. Standard library only: ranks import this too.

The first step of a run is step 1. A step that a loss scaler skips counts too.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Name = Literal["constant", "linear", "polynomial", "cosine"]
From = Literal["warmup_end", "start"]


@dataclass(frozen=True)
class Schedule:
    """A schedule of the learning rate.

    The rate rises linearly and reaches its full value in step `warmup_steps`. Then it decays until step `total_steps`.
    This step and every later one have the fraction `last` of the full rate. `decay_from` says whether the decay is
    counted from the end of the warm-up or from the first step.
    """

    name: Name = "constant"
    warmup_steps: int = 0
    total_steps: int | None = None
    power: float = 1.0
    last: float = 0.0
    decay_from: From = "warmup_end"

    @classmethod
    def of(cls, optimizer: Mapping[str, Any]) -> "Schedule | None":
        """Return the schedule of a run specification's optimizer (parsed JSON); None if the rate never changes."""
        schedule = cls(**optimizer.get("schedule") or {})
        return schedule if schedule.changes else None

    @property
    def changes(self) -> bool:
        """True if the rate changes at all."""
        return self.name != "constant" or self.warmup_steps > 0

    def share(self, step: int) -> float:
        """Return the learning rate of a step as a fraction of the full rate."""
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
        """The schedule in words, such as `linear, 100 steps of warm-up, 1,000 in all`."""
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
    """Return a function from a step's number to its rate, for a run specification's optimizer.

    Return None if all steps have the same rate.
    """
    schedule, whole = Schedule.of(optimizer), float(optimizer["learning_rate"])
    return (lambda step: whole * schedule.share(step)) if schedule else None
