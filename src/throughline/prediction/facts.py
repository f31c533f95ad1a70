"""What a prediction is made from, what it is asked, and what it answers."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from throughline.numbers import percent, reading
from throughline.spec import Layout, Topology

LEVEL = 0.9
"""The probability with which an interval is meant to hold the throughput."""
FAR = 16
"""Predictions for more than so many times the largest measured number of devices say so in their sentence."""

Exchange = Literal["gradients", "lookups", "none"]
"""What the ranks exchange: gradients of the whole model, rows of split tables (all-to-all), or nothing."""


@dataclass(frozen=True)
class Point:
    """What was measured on one topology.

    devices: of each node; step_s: seconds of a step, one for each repeat; compute_s: seconds of a step without exchange
    (extra `no_gradient_sync`); all_reduce: messages of a step's exchange that were measured alone (`runs.network`), as
    (bytes, seconds), so that their seconds add up to the exchange of a step; rank_spread: standard deviation over mean
    of the ranks' steps when each works alone; input_s: seconds of a step that wait for data; gradient_accumulation:
    micro-batches of a step.
    """

    nodes: int
    devices: int
    step_s: tuple[float, ...]
    global_batch: int
    compute_s: float | None = None
    all_reduce: tuple[tuple[int, float], ...] = ()
    rank_spread: float | None = None
    input_s: float | None = None
    gradient_accumulation: int = 1

    @property
    def world(self) -> int:
        return self.nodes * self.devices

    @property
    def middle_s(self) -> float:
        """The median step of the repeats."""
        return statistics.median(self.step_s)

    @property
    def topology(self) -> Topology:
        return Topology(self.nodes, self.devices)


@dataclass(frozen=True)
class Target:
    """A topology that nobody measured, and the samples of a step there."""

    nodes: int
    devices: int
    global_batch: int
    gradient_accumulation: int = 1

    @property
    def world(self) -> int:
        return self.nodes * self.devices

    @property
    def topology(self) -> Topology:
        return Topology(self.nodes, self.devices)


@dataclass(frozen=True)
class Job:
    """What all points and targets of a prediction share.

    layout: how the model lies on its ranks; exchange: what the ranks exchange; input_limited: why data arrive too
    slowly, as a sentence, if they do (so that a faster or larger machine waits for them); None if they do not.
    """

    layout: Layout = field(default_factory=Layout)
    exchange: Exchange = "gradients"
    input_limited: str | None = None


@dataclass(frozen=True)
class Prediction:
    """The predicted throughput of a target.

    low, high: the interval that holds it with the probability `level`; terms: the seconds of a step by their cause,
    which add up to the predicted step; of_repeats, of_model: half-widths of the interval, as logarithms, that either
    source alone would give; beyond: devices of the target over the largest measured number of devices; warnings:
    sentences.
    """

    target: Target
    samples_per_s: float
    low: float
    high: float
    level: float
    terms: Mapping[str, float]
    of_repeats: float
    of_model: float
    beyond: float
    warnings: tuple[str, ...] = ()

    @property
    def step_s(self) -> float:
        return self.target.global_batch / self.samples_per_s

    @cached_property
    def sentence(self) -> str:
        """The prediction in one sentence, which says if the target is far beyond what was measured."""
        ends = f"{reading(self.low)} to {reading(self.high)} with {percent(self.level)}"
        far = f", {self.beyond:.3g} times as many devices as were measured" if self.beyond > FAR else ""
        return f"predicted for {self.target.topology}{far}: {reading(self.samples_per_s)} samples/s ({ends})"


@dataclass(frozen=True)
class Refusal:
    """A target without a prediction. why: a sentence."""

    target: Target
    why: str
