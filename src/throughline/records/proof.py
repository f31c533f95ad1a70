"""equivalence.json: whether the frameworks of a benchmark compute the same."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from throughline.records.entry import Entry, NonNegative, OfWorkload, Positive
from throughline.study.benchmark import Optimizer


class Mathematics(Entry):
    """Whether a framework computes what the reference does (its worst topology in equivalence.json)."""

    verdict: Literal["equal", "different", "unsupported", "failed"]
    largest_difference: NonNegative | None
    tolerance: Positive
    reason: str | None
    covers: list[str] = Field(default_factory=list)


class Comparison(Entry):
    """One framework on one topology against the reference; `difference` is relative, per step."""

    verdict: Literal["equal", "different", "unsupported", "failed"]
    reason: str | None
    loss: list[float] = Field(default_factory=list)
    difference: list[NonNegative] = Field(default_factory=list)
    largest_difference: NonNegative | None = None
    at_step: Annotated[int, Field(ge=1)] | None = None


class Equivalence(OfWorkload):
    """results/<benchmark>/equivalence.json. `covers` says in sentences what the proof holds for."""

    schema_: Literal[2] = Field(alias="schema")
    benchmark: str
    batch_per_device: Annotated[int, Field(ge=1)]
    covers: list[str] = Field(default_factory=list)
    steps: Annotated[int, Field(ge=1)]
    tolerance: Positive
    reference: str
    limits: str
    optimizer: Optimizer
    reference_loss: dict[str, list[float]]
    frameworks: dict[str, dict[str, Comparison]]

    def of(self, framework: str) -> Mathematics | None:
        """What its topologies come to, the worst of them first; None where it was not compared."""
        order = ("different", "failed", "unsupported", "equal")
        every = self.frameworks.get(framework, {}).items()
        worst = min(
            every, key=lambda one: (order.index(one[1].verdict), -(one[1].largest_difference or 0)), default=None
        )
        if worst is None:
            return None
        topology, compared = worst
        return Mathematics(
            verdict=compared.verdict,
            largest_difference=compared.largest_difference,
            tolerance=self.tolerance,
            reason=f"{topology}: {compared.reason}" if compared.reason else None,
            covers=self.covers,
        )
