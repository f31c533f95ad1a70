"""The files of checks: the curve of a long training and its verdict, the numerical equivalence check, and the largest
batches that fit."""

import math
from collections.abc import Mapping
from typing import Any, Literal, get_args

from pydantic import Field

from throughline.records.entry import (
    Count,
    Device,
    Entry,
    NonNegative,
    Positive,
    Schema,
    TrainingFile,
    Whole,
    WorkloadFile,
)
from throughline.spec import Optimizer, Precision
from throughline.study.runs import Specification


class Look(Entry):
    """An evaluation on held-out data after `step` steps, with the figures of the workload's `held_out` and `loss`."""

    step: Whole
    samples: Count
    figures: dict[str, float | None]

    @classmethod
    def flat(cls, value: Mapping[str, Any]) -> dict[str, Any]:
        """Convert a rank's evaluation to the form of this entry. A rank has the figures beside step and samples."""
        figures = {name: figure for name, figure in value.items() if name not in ("step", "samples")}
        return {"step": value["step"], "samples": value["samples"], "figures": figures}


class Curve(TrainingFile):
    """results/<benchmark>/convergence_<...>/curve.json: a long training. `loss` is the loss of rank 0 at every step."""

    evaluate_every: Count
    status: Literal["ok", "oom", "unsupported"]
    curve: list[Look]
    loss: list[float | None]
    resumed_after_step: Count | None
    begun_from: str | None = None
    """The checkpoint whose weights the training started from: its check, step and SHA-256. None for random weights."""


class AgainstStated(Entry):
    """The comparison of one evaluation with the stated curve."""

    quantity: str
    step: Whole
    value: float | None
    stated: float
    limit: float
    passes: bool


Verdict = Literal["pass", "fail", "not judged", "unsupported"]


class ConvergenceVerdict(Entry):
    """results/<benchmark>/convergence_<...>.json: whether a long training follows the stated curve."""

    schema_: Schema
    spec: Specification
    verdict: Verdict
    reason: str
    against: str | None
    against_sha256: str | None
    tolerance: NonNegative
    last: Look | None
    stated: dict[str, list[list[float]]]
    compared: list[AgainstStated]


CheckVerdict = Literal["different", "failed", "invalid", "oom", "unsupported", "equal"]
"""The verdicts, worst first."""
CHECK_VERDICTS: dict[CheckVerdict, str] = {
    "different": "a loss or an update is off by more than is tolerated, or is not finite; tables mark it `(unequal)`",
    "failed": "the run broke down; `(unchecked)`",
    "invalid": "products are rounded more than the precision says, steps are missing, the loss scaler skipped over a "
    "quarter of them, or the reference diverges; `(unchecked)`",
    "oom": "out of memory; `(unchecked)`",
    "unsupported": "framework or device cannot do it, or the workload has no reference",
    "equal": "every loss and compared update is within the tolerance",
}


class UpdateDifference(Entry):
    """How what a run adds to the weights compares with what the reference adds.

    `worst` is the tensor that is furthest off for what is tolerated. `reason` says what differs, or why nothing is
    compared.
    """

    verdict: Literal["different", "not compared", "equal"]
    reason: str | None = None
    worst: str | None = None
    difference: NonNegative | None = None
    tolerance: Positive | None = None


class WorstUpdate(UpdateDifference):
    """The comparison of the run that is furthest off, and the number of its tensors that were compared or left out."""

    compared: Whole
    left_out: Whole


class EquivalenceVerdict(Entry):
    """Whether a framework computes the same as the reference.

    It is the worst verdict of the framework's topologies in equivalence.json. In a summary of another precision than
    fp32, the verdict of this precision against fp32 counts too.
    """

    verdict: CheckVerdict
    largest_difference: NonNegative | None
    tolerance: Positive
    reason: str | None
    covers: list[str]
    updates: WorstUpdate | None = Field(None, exclude_if=lambda value: value is None)
    """None if no updates were compared, as with a precision below fp32, or after a run that failed."""


class TensorUpdate(Entry):
    """The difference of a tensor's update from the reference's, relative to the reference's.

    None if it is not finite, or if the reference does not change this tensor.
    """

    difference: NonNegative | None
    tolerance: Positive

    @property
    def excess(self) -> float:
        """The difference as a multiple of what is tolerated."""
        return math.inf if self.difference is None else self.difference / self.tolerance


class Updates(UpdateDifference):
    """The comparison tensor by tensor. `left_out` maps a reason to the tensors that cannot be compared."""

    tensors: dict[str, TensorUpdate] = Field(default_factory=dict)
    left_out: dict[str, list[str]] = Field(default_factory=dict)

    @property
    def excess(self) -> float:
        """The difference of the worst tensor as a multiple of what is tolerated."""
        return self.tensors[self.worst].excess if self.worst else 0.0


class Comparison(Entry):
    """The comparison of one framework on one topology with the reference, or of one precision with fp32.

    `difference` is relative, per step. If a run diverges, it has the steps before that. `skipped_steps` are those that
    the loss scaler skipped; then the losses are compared with a reference that skips them too. `updates` is None if
    only losses were compared.
    """

    verdict: CheckVerdict
    reason: str | None
    loss: list[float] = Field(default_factory=list)
    difference: list[NonNegative] = Field(default_factory=list)
    largest_difference: NonNegative | None = None
    tolerance: Positive | None = None
    at_step: Count | None = None
    skipped_steps: list[Count] = Field(default_factory=list)
    updates: Updates | None = None


class Equivalence(WorkloadFile):
    """results/<benchmark>/equivalence.json: whether the frameworks of a benchmark compute the same.

    `covers` says in sentences what the equivalence check covers.
    """

    batch: Count
    covers: list[str]
    steps: Count
    tolerance: Positive
    reference: str
    limits: str
    optimizer: Optimizer
    reference_loss: dict[str, list[float]]
    frameworks: dict[str, dict[str, Comparison]]
    precisions: dict[str, dict[str, Comparison]]
    """Map framework and precision to the comparison of its losses with the same framework's losses in fp32."""

    def of(self, framework: str, precision: str = "fp32") -> EquivalenceVerdict | None:
        """Return the worst verdict of a framework's topologies and of this precision; None if it was not compared."""
        compared, order = self.frameworks.get(framework), get_args(CheckVerdict)
        if not compared:
            return None
        by_precision = self.precisions.get(framework, {})
        others = by_precision.keys() - {precision}
        compared = compared | {name: check for name, check in by_precision.items() if name == precision}
        topology, worst = min(
            compared.items(), key=lambda item: (order.index(item[1].verdict), -(item[1].largest_difference or 0))
        )
        return EquivalenceVerdict(
            verdict=worst.verdict,
            largest_difference=worst.largest_difference,
            tolerance=worst.tolerance or self.tolerance,
            reason=f"{topology}: {worst.reason}" if worst.reason else None,
            covers=[text for text in self.covers if text.split()[0] not in others],
            updates=_worst_update({name: check.updates for name, check in compared.items() if check.updates}),
        )


def _worst_update(found: Mapping[str, Updates]) -> WorstUpdate | None:
    """Return the worst of several comparisons of updates: what differs, then what was not compared, then the rest."""
    if not found:
        return None
    order = ("different", "not compared", "equal")
    place, worst = min(found.items(), key=lambda item: (order.index(item[1].verdict), -item[1].excess))
    return WorstUpdate(
        **worst.model_dump(exclude={"tensors", "left_out", "reason"}),
        reason=f"{place}: {worst.reason}" if worst.reason else None,
        compared=len(worst.tensors),
        left_out=sum(map(len, worst.left_out.values())),
    )


class Try(Entry):
    """One try in the search for the largest size. The status `fits` says nothing about speed.

    `size` is the size of a quantity other than the batch.
    """

    batch: Count
    size: Count | None = None
    status: Literal["fits", "oom"]
    reason: str | None
    peak_memory_bytes: Whole | None


class Largest(Entry):
    """One framework's largest batch per device, or its largest size of another quantity with a given batch.

    `tries` has all tries in their order. `smallest_out_of_memory` is None if every try fitted.
    """

    status: Literal["ok", "oom", "unsupported"]
    reason: str | None
    largest_batch_per_device: Count | None
    largest_size: Count | None = None
    smallest_out_of_memory: Count | None
    peak_memory_bytes: Whole | None
    device: Device | None
    tries: list[Try]


class MaxBatch(WorkloadFile):
    """results/<benchmark>/max_<quantity>_<precision>.json: each framework's largest batch per device that fits.

    If `quantity` is a parameter such as `classes`, it is the largest value of this parameter.
    """

    precision: Precision
    topology: str
    steps: Count
    memory_limit_mb: Count | None
    quantity: str = "batch"
    tried_at_most: Count
    frameworks: dict[str, Largest]
    started: str
    ended: str
