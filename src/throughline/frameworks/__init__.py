"""Frameworks: who trains. One folder each, line-for-line parallels of each other; this page says what one offers.

A folder's `__init__.py` says what the rest has to know (`Framework`) and imports the standard library alone; the class
it names is one rank's side (`Rank`). It is mechanics: models and shapes are the workload's, whose form in the
framework's library it gets. Files in here know the ground and workloads, no run, launcher or report.
docs/add-a-framework.md goes through all of it.
"""

# ruff: noqa: B027  (what a single process need not do is an empty method, and a framework may leave it so)

import importlib
import itertools
import pkgutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from throughline import memory, workloads
from throughline.files import UserError
from throughline.frameworks import starters
from throughline.schedule import Schedule
from throughline.topology import Topology
from throughline.workloads import Unsupported as Unsupported

Spec = dict[str, Any]
"""The run specification, as parsed JSON."""


class Rank(ABC):
    """One rank's side of a framework; its methods stand in the order in which they are called.

    The bodies here serve a single process on a CPU. A *mark* is a point on the device's time line, read only after
    the window.
    """

    network: Any
    """What `model` has built, as the workload's form knows it."""
    own_step: str | None = None
    """What a step is, in words, where the library makes the steps in a loop of its own: then there is `drive`, and no
    `step`."""

    def __init__(self, spec: Spec, rank: int, local_rank: int, world: int, kind: str) -> None:
        """`kind` is `cpu` or `cuda`. The libraries are imported by now; no memory limit holds yet."""
        self.spec, self.options = spec, spec["options"]
        self.rank, self.local_rank, self.world, self.kind = rank, local_rank, world, kind
        tensor = self.options["tensor"]
        self.replica, self.replicas = rank // tensor, world // tensor
        self.trains = workloads.trains(spec["model"])
        self.exchanges = self.replicas > 1 and self.options["exchange"] and self.trains
        self.form = workloads.form(spec["model"], of(spec["framework"]).library)

    def join(self) -> None:
        """Meet the other ranks."""

    def device(self) -> None:
        """Take the device, set threads, seeds and precision. Raises Unsupported."""

    def model(self, facts: dict[str, Any]) -> None:
        """Have the workload's form build the model, with random weights, the same on every rank. `facts`: what the
        form has to know of the data (`Workload.facts`)."""

    def load(self, weights: dict[str, Any]) -> None:
        """Replace the weights by these (numpy arrays by the names of the model's PyTorch form)."""
        self.form.load(self.network, weights)

    def data(self, arrays: dict[str, Any]) -> Any:
        """numpy arrays -> a batch that is ready to travel (called in the loader's thread)."""

    def deliver(self, batch: Any) -> Any:
        """The batch on the device, without waiting for it."""
        return batch

    def optimizer(self) -> None:
        """Build the optimizer."""

    def set_rate(self, rate: float) -> None:
        """The learning rate of the next step; called before each one where the run has a schedule."""
        raise Unsupported(f"{self.spec['framework']} has no learning rate that changes (optimizer.schedule)")

    def step(self, batches: list[Any]) -> Any:
        """One optimizer step over delivered micro-batches; the mean loss as the device holds it."""

    def drive(self, loop: Generator[None, Any, Any], batches: Callable[[], list[Any]], heart: Any) -> Any:
        """Train in the library's own loop until `loop` ends, and return what it returns. It is started with `next`, is
        sent the loss of every optimizer step, and ends when it has seen enough of them. `batches` gives the delivered
        micro-batches of a step. An evaluation is a phase of `heart` (rank/heartbeat.py)."""

    def samples(self, training: Any, held_out: Any) -> None:
        """What a whole job trains on and is evaluated on: two batches with all samples (`data`), the second may be
        None. Of a framework with `jobs`, in place of batches."""

    def told(self) -> dict[str, float]:
        """The library's own figures of the job that it has trained, by their names in `job.FIGURES`."""
        return {}

    def call(self) -> None:
        """One call of a workload that trains nothing, in place of a step."""
        self.network()

    def sync(self) -> None:
        """Wait until the device is idle."""

    def barrier(self) -> None:
        """Wait for every rank."""

    def broadcast(self, value: int) -> int:
        """Rank 0's value, on every rank."""
        return value

    def mark(self) -> Any:
        """A mark at the present end of the device's work."""
        return time.monotonic()

    def seconds(self, marks: list[Any]) -> list[float]:
        """Seconds between consecutive marks (after `sync`, and before the next one)."""
        return [end - start for start, end in itertools.pairwise(marks)]

    def losses(self, values: list[Any]) -> list[float]:
        """What `step` returned, as numbers (after `sync`)."""
        return values

    def skipped(self) -> int:
        """Steps that the loss scaler has skipped up to now (outside the window: it waits for the device)."""
        return 0

    @abstractmethod
    def memory(self) -> dict[str, Any]:
        """Peaks since the start: {needed_bytes, reserved_bytes, reasons}, of a GPU, or of the process on a CPU."""

    def product(self, size: int) -> Callable[[], Any] | None:
        """What multiplies two size x size matrices at the run's precision, without waiting; None where nothing does.

        They are random, from a standard normal distribution: constant ones draw less power, so that a GPU multiplies
        them faster than any that training has. Sums of 8,192 products stay below fp16's limit by far.
        """
        return None

    def matmul(self, seconds: float) -> float | None:
        """FLOP/s of a large matrix product at the run's precision, over about `seconds`; None without a product."""
        size = MATMUL_SIZE[self.kind]
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

        timed(1)  # whatever a first one has to set up
        times = max(1, int(seconds / timed(1)))
        return 2 * size**3 * times / timed(times)

    def exchange_alone(self, at_least_s: float) -> tuple[list[int], float] | None:
        """Bytes of each message that carries a step's gradients, and the seconds that all of them take where nothing is
        computed (every rank calls this, and gets the same); None where it is not measured."""
        return None

    def settings(self) -> dict[str, Any]:
        """What decides whether two frameworks do the same work, as it is set up: the keys of SETTINGS (at the end)."""
        clip, threads = self.options["clip"], self.threads() if self.kind == "cpu" else None
        optimizer = self.spec["optimizer"]
        schedule = Schedule.of(optimizer)  # then the optimizer itself has the rate of its last step
        if not self.trains:
            return {**self.form.settings(self.network), "threads": threads}
        return {
            **self.form.settings(self.network),
            "optimizer": optimizer["name"],
            "sharding": self.options["sharding"],
            **self.update_settings(),
            **({"learning_rate": optimizer["learning_rate"], "schedule": schedule.words} if schedule else {}),
            "clip": clip,
            "clip_at": None if clip == "none" else CLIP_AT,
            "graph": self.options["graph"],
            "threads": threads,
        }

    def update_settings(self) -> dict[str, Any]:
        """Those of SETTINGS that the optimizer itself can tell."""
        return {}

    def threads(self) -> int:
        """Threads that compute, on a CPU; the launcher sets OMP_NUM_THREADS."""
        return int(self.spec["threads"])

    @abstractmethod
    def versions(self) -> dict[str, str | None]:
        """Versions of the framework and what it runs on."""

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Whether the allocator refused; a MemoryError says so by itself."""
        return memory.is_refusal(str(error))

    def close(self) -> None:
        """Part from the other ranks."""


CLIP_AT = 1.0
"""Where gradients are clipped: their values, each one's norm, or the norm of all."""
MATMUL_SIZE = {"cpu": 1024, "cuda": 8192}
"""Rows and columns of the matrices that `matmul` multiplies: large enough for the device's best rate."""

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
"""What the feature matrix asks of every framework, and in words."""


@dataclass(frozen=True)
class Framework:
    """What the rest has to know of a framework without importing it: FRAMEWORK in the `__init__.py` of its folder.

    `rank`: module and class of a rank's side, below this room. `library`: which form of a workload it trains
    (`workloads.form`). `gpus`: a line of Python for its environment that prints {count, name, fp16} of the GPUs it
    sees. `reasons`: why a feature is not there, where more is to be said than that. `starter`: a launcher of its own
    that starts the ranks; without one every node's agent starts them. `calls`: whether it makes the calls of a workload
    that trains nothing. `jobs`: whether it trains whole jobs, with epochs and evaluations.
    """

    rank: str
    library: str
    gpus: str
    features: frozenset[str]
    reasons: Mapping[str, str] = field(default_factory=dict)
    starter: starters.Starter | None = None
    calls: bool = False
    jobs: bool = False


SETTINGS = (
    "parameters", "dropout", "loss", "optimizer", "learning_rate", "betas", "epsilon", "epsilon_is_added_to",
    "weight_decay", "decays", "clip", "clip_at", "graph", "sharding", "threads",
)  # fmt: skip
"""What every framework states of itself (`settings`), as it is built and not as it was asked for, beside what the
workload's form states (`Workload.SETTINGS`)."""


NAMES = tuple(sorted(package.name.replace("_", "-") for package in pkgutil.iter_modules(__path__) if package.ispkg))
"""The frameworks there are: a folder each, `torch_horovod` for `torch-horovod`."""


@cache
def of(name: str) -> Framework:
    """What is known of a framework; UserError where there is none of that name."""
    if name not in NAMES:
        raise UserError(f"there is no framework {name!r}", next_step="choose one of " + ", ".join(NAMES))
    known: Framework = importlib.import_module(f"{__name__}.{name.replace('-', '_')}").FRAMEWORK
    return known


def features(name: str, model: str) -> frozenset[str]:
    """What a framework can do with a model: what both its mechanics and the workload's form in its library have."""
    framework = of(name)
    if not (framework.calls or workloads.trains(model)):
        return frozenset()
    return framework.features & workloads.of(model).LIBRARIES.get(framework.library, frozenset())


def refuse(spec: Spec) -> None:
    """Unsupported where a run needs a feature that the workload's form or the framework lacks. Imports the form
    only for its reason."""
    model, framework = spec["model"], of(spec["framework"])
    offered = workloads.of(model).LIBRARIES.get(framework.library)
    if offered is None:
        why = workloads.of(model).NO_FORM.get(framework.library, f"{spec['framework']} trains with {framework.library}")
        raise Unsupported(f"{model} has no form in {framework.library}: {why}")
    if not (framework.calls or workloads.trains(model)):
        raise Unsupported(f"{spec['framework']} only trains, and {model} trains nothing: torch measures it")
    if spec.get("job") and not framework.jobs:
        able = ", ".join(name for name in NAMES if of(name).jobs)
        raise Unsupported(f"{spec['framework']} trains steps, and no whole jobs: {able} does")
    for feature in needs(spec):
        if feature not in offered:
            load(spec["framework"])  # before the form: a library with several backends is told there which one it has
            lacks = workloads.form(model, framework.library).LACKS
            raise Unsupported(lacks.get(feature) or f"{model} in {framework.library} has no {FEATURES[feature]}")
        if feature not in framework.features:
            raise Unsupported(framework.reasons.get(feature) or f"{spec['framework']} has no {FEATURES[feature]}")


def needs(spec: Spec) -> list[str]:
    """The features that a run needs."""
    options, topology = spec["options"], Topology.parse(spec["topology"])
    needed = {
        "devices": topology.world > 1,
        "nodes": topology.nodes > 1,
        "amp": spec["precision"] == "fp16",
        "bf16": spec["precision"] == "bf16",
        "fp8": spec["precision"] == "fp8",
        "compile": options["compile"],
        "graph": options["graph"],
        "accumulation": options["accumulate"] > 1,
        "clipping": options["clip"] != "none",
        "checkpointing": options["checkpointing"],
        "unpadded": options["unpadded"],
        "sharding": options["sharding"] != "none",
        "tensor": options["tensor"] > 1,
        "own_exchange": topology.world > 1 and workloads.own_exchange(spec),
    }
    return [feature for feature, is_needed in needed.items() if is_needed]


def load(name: str) -> type[Rank]:
    """The class of a framework's ranks; imports the framework."""
    module, _, kind = of(name).rank.partition(":")
    loaded: type[Rank] = getattr(importlib.import_module(f"{__name__}.{module}"), kind)
    return loaded
