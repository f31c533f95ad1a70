"""The frameworks that train. Each has its own folder; this file defines what a framework has to offer.

The `__init__.py` of a folder describes its framework to the rest of the program (`Framework`) and imports only the
standard library. It names the class that trains in a rank (`Rank`). This class contains only the mechanics of training.
The model and its shapes belong to the workload, whose form in the framework's library the class gets. The classes of
all frameworks have the same methods in the same order. The files in this room import the single files of the lowest
floor and the workloads, but no run, launcher or report. docs/add-a-framework.md explains everything.
"""

# ruff: noqa: B027  (an empty method is something that a single process need not do; a framework may leave it empty)

import importlib
import itertools
import pkgutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, make_dataclass
from functools import cache
from typing import IO, Any

from throughline import memory, workloads
from throughline.files import UserError
from throughline.frameworks import starters
from throughline.spec import Options, Part, RunSpec
from throughline.workloads import Form
from throughline.workloads import Unsupported as Unsupported


class Rank(ABC):
    """The part of a framework that runs in a rank. Its methods stand in the order in which they are called.

    The bodies in this class are right for a single process on a CPU. A *mark* is a point on the device's time line,
    which is read only after the timed window.
    """

    network: Any
    """The network that `model` has built, as the workload's form knows it."""
    form: Form[Any, Any]
    """The workload's form in the framework's library."""
    own_step: str | None = None
    """What a step is, in words, if the library trains in its own loop. Then `drive` is called instead of `step`."""

    def __init__(self, spec: RunSpec[Any], rank: int, local_rank: int, world: int, kind: str) -> None:
        """`kind` is `cpu` or one of the framework's accelerators.

        The libraries are already imported, and no memory limit is set yet.
        """
        self.spec, self.options = spec, spec.options
        self.rank, self.local_rank, self.world, self.kind = rank, local_rank, world, kind
        tensor = self.options.tensor
        self.replica, self.replicas = rank // tensor, world // tensor
        self.trains = workloads.of(spec.model).trains
        self.exchanges = self.replicas > 1 and self.options.exchange and self.trains
        self.form = workloads.form(spec.model, of(spec.framework).library)

    def join(self) -> None:
        """Meet the other ranks."""

    def device(self) -> None:
        """Take the device, set threads, seeds and precision. Raises Unsupported."""

    def model(self, facts: dict[str, Any]) -> None:
        """Let the workload's form build the model with random weights, which are the same on every rank.

        `facts` are what the form has to know about the data (`Workload.facts`).
        """

    def load(self, weights: dict[str, Any]) -> None:
        """Replace the weights by these: numpy arrays by their names in the model's PyTorch form."""
        self.form.load(self.network, weights)

    def data(self, arrays: dict[str, Any]) -> Any:
        """Turn numpy arrays into a batch that can be sent to the device. The loader's thread calls this."""

    def deliver(self, batch: Any) -> Any:
        """Return the batch on the device, without waiting until it has arrived."""
        return batch

    def optimizer(self) -> None:
        """Build the optimizer."""

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of the next step. If the run has a schedule, this is called before every step."""
        raise Unsupported(f"{self.spec.framework} has no learning rate that changes (optimizer.schedule)")

    def step(self, batches: list[Any]) -> Any:
        """Make one optimizer step over delivered micro-batches. Return the mean loss as a value on the device."""

    def drive(self, loop: Generator[None, Any, Any], batches: Callable[[], list[Any]], heart: Any) -> Any:
        """Train in the library's own loop until `loop` ends, and return what `loop` returns.

        Start `loop` with `next`, and send it the loss of every optimizer step. It ends when it has seen enough steps.
        `batches` returns the delivered micro-batches of a step. An evaluation is a phase of `heart`
        (rank/heartbeat.py).
        """

    def samples(self, training: Any, held_out: Any) -> None:
        """Take all samples of a whole job: those to train on, and the held-out ones or None.

        Each is one batch, as `data` returns it. A framework with `jobs` gets them instead of batches.
        """

    def told(self) -> dict[str, float]:
        """Return the figures that the library itself reports of its job, by their names in `job.FIGURES`."""
        return {}

    def call(self) -> None:
        """Make one call of a workload that trains nothing. This is its step."""
        self.network()

    def sync(self) -> None:
        """Wait until the device is idle."""

    def barrier(self) -> None:
        """Wait until every rank has called this."""

    def broadcast(self, value: int) -> int:
        """Return rank 0's value on every rank."""
        return value

    def mark(self) -> Any:
        """Return a mark behind all work that the device has been given so far."""
        return time.monotonic()

    def seconds(self, marks: list[Any]) -> list[float]:
        """Return the seconds between consecutive marks. It is called after a `sync` and before the next one."""
        return [end - start for start, end in itertools.pairwise(marks)]

    def losses(self, values: list[Any]) -> list[float]:
        """Return as numbers the losses that `step` returned. It is called after `sync`."""
        return values

    def skipped(self) -> int:
        """Return the number of steps that the loss scaler has skipped so far.

        It waits for the device, so it is only called outside the timed window.
        """
        return 0

    @abstractmethod
    def memory(self) -> dict[str, Any]:
        """Return the peaks of memory since the start as {needed_bytes, reserved_bytes, reasons}.

        They are those of the GPU, or of the process on a CPU. `reasons` says why a value is None.
        """

    def product(self, size: int) -> Callable[[], Any] | None:
        """Return a function that multiplies two size x size matrices in the run's precision, without waiting.

        None if the framework has none. The matrices are random, from a standard normal distribution: a GPU draws less
        power for constant matrices, so it would multiply them faster than the matrices of real training. Sums of 8,192
        products stay far below the largest fp16 number.
        """
        return None

    def matmul(self, seconds: float) -> float | None:
        """Measure for about `seconds` the FLOP/s of a large matrix product in the run's precision.

        None if `product` returns None.
        """
        size = CPU_MATMUL_SIZE if self.kind == "cpu" else MATMUL_SIZE
        multiply = self.product(size)
        if multiply is None:
            return None

        def timed(times: int) -> float:
            self.sync()
            start = time.monotonic()
            for _ in range(times):
                multiply()
            self.sync()
            return time.monotonic() - start

        timed(1)  # the first call may have to set something up
        times = max(1, int(seconds / timed(1)))
        return 2 * size**3 * times / timed(times)

    def exchange_alone(self, at_least_s: float) -> tuple[list[int], float] | None:
        """Measure the exchange of gradients without any computation, for at least `at_least_s` seconds.

        Return the bytes of each message that carries the gradients of a step, and the seconds that all messages of a
        step take; None if it is not measured. Every rank calls this and gets the same result.
        """
        return None

    def settings(self) -> dict[str, Any]:
        """Return the values that show whether two frameworks do the same work, as they are really set up.

        The keys are those of SETTINGS, in this file.
        """
        clip, threads = self.options.clip, self.threads() if self.kind == "cpu" else None
        optimizer = self.spec.optimizer
        schedule = optimizer.schedule  # with a schedule, the optimizer itself only knows the rate of the last step
        if not self.trains:
            return {**self.form.settings(self.network), "threads": threads}
        return {
            **self.form.settings(self.network),
            "optimizer": optimizer.name,
            "sharding": self.options.sharding,
            **self.update_settings(),
            **({"learning_rate": optimizer.learning_rate, "schedule": schedule.words} if schedule.changes else {}),
            "clip": clip,
            "clip_at": None if clip == "none" else CLIP_AT,
            "graph": self.options.graph,
            "threads": threads,
        }

    def update_settings(self) -> dict[str, Any]:
        """Return those of SETTINGS that are read from the optimizer itself."""
        return {}

    def threads(self) -> int:
        """Return the number of threads that compute on a CPU. The launcher sets OMP_NUM_THREADS."""
        return self.spec.threads

    @abstractmethod
    def versions(self) -> dict[str, str | None]:
        """Return the versions of the framework and of what it runs on."""

    def is_out_of_memory(self, error: BaseException) -> bool:
        """True if the error means that an allocator refused memory. It is not called for a MemoryError."""
        return memory.is_refusal(str(error))

    def seed(self, value: int) -> None:
        """Seed the random numbers of dropout, for a convergence check."""
        raise NotImplementedError

    def save(self, stream: IO[bytes]) -> None:
        """Write everything that a step changes, such as the weights and the optimizer's states, as plain arrays."""
        raise NotImplementedError

    def restore(self, stream: IO[bytes], weights_alone: bool = False) -> None:
        """Read what `save` has written, or only its weights. Nothing in the file may run code."""
        raise NotImplementedError

    def close(self) -> None:
        """Leave the other ranks."""


CLIP_AT = 1.0
"""The limit at which gradients are clipped: each value, the norm of each gradient, or the norm of all."""
MATMUL_SIZE = 8192
"""Rows and columns of the matrices that `matmul` multiplies, large enough to reach the highest rate of a GPU."""
CPU_MATMUL_SIZE = 1024

FEATURES = {
    "devices": "several devices",
    "nodes": "several nodes",
    "amp": "mixed precision with fp16 (AMP)",
    "bf16": "mixed precision with bf16",
    "fp8": "matrix products in fp8",
    "compile": "compiled model",
    "graph": "forward and backward replayed as a CUDA graph (one GPU)",
    "accumulation": "gradient accumulation",
    "clipping": "gradient clipping",
    "checkpointing": "recomputed activations",
    "unpadded": "padding left out",
    "sharding": "states split over replicas (sharding)",
    "tensor": "several devices for one replica (tensor parallelism)",
    "own_exchange": "parameters that a model's ranks exchange in a way of their own (split tables)",
    "convergence": "convergence check with checkpoints",
}
"""Map each feature that a framework can have to its words in the feature matrix."""


@dataclass(frozen=True)
class Framework:
    """What the rest of the program has to know about a framework without importing its library.

    It is the constant FRAMEWORK in the `__init__.py` of the framework's folder.

    * rank: module and class of its Rank, as `module:Class` below this room
    * library: the library whose form of a workload it trains (`workloads.form`)
    * packages: the packages whose versions decide what is measured, by their names in its pins. If its builds for
      CPUs and for GPUs have different names, it has both
    * accelerators: each kind of accelerator that it trains on, and a line of Python that prints {count, name, fp16} of
      those that it sees. The line runs in its environment. `runs.device: auto` takes the first kind that it sees
    * features: the features that it has, see FEATURES
    * gpus_only: those of its features that it has on GPUs only. On a CPU its Rank refuses them, with a reason
    * reasons: for some missing features, the reason why they are missing
    * options: a dataclass of the options that only it has; several frameworks may share it
    * starter: its own launcher, which starts the ranks; None if the agent of each node starts them
    * calls: True if it can measure a workload that trains nothing
    * jobs: True if it trains whole jobs, with epochs and evaluations
    * compiles: True if it compiles every step, whatever `options.compile` says. The first step may then take minutes
    """

    rank: str
    library: str
    packages: tuple[str, ...]
    accelerators: Mapping[str, str]
    features: frozenset[str]
    gpus_only: frozenset[str] = frozenset()
    reasons: Mapping[str, str] = field(default_factory=dict)
    options: type[Part] | None = None
    starter: starters.Starter | None = None
    calls: bool = False
    jobs: bool = False
    compiles: bool = False


SETTINGS = (
    "parameters", "dropout", "loss", "optimizer", "learning_rate", "betas", "epsilon", "epsilon_is_added_to",
    "weight_decay", "decays", "clip", "clip_at", "graph", "sharding", "threads",
)  # fmt: skip
"""The keys that every framework's `settings` has, in addition to those of the workload's form (`Workload.settings`).

Their values are read from what was built, and not copied from what was asked for.
"""


NAMES = tuple(sorted(package.name.replace("_", "-") for package in pkgutil.iter_modules(__path__) if package.ispkg))
"""The names of all frameworks. Each has a folder; the folder of `torch-horovod` is `torch_horovod`."""


@cache
def of(name: str) -> Framework:
    """Return the description of a framework. Raises UserError if there is no framework of this name."""
    if name not in NAMES:
        raise UserError(f"there is no framework {name!r}", next_step="choose one of " + ", ".join(NAMES))
    known: Framework = importlib.import_module(f"{__name__}.{name.replace('-', '_')}").FRAMEWORK
    return known


@cache
def accelerators() -> tuple[str, ...]:
    """Return the kinds of accelerators that some framework trains on."""
    return tuple(dict.fromkeys(kind for name in NAMES for kind in of(name).accelerators))


@cache
def packages() -> tuple[str, ...]:
    """Return the packages whose versions decide what is measured: those of every framework, and what all ranks use."""
    return tuple(dict.fromkeys(["numpy", "h5py", *(package for name in NAMES for package in of(name).packages)]))


@cache
def options() -> type[Options]:
    """Return the class of a run's options: those of every framework, and after them each framework's own."""
    own = dict.fromkeys(framework.options for framework in map(of, NAMES) if framework.options)
    return make_dataclass("Options", [], bases=(*reversed(own), Options), frozen=True)


def specification(value: Mapping[str, Any]) -> RunSpec[Any]:
    """Return a run's specification from its JSON values. Raise ValueError if a key is missing or unknown."""
    return RunSpec.of(value, workloads.of(value["model"]).parameters, options())


def features(name: str, model: str) -> frozenset[str]:
    """Return the features of a framework with a model: those that the framework and the workload's form both have."""
    framework, workload = of(name), workloads.of(model)
    if not (framework.calls or workload.trains):
        return frozenset()
    return framework.features & workload.libraries.get(framework.library, frozenset())


def refuse(spec: RunSpec[Any]) -> None:
    """Raise Unsupported if a run needs a feature that the workload's form or the framework lacks.

    The form is imported only if its reason is needed.
    """
    model, workload, framework = spec.model, workloads.of(spec.model), of(spec.framework)
    offered = workload.libraries.get(framework.library)
    if offered is None:
        why = workload.no_form.get(framework.library, f"{spec.framework} trains with {framework.library}")
        raise Unsupported(f"{model} has no form in {framework.library}: {why}")
    if not (framework.calls or workload.trains):
        raise Unsupported(f"{spec.framework} only trains, and {model} trains nothing: torch measures it")
    if spec.job and not framework.jobs:
        able = ", ".join(name for name in NAMES if of(name).jobs)
        raise Unsupported(f"{spec.framework} trains steps, and no whole jobs: {able} does")
    for feature in needs(spec):
        if feature not in offered:
            load(spec.framework)  # before the form: the framework chooses the backend of a library that has several
            lacks = workloads.form(model, framework.library).lacks
            raise Unsupported(lacks.get(feature) or f"{model} in {framework.library} has no {FEATURES[feature]}")
        if feature not in framework.features:
            raise Unsupported(framework.reasons.get(feature) or f"{spec.framework} has no {FEATURES[feature]}")


def needs(spec: RunSpec[Any]) -> list[str]:
    """Return the features that a run needs."""
    options, topology = spec.options, spec.topology
    needed = {
        "devices": topology.world > 1,
        "nodes": topology.nodes > 1,
        "amp": spec.precision == "fp16",
        "bf16": spec.precision == "bf16",
        "fp8": spec.precision == "fp8",
        "compile": options.compile,
        "graph": options.graph,
        "accumulation": options.accumulate > 1,
        "clipping": options.clip != "none",
        "checkpointing": options.checkpointing,
        "unpadded": options.unpadded,
        "sharding": options.sharding != "none",
        "tensor": options.tensor > 1,
        "own_exchange": topology.world > 1 and workloads.of(spec.model).own_exchange(spec),
    }
    return [feature for feature, is_needed in needed.items() if is_needed]


def load(name: str) -> type[Rank]:
    """Import a framework and return the class of its ranks."""
    module, _, kind = of(name).rank.partition(":")
    loaded: type[Rank] = getattr(importlib.import_module(f"{__name__}.{module}"), kind)
    return loaded
