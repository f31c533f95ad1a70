"""The seconds of a step on a topology, as a sum of terms whose constants are fitted to the steps of other topologies.

    step = (compute + waiting) of each micro-batch + exchange inside the nodes + exchange between the nodes + input

Each term is a known column times a constant. Two forms of the exchange bracket what libraries do. `hierarchical`: first
inside each node, then between the nodes; with k parts, an all-reduce moves (k-1)/k of the bytes twice through the
slowest link. `ring`: one ring over all ranks, as fast as its slowest link, so beyond one node only the links between
nodes count. docs/explanation/method-prediction.md names the sources.
"""

import itertools
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from throughline.records import MeasuredPoint
from throughline.spec import Layout, Topology

Array = NDArray[np.float64]
Form = Literal["hierarchical", "ring"]
FORMS: tuple[Form, ...] = get_args(Form)
GATHERED = ("shard_grad_op", "full_shard")
"""The values of `sharding` with which ranks gather weights anew for each micro-batch."""
TRIED = (0, 1, 3, 2)
"""The order of the columns. Where few points leave open which exchange they show, it is that between the nodes."""


@dataclass(frozen=True)
class Job:
    """What all topologies of a prediction share.

    layout: how the model lies on its ranks; exchange: gradients, rows of split tables (`lookups`), or nothing;
    input_limited: why data arrive too slowly, as a sentence, if they do: a larger machine would wait for them.
    """

    layout: Layout = field(default_factory=Layout)
    exchange: Literal["gradients", "lookups", "none"] = "gradients"
    input_limited: str | None = None


@dataclass(frozen=True)
class Place:
    """A topology, measured or not, and the samples and micro-batches of an optimizer step there."""

    topology: Topology
    global_batch: int
    gradient_accumulation: int = 1
    job: Job = field(default_factory=Job)

    @classmethod
    def of(cls, point: MeasuredPoint, job: Job) -> Self:
        return cls(Topology.parse(point.topology), point.global_batch, point.gradient_accumulation, job)

    @property
    def replicas(self) -> int:
        return self.topology.world // self.job.layout.tensor_parallel

    @property
    def samples(self) -> float:
        """The samples of one micro-batch of one replica."""
        return self.global_batch / (self.replicas * self.gradient_accumulation)

    def exchange(self, form: Form) -> tuple[float, float]:
        """Return the columns of the exchange inside the nodes and between them: the shares of bytes that travel."""
        of_node = self.topology.devices // self.job.layout.tensor_parallel  # replicas
        counts = of_node, self.topology.nodes, self.replicas
        inside, between, ring = ((parts - 1) / parts for parts in counts)
        if form == "hierarchical":
            return inside, between
        return (inside, 0.0) if self.topology.nodes == 1 else (0.0, ring)

    def slowest(self, spread: float) -> float:
        """Return by which share the slowest rank is expected to take longer than the mean of the ranks."""
        return spread * expected_maximum(self.topology.world)


@cache
def expected_maximum(count: int) -> float:
    """Return the expected maximum of `count` independent standard normal values.

    Blom 1958: the quantile at (n - 0.375) / (n + 0.25). From n = 2 on it errs by less than 0.03.
    """
    return statistics.NormalDist().inv_cdf((count - 0.375) / (count + 0.25)) if count > 1 else 0.0


@dataclass(frozen=True)
class Fit:
    """The fitted constants of one form of the exchange, with a row for each draw of the repeats.

    Their columns: compute that grows with the samples, compute of each micro-batch whatever its size, exchange inside
    the nodes, exchange between them. spread: of the ranks, relative; alone: the constants of the exchange if it was
    measured alone (`runs.network`); then the last two columns are both the share of it that the step shows.
    """

    form: Form
    constants: Array
    spread: float
    input_per_sample_s: float
    alone: tuple[float, float] | None

    def terms(self, place: Place) -> dict[str, Array]:
        """Return the seconds of each term in each draw. Their sum is the step."""
        parts = self.constants * np.array(_columns(place, self.form, self.alone))
        compute = parts[:, 0] + parts[:, 1]
        input_s = np.full_like(compute, self.input_per_sample_s * place.samples * place.gradient_accumulation)
        waiting = compute * place.slowest(self.spread)
        return {"compute": compute, "exchange": parts[:, 2] + parts[:, 3], "waiting": waiting, "input": input_s}

    def step_s(self, place: Place) -> Array:
        total: Array = np.sum(list(self.terms(place).values()), axis=0)
        return total


def fit(points: Sequence[MeasuredPoint], steps_s: Array, form: Form, job: Job) -> Fit:
    """Fit the constants to each row of `steps_s` [draws, points]: least squares of relative errors, none below 0."""
    places = [Place.of(point, job) for point in points]
    spread = _median_or_0(point.rank_spread for point in points)
    input_s = _median_or_0(
        None if point.input_s is None else point.input_s / (place.samples * place.gradient_accumulation)
        for point, place in zip(points, places, strict=True)
    )
    alone = _alone(points, places, form)
    rows = [_columns(place, form, alone) for place in places]
    design = np.array(rows)
    design[:, :2] *= np.array([1 + place.slowest(spread) for place in places])[:, None]
    waits = np.array([input_s * place.samples * place.gradient_accumulation for place in places])
    seconds = np.maximum(steps_s - waits, 1e-3 * steps_s)
    solo = [(row, point.compute_s) for row, point in zip(rows, points, strict=True) if point.compute_s is not None]
    if solo:
        design = np.vstack([design, [[*row[:2], 0.0, 0.0] for row, _ in solo]])
        seconds = np.hstack([seconds, np.broadcast_to([known for _, known in solo], (len(steps_s), len(solo)))])
    if len({round(place.samples, 6) for place in places}) < 2:
        design[:, 1] = 0.0  # one size of micro-batch cannot tell what is fixed from what grows with it
    return Fit(form, least_squares(design, seconds), spread, input_s, alone)


def _median_or_0(values: Iterable[float | None]) -> float:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else 0.0


def _columns(place: Place, form: Form, alone: tuple[float, float] | None) -> list[float]:
    exchanges = place.gradient_accumulation if place.job.layout.sharding in GATHERED else 1
    inside, between = (exchanges * part for part in place.exchange(form))
    if alone:
        inside, between = alone[0] * inside + alone[1] * between, 0.0
    return [place.gradient_accumulation * place.samples, float(place.gradient_accumulation), inside, between]


def _alone(points: Sequence[MeasuredPoint], places: Sequence[Place], form: Form) -> tuple[float, float] | None:
    """Return the constants of the exchange alone. None unless it was measured in every tier that a point has."""
    known = [
        (point, place)
        for point, place in zip(points, places, strict=True)
        if point.all_reduce and place.topology.world > place.job.layout.tensor_parallel
    ]
    most = max((place.topology.nodes for _, place in known), default=0)
    if not known or most == 1 < max(place.topology.nodes for place in places):
        return None
    design = np.array([[0.0, 0.0, *place.exchange(form)] for _, place in known])
    seconds = np.array([[sum(message.seconds for message in point.all_reduce) for point, _ in known]])
    _, _, inside, between = least_squares(design, seconds)[0]
    return float(inside), float(between)


def least_squares(design: Array, seconds: Array) -> Array:
    """Return the non-negative constants with the least squares of relative errors, one row for each row of `seconds`.

    There are four columns at most, so every subset of them is tried: the best one without a negative constant wins.
    """
    used = [column for column in TRIED if design[:, column].any()]
    best, result = np.full(len(seconds), np.inf), np.zeros((len(seconds), design.shape[1]))
    scaled = design[None] / seconds[:, :, None]
    for chosen in itertools.chain(*(itertools.combinations(used, count) for count in range(1, len(used) + 1))):
        part = scaled[:, :, chosen]
        constants = np.linalg.pinv(part).sum(axis=2)
        errors = (np.einsum("dpc,dc->dp", part, constants) - 1) ** 2
        squares = np.where((constants < 0).any(axis=1), np.inf, errors.sum(axis=1))
        better = squares < best - 1e-15
        best, whole = np.where(better, squares, best), np.zeros_like(result)
        whole[:, chosen] = constants
        result = np.where(better[:, None], whole, result)
    return result


def predicted(
    points: Sequence[MeasuredPoint], target: Place, steps_s: Array | None = None
) -> tuple[Array, list[Fit], dict[str, float]]:
    """Return the predicted step of each draw, the fits of both forms, and the terms of the first draw's step.

    The step is the geometric mean of the two forms. `steps_s`: draws with a step for each point; None for the medians.
    All that is no exchange is as the hierarchical form has it, and the rest is exchange: the ring cannot tell its
    compute from exchange unless a point has one rank.
    """
    steps_s = np.array([[median_step_s(point) for point in points]]) if steps_s is None else steps_s
    fits = [fit(points, steps_s, form, target.job) for form in FORMS]
    both: Array = np.sqrt(fits[0].step_s(target) * fits[1].step_s(target))
    terms, step = {name: float(seconds[0]) for name, seconds in fits[0].terms(target).items()}, float(both[0])
    others = sum(terms.values()) - terms["exchange"]
    if others <= step:
        return both, fits, terms | {"exchange": step - others}
    return both, fits, {key: 0.0 if key == "exchange" else value * step / others for key, value in terms.items()}


def median_step_s(point: MeasuredPoint) -> float:
    """Return the median step of a point's repeats, in seconds."""
    return statistics.median(point.step_s)


def doublings(larger: float, smaller: float) -> float:
    return math.log2(larger / smaller)
