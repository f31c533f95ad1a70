"""The optimizer of a run, and the learning rate of every step: a warm-up, then a decay.

The first step of a run is step 1. A step that a loss scaler skips counts too.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from throughline.spec.part import Part, changed, key


@dataclass(frozen=True)
class Schedule(Part):
    """A schedule of the learning rate.

    The rate rises linearly and reaches its full value in step `warmup_steps`. Then it decays until step `total_steps`.
    This step and every later one have the fraction `last` of the full rate.
    """

    name: Literal["constant", "linear", "polynomial", "cosine"] = key(
        "how the learning rate falls after the warm-up", default="constant"
    )
    warmup_steps: int = key(
        "first steps, in which the rate rises: step n has n / warmup_steps of it", default=0, least=0
    )
    total_steps: int | None = key(
        "step at which the rate has fallen to `last`; not for `constant`", default=None, least=1
    )
    power: float = key("for `polynomial`: exponent of the share of steps that is left", default=1.0, above=0)
    last: float = key("what the rate falls to, as a share of learning_rate", default=0.0, least=0, most=1)
    decay_from: Literal["warmup_end", "start"] = key(
        "the fall is counted from the end of the warm-up, or from the first step, as in BERT's own code",
        default="warmup_end",
    )

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
        rest = 1 - min(1.0, (step - begin) / (self.total_steps - begin))
        decayed = {"linear": rest, "polynomial": rest**self.power, "cosine": (1 - math.cos(math.pi * rest)) / 2}
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

    def mistakes(self) -> Iterable[str]:
        """Yield a text for each mistake that involves several keys of the schedule. Each text begins with a key."""
        falls = [name for name in changed(self) if name in ("total_steps", "last", "decay_from")]
        if self.name == "constant" and falls:
            yield f"{falls[0]}: a constant rate does not fall; name another schedule, or remove the key"
        if self.name != "constant" and self.total_steps is None:
            yield f"total_steps: missing; a {self.name} schedule needs it"
        if self.total_steps is not None and self.total_steps <= self.warmup_steps:
            yield f"total_steps = {self.total_steps}: no step is left after {self.warmup_steps} of warm-up"
        if self.name != "polynomial" and self.power != 1.0:
            yield f"power = {self.power:g}: a key of polynomial alone"


@dataclass(frozen=True)
class Optimizer(Part):
    name: Literal["adamw", "adam", "lamb", "sgd", "bertadam"] = key(
        "`bertadam` is that of BERT's own code and of GluonNLP: `adamw` without bias correction", default="adamw"
    )
    learning_rate: float = key("with a schedule, the highest one", default=1e-4, above=0)
    weight_decay: float = key("decay per step", default=0.01, least=0)
    betas: tuple[float, float] = key(
        "decay of first and second moment, from 0 below 1; not for `sgd`", default=(0.9, 0.999), strict=False
    )
    epsilon: float = key("added to the root of the second moment; not for `sgd`", default=1e-6, above=0)
    momentum: float = key("only for `sgd` (without Nesterov's change)", default=0.9, least=0, below=1)
    schedule: Schedule = key("of the learning rate, warm-up steps included", default=Schedule())

    def rates(self) -> Callable[[int], float] | None:
        """Return a function from a step's number to its rate; None if all steps have the same rate."""
        whole, share = float(self.learning_rate), self.schedule.share
        return (lambda step: whole * share(step)) if self.schedule.changes else None

    def mistakes(self) -> Iterable[str]:
        """Yield a text for each mistake that the types of single keys do not show. Each text begins with a key."""
        for number, beta in enumerate(self.betas):
            if not 0 <= beta < 1:
                yield f"betas.{number} = {beta:g}: it has to be at least 0 and less than 1"
        yield from (f"schedule.{mistake}" for mistake in self.schedule.mistakes())
