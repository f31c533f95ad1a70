"""What checks write: a long run's curve and its verdict, a proof of equal mathematics, the largest batches that fit."""

from collections.abc import Mapping
from typing import Any, Literal, get_args

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
    begun_from: str | None = None
    """The check, its step and the SHA-256 of the checkpoint whose weights it began with; None: random ones."""


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


ProofVerdict = Literal["different", "failed", "invalid", "oom", "unsupported", "equal"]
"""The worst first. `different` computes something else, or diverges; of `failed`, `invalid` and `oom` there is nothing
to compare; `unsupported` cannot do it."""


class Mathematics(Entry):
    """Whether a framework computes what the reference does: the worst of its topologies in equivalence.json and, in a
    summary of another precision than fp32, of that precision against fp32."""

    verdict: ProofVerdict
    largest_difference: NonNegative | None
    tolerance: Positive
    reason: str | None
    covers: list[str] = Field(default_factory=list)


class Comparison(Entry):
    """One framework on one topology against the reference, or one precision against fp32; `difference` is relative, per
    step. A run that diverges has the steps before that."""

    verdict: ProofVerdict
    reason: str | None
    loss: list[float] = Field(default_factory=list)
    difference: list[NonNegative] = Field(default_factory=list)
    largest_difference: NonNegative | None = None
    tolerance: Positive | None = None
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
    precisions: dict[str, dict[str, Comparison]] = Field(default_factory=dict)
    """Framework -> precision -> its losses against the same framework's in fp32."""

    def of(self, framework: str, precision: str = "fp32") -> Mathematics | None:
        """What its topologies and this precision come to, the worst of them; None where it was not compared."""
        compared, order = self.frameworks.get(framework), get_args(ProofVerdict)
        if not compared:
            return None
        by_precision = self.precisions.get(framework, {})
        others = by_precision.keys() - {precision}
        compared = compared | {name: one for name, one in by_precision.items() if name == precision}
        topology, worst = min(
            compared.items(), key=lambda item: (order.index(item[1].verdict), -(item[1].largest_difference or 0))
        )
        return Mathematics(
            verdict=worst.verdict,
            largest_difference=worst.largest_difference,
            tolerance=worst.tolerance or self.tolerance,
            reason=f"{topology}: {worst.reason}" if worst.reason else None,
            covers=[text for text in self.covers if text.split()[0] not in others],
        )


class Try(Entry):
    """One size of a search for the largest; `fits` says nothing of speed. `size`: of a quantity that is no batch."""

    batch_per_device: Count
    size: Count | None = None
    status: Literal["fits", "oom"]
    reason: str | None
    peak_memory_bytes: Whole | None


class Largest(Entry):
    """One framework's largest batch per device, or largest size of another quantity with that batch, and the tries
    behind it in their order.

    `smallest_out_of_memory` is None where nothing that was tried was refused.
    """

    status: Literal["ok", "oom", "unsupported"]
    reason: str | None
    largest_batch_per_device: Count | None
    largest_size: Count | None = None
    smallest_out_of_memory: Count | None
    peak_memory_bytes: Whole | None
    device: Device | None
    tries: list[Try]


class MaxBatch(OfWorkload):
    """results/<benchmark>/max_<quantity>_<precision>.json: the largest batch per device that fits, or the largest value
    of a parameter such as `classes`, by framework."""

    precision: Precision
    topology: str
    steps: Count
    memory_limit_mb: Count | None
    quantity: str = "batch"
    tried_at_most: Count
    frameworks: dict[str, Largest]
    started: str
    ended: str
