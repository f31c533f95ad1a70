"""What a workload offers (`Workload`): everything about a model that does not belong to a library."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, TypeVar

from throughline.spec import Options, RunSpec

Arrays = dict[str, Any]
"""numpy arrays by name."""
Values = Mapping[str, Any]
P = TypeVar("P")
"""The class of the workload's parameters."""


@dataclass(frozen=True)
class Figure:
    """A figure that every run of a workload measures beside throughput.

    `peak`: the peak of the datasheet, in TFLOPS or GB/s, with which a rate can be compared. `of_steps`: percentiles of
    the times of the timed steps in milliseconds, each on the rank that took longest for it. `of_counts`: the
    value that `counted` returns under this name, as a mean over the ranks; `counts` then also gets synthetic batches.
    The implementation measures all other figures.
    """

    name: str
    unit: str
    better: Literal["more", "less"]
    description: str
    peak: Literal["flops", "memory"] | None = None
    of_steps: tuple[int, ...] = ()
    of_counts: bool = False


LATENCY = Figure(
    "latency", "ms", "less", "one iteration, on the rank that takes longest for it: median and percentiles",
    of_steps=(50, 95, 99),
)  # fmt: skip
"""Every workload that trains has it, unless its own `figures` leave it out."""


@dataclass(frozen=True)
class Decoder:
    """The FLOPs of a decoder's forward pass on one sample, by parts: matrix products only, a multiply-add is 2.

    Each convention of counting FLOPs adds up some of them.

    layers: the products with weights, except the vocabulary's. attention: the attention of all pairs of positions.
    seen: the attention of those pairs that the causal mask and a sliding window let through. head: the product with
    the vocabulary's table. parameters: the number of parameters of the whole model; a shared table counts once, and of
    a mixture only the experts that a token uses.
    """

    layers: float
    attention: float
    seen: float
    head: float
    parameters: float


@dataclass(frozen=True)
class Memory:
    """The memory that a rank is predicted to need, by parts, in bytes.

    weights, gradients, states (of the optimizer): what this rank keeps of them. gathered: whole weights that it has
    of other ranks at a time, and their gradients. activations: what the forward pass keeps for the backward pass. head,
    layer: what the head with its loss, or the largest layer, needs only while it is computed.

    accumulates: with several micro-batches, the gradients are there during a forward pass.
    """

    weights: float
    gradients: float
    states: float
    gathered: float
    activations: float
    head: float
    layer: float
    accumulates: bool = False

    @property
    def peak_bytes(self) -> float:
        """The most that is needed at a time: when the forward pass ends, or when the backward pass ends."""
        forward = self.activations + self.head + (self.gradients if self.accumulates else 0.0)
        backward = self.gradients + self.layer
        return self.weights + self.states + self.gathered + max(forward, backward)


class Workload(ABC, Generic[P]):
    """What is trained. The neutral file of a workload has one subclass, and one instance of it as `WORKLOAD`.

    A body in this class is right for a workload that has nothing of the kind. `facts` is the result of the method of
    that name.
    """

    models: ClassVar[tuple[str, ...]]
    """The values that a block's `model` can have, the default first. No other workload may have them."""
    parameters: type[P]
    """A frozen dataclass of `key` fields. They decide a run together with the core keys."""
    libraries: ClassVar[Mapping[str, frozenset[str]]]
    """Map each library to the features (`frameworks.description.FEATURES`) of the implementation there."""
    no_form: ClassVar[Mapping[str, str]] = {}
    """Map a library to the reason why there is no implementation in it. Only libraries that somebody has examined."""
    lacks: ClassVar[Mapping[str, str]] = {}
    """Map a feature that no implementation has to the reason, as a sentence for the record."""
    unit: ClassVar[str] = "samples"
    """The unit of throughput, such as `samples` or `images`."""
    units: ClassVar[Mapping[str, Callable[[Any], float]]] = {}
    """Map other units of the same throughput, such as tokens, to a function: parameters -> how many a sample has."""
    figures: ClassVar[tuple[Figure, ...]] = (LATENCY,)
    by_iteration: ClassVar[bool] = False
    """True if published tables state single iterations. Then the report draws latency and memory over sizes."""
    data: ClassVar[str | None] = None
    """The section of config.yaml and the package with its data. None: all batches are synthetic."""
    settings: ClassVar[tuple[str, ...]] = ()
    """Names that `settings` of every implementation states, beside those of the framework
    (`frameworks.rank.SETTINGS`)."""
    learns_from: ClassVar[int | None] = None
    """A run on real data with so many timed steps has to show a falling loss. None: losses say nothing."""
    held_out: ClassVar[Mapping[str, bool]] = {}
    """Map each figure of held-out data, `loss` too, to True if more is better. Empty without a convergence check."""
    no_reference: ClassVar[str | None] = None
    """Why its mathematics cannot be compared with a reference in double precision. None: they can."""
    check_batch: ClassVar[int] = 1
    """The smallest batch of a replica with which a numerical equivalence check holds."""
    rounding: ClassVar[float] = 1.0
    """How many times the usual rounding a loss in a lower precision may show."""
    update_rounding: ClassVar[float] = 1.0
    """How many times the usual rounding an update may show in a numerical equivalence check."""
    trains: ClassVar[bool] = True
    """True if a step trains the model. False: a step is one call of a test (`untrained.py`)."""
    has_batch: ClassVar[bool] = True
    """True if a step takes a batch of samples."""
    ranks_have_figures: ClassVar[bool] = False
    """True if a record keeps the figures of each rank, because each measures its own device."""
    described: ClassVar[Mapping[str, Any]] = {}
    """The keys of a map that describes a model, with their JSON schemas. The model's name begins with the first key."""

    def of_map(self, values: Values) -> Any:
        """Return the name of the model that a map describes, as a `Described`; ValueError if it cannot be read."""
        raise ValueError("a model's name is needed")

    def complete(self, values: Values, section: Any) -> dict[str, Any]:
        """Return the parameters that are no keys (`asked=False`), from a block's values and the section of its data.

        The section is None without data. Raise a ValueError that names the key if it has no data for these values.
        """
        return {}

    def content(self, spec: RunSpec[P]) -> Any:
        """Return what ranks get of the files that the parameters name by digest, as JSON values (`RunSpec.content`)."""
        return None

    def splits(self, model: str) -> Mapping[str, int]:
        """Map what `tensor_parallel` divides, such as heads, to how many the model has."""
        return {}

    def experts(self, model: str) -> int:
        """Return how many experts each mixture of the model has; 0 if it has none."""
        return 0

    def lacks_form(self, spec: RunSpec[P], library: str) -> str | None:
        """Return why the run's model has no implementation in a library; None if it has one."""
        if library in self.libraries:
            return None
        return self.no_form.get(library, f"{spec.framework} trains with {library}")

    def lacks_reference(self, spec: RunSpec[P]) -> str | None:
        """Return why the run's mathematics cannot be compared with a reference (`no_reference`); None if they can."""
        return self.no_reference

    def own_gradient_sync(self, spec: RunSpec[P]) -> bool:
        """True if the network exchanges some parameters itself (`Form.spread`), so the framework leaves them alone."""
        return False

    def folder(self, parameters: P) -> str:
        """Return the folder under data/<name>/ whose manifest these parameters read."""
        raise ValueError("it reads no data")

    def fits(self, parameters: P, manifest: Values) -> str | None:
        """Return what is wrong with a manifest's data for these parameters, a sentence without its subject; or None."""
        return None

    def facts(self, manifest: Values | None) -> dict[str, Any]:
        """Return what an implementation has to know of the data. manifest: None for synthetic batches."""
        return {}

    def batch(self, rows: Arrays, options: Options) -> Arrays:
        """Return the arrays that one step needs, from the rows of the data's reader, unchanged unless an option
        asks."""
        return rows

    @abstractmethod
    def synthetic(self, count: int, spec: RunSpec[P], seed: int) -> Arrays:
        """Return a synthetic batch of `count` samples, the same for the same seed."""

    def counts(self, rows: Arrays) -> tuple[int, ...]:
        """Count things in a batch's rows, while they are read. The run adds up the counts over the timed window."""
        return ()

    def counted(self, sums: tuple[int, ...], samples: int, spec: RunSpec[P]) -> dict[str, float]:
        """Return figures from the sums of `counts` over this many samples, whose mean over the ranks is that of all."""
        return {}

    @abstractmethod
    def flops_per_sample(self, spec: RunSpec[P], facts: Values, counted: Values) -> float | str:
        """Return the model FLOPs to train on one sample, or why they are not known. `counted` can be empty."""

    def causal_flops_per_sample(self, spec: RunSpec[P]) -> float | str | None:
        """Return the FLOPs with attention counted only where a causal mask lets it through, or why there are none; None
        if the workload has no such number."""
        return None

    def flops_beyond_model(self, spec: RunSpec[P], settings: Values) -> float:
        """Return what a framework with these settings computes beyond `flops_per_sample`."""
        return 0.0

    def decoder(self, spec: RunSpec[P]) -> Decoder | None:
        """Return the FLOPs of a decoder by parts; None if the model is no decoder or its FLOPs are not known."""
        return None

    def memory(self, spec: RunSpec[P], gpu: bool) -> Memory | None:
        """Return the memory that each rank of a run is predicted to need; None if there is no prediction."""
        return None

    def intensity(self, spec: RunSpec[P], figure: str, at: Any) -> float | None:
        """Return the FLOPs for each byte of the call behind a figure, for the roofline; None if there is no number."""
        return None

    @abstractmethod
    def convention(self, spec: RunSpec[P]) -> dict[str, str]:
        """Say in words what `flops_per_sample` counts."""

    def check_parameters(self, spec: RunSpec[P]) -> dict[str, Any]:
        """Return the parameters that an equivalence check changes: they switch off random choices."""
        return {}

    def look(self, sums: Mapping[str, float]) -> dict[str, float]:
        """Return the figures of `held_out`, from sums over held-out batches."""
        return {}
