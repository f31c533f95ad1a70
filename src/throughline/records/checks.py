"""What checks write: a long run's curve and its verdict, a proof of equal mathematics, the largest batches that fit."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from throughline.records.entry import Count, Device, Entry, NonNegative, OfTraining, OfWorkload, Positive, Whole
from throughline.study.benchmark import Optimizer
from throughline.study.runs import RunSpec
from throughline.study.section import Precision


class Look(Entry):
    """What held-out data says after `step` steps: the figures of the workload's HELD_OUT, `loss` among them."""

    step: Whole
    samples: Count
    figures: dict[str, float | None]

    @classmethod
    def flat(cls, value: Mapping[str, Any]) -> dict[str, Any]:
        """A look as a rank tells it, its figures beside step and samples -> as this entry has it."""
        figures = {name: figure for name, figure in value.items() if name not in ("step", "samples")}
        return {"step": value["step"], "samples": value["samples"], "figures": figures}


class Curve(OfTraining):
    """results/<benchmark>/convergence_<...>/curve.json: a long training run. `loss` is rank 0's at every step."""

    evaluate_every: Count
    status: Literal["ok", "oom", "unsupported"]
    curve: list[Look]
    loss: list[float | None]
    resumed_after_step: Count | None


class AgainstStated(Entry):
    """One look against the stated curve."""

    quantity: str
    step: Whole
    value: float | None
    stated: float
    limit: float
    passes: bool


Verdict = Literal["pass", "fail", "not judged", "unsupported"]


class ConvergenceVerdict(Entry):
    """results/<benchmark>/convergence_<...>.json: whether a long run learns what was stated."""

    schema_: Literal[2] = Field(alias="schema")
    spec: RunSpec
    verdict: Verdict
    reason: str
    against: str | None
    against_sha256: str | None
    tolerance: NonNegative
    last: Look | None
    stated: dict[str, list[list[float]]]
    compared: list[AgainstStated]


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
    at_step: Count | None = None


class Equivalence(OfWorkload):
    """results/<benchmark>/equivalence.json: whether the frameworks of a benchmark compute the same.

    `covers` says in sentences what the proof holds for.
    """

    batch_per_device: Count
    covers: list[str] = Field(default_factory=list)
    steps: Count
    tolerance: Positive
    reference: str
    limits: str
    optimizer: Optimizer
    reference_loss: dict[str, list[float]]
    frameworks: dict[str, dict[str, Comparison]]

    def of(self, framework: str) -> Mathematics | None:
        """What its topologies come to, the worst of them first; None where it was not compared."""
        order = ("different", "failed", "unsupported", "equal")
        compared = self.frameworks.get(framework)
        if not compared:
            return None
        topology, worst = min(
            compared.items(), key=lambda item: (order.index(item[1].verdict), -(item[1].largest_difference or 0))
        )
        return Mathematics(
            verdict=worst.verdict,
            largest_difference=worst.largest_difference,
            tolerance=self.tolerance,
            reason=f"{topology}: {worst.reason}" if worst.reason else None,
            covers=self.covers,
        )


class Try(Entry):
    """One batch size of a search for the largest; `fits` says nothing of speed."""

    batch_per_device: Count
    status: Literal["fits", "oom"]
    reason: str | None
    peak_memory_bytes: Whole | None


class Largest(Entry):
    """One framework's largest batch per device, and the tries behind it in their order.

    `smallest_out_of_memory` is None where nothing that was tried was refused.
    """

    status: Literal["ok", "oom", "unsupported"]
    reason: str | None
    largest_batch_per_device: Count | None
    smallest_out_of_memory: Count | None
    peak_memory_bytes: Whole | None
    device: Device | None
    tries: list[Try]


class MaxBatch(OfWorkload):
    """results/<benchmark>/max_batch_<precision>.json: the largest batch per device that fits, by framework."""

    precision: Precision
    topology: str
    steps: Count
    memory_limit_mb: Count | None
    tried_at_most: Count
    frameworks: dict[str, Largest]
    started: str
    ended: str
