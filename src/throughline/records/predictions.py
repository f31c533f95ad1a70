"""results/<benchmark>/predictions.json: the throughput of topologies that nobody has measured, and what it is made of.

Nothing in this file is measured, apart from `measured`: these are the figures of the summaries that it was made from.
"""

from typing import Annotated

from pydantic import Field

from throughline.records.entry import BatchSize, Count, Entry, NonNegative, Positive, Schema
from throughline.spec import Precision

Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Message(Entry):
    """The all-reduce of a step's gradients alone: its bytes on each rank, and its seconds."""

    bytes: Count
    seconds: Positive


class MeasuredPoint(Entry):
    """A measured cell, as the prediction takes it.

    step_s: seconds of a step, of each repeat. compute_s: the same without the exchange, from the extra
    `no_gradient_sync`. rank_spread: standard deviation over mean of the ranks' steps there, as a median of the repeats.
    input_s: seconds of a step that reading takes, from the extra `synthetic`. all_reduce: from `runs.network`.
    """

    topology: str
    global_batch: Count
    gradient_accumulation: Count
    step_s: list[Positive]
    compute_s: Positive | None
    rank_spread: NonNegative | None = Field(None, exclude_if=lambda value: value is None)
    input_s: NonNegative | None
    all_reduce: list[Message]


class PredictedCell(Entry):
    """A topology that was not measured. samples_per_s lies between low and high with the probability `level`.

    terms: the seconds of a step by what they are spent on. repeats_log, model_log: half the width of the interval in
    natural logarithms, from the repeats and from the model. times_beyond: its devices over the most that were measured.
    """

    topology: str
    global_batch: Count
    gradient_accumulation: Count
    samples_per_s: Positive
    low: Positive
    high: Positive
    level: Positive
    terms: dict[str, NonNegative]
    repeats_log: NonNegative
    model_log: NonNegative
    times_beyond: Positive
    warnings: list[str]

    @property
    def step_s(self) -> float:
        """The predicted seconds of a step."""
        return self.global_batch / self.samples_per_s


class NotPredicted(Entry):
    """A topology without a prediction, and why there is none."""

    topology: str
    why: str


class PredictedSeries(Entry):
    """The predictions of one framework at one batch size and precision."""

    batch: BatchSize
    precision: Precision
    framework: str
    unit: str
    measured: list[MeasuredPoint]
    predicted: list[PredictedCell]
    not_predicted: list[NotPredicted]


class Predictions(Entry):
    """The predictions of one benchmark. made_from: the summaries behind them, with their SHA-256."""

    schema_: Schema
    benchmark: str
    asked: list[str]
    made_from: dict[str, Sha256]
    series: list[PredictedSeries]
