"""The base of every `rank.py`: the part of a framework that runs in a rank (`Rank`), and what those parts share.

This file imports the standard library, and numpy only to write states. The subclasses import their framework's library.
"""

# ruff: noqa: B027  (an empty method is something that a single process need not do; a framework may leave it empty)

import importlib
import itertools
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from typing import IO, Any

from throughline import memory, workloads
from throughline.frameworks import of
from throughline.spec import RunSpec
from throughline.workloads import Form, Unsupported

CLIP_AT = 1.0
"""The limit at which gradients are clipped: each value, the norm of each gradient, or the norm of all."""
FIRST_SCALE = 2.0**16
"""The first loss scale in fp16, where a library has no loss scaler. It never grows within a run, so its halvings count
the skipped steps."""
MATMUL_SIZE = 8192
"""Rows and columns of the matrices that `matmul` multiplies, large enough to reach the highest rate of a GPU."""
CPU_MATMUL_SIZE = 1024

SETTINGS = (
    "parameters", "dropout", "loss", "optimizer", "learning_rate", "betas", "epsilon", "epsilon_is_added_to",
    "weight_decay", "decays", "clip", "clip_at", "cuda_graph", "sharding", "threads",
)  # fmt: skip
"""The keys of every framework's `settings`, beside `Workload.settings`. Their values are read from what was built."""


class Rank(ABC):
    """The part of a framework that runs in a rank. Its methods stand in the order in which they are called.

    The bodies in this class are right for a single process on a CPU. A *mark* is a point on the device's time line,
    which is read only after the timed window.
    """

    network: Any
    """The network that `model` has built, as the workload's implementation knows it."""
    form: Form[Any, Any]
    """The workload's implementation in the framework's library."""
    own_step: str | None = None
    """What a step is, in words, if the library trains in its own loop. Then `drive` is called instead of `step`."""
    waits: bool = False
    """True if each step waits for the step before it, because the library would queue work without limit. `sync` then
    sets `synced`."""
    takes_from_gpu: bool = False
    """True if `data` also takes tensors that lie on the rank's GPU and that other libraries read by DLPack."""
    synced: float
    """The time at the end of the last `sync`."""

    def __init__(self, spec: RunSpec[Any], rank: int, local_rank: int, world: int, kind: str) -> None:
        """`kind` is `cpu` or one of the framework's accelerators. No memory limit is set yet."""
        self.spec, self.options = spec, spec.options
        self.rank, self.local_rank, self.world, self.kind = rank, local_rank, world, kind
        tensor = self.options.tensor_parallel
        self.replica, self.replicas = rank // tensor, world // tensor
        self.groups = self.options.layout.groups(spec.topology)
        """Groups of replicas (`options.hybrid_shard_groups`)."""
        self.trains = workloads.of(spec.model).trains
        self.exchanges = self.replicas > 1 and self.options.gradient_sync and self.trains
        self.form = workloads.form(spec.model, of(spec.framework).library)

    def join(self) -> None:
        """Meet the other ranks."""

    def device(self) -> None:
        """Take the device, set threads, seeds and precision. Raises Unsupported."""

    def model(self, facts: dict[str, Any]) -> None:
        """Let the workload's implementation build the model with random weights, which are the same on every rank.
        `facts`: see `Workload.facts`."""

    def load(self, weights: dict[str, Any]) -> None:
        """Replace the weights by these: numpy arrays by their names in the model's PyTorch implementation."""
        self.form.load(self.network, weights)

    def snapshot(self) -> dict[str, Any]:
        """Return the weights as numpy arrays, in the library's own names and layouts (`Form.snapshot`)."""
        return self.form.snapshot(self.network)

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

        Start `loop` with `next`, and send it the loss of every optimizer step. `batches` returns the delivered
        micro-batches of a step. An evaluation is a phase of `heart` (rank/heartbeat.py).
        """

    def samples(self, training: Any, held_out: Any) -> None:
        """Take all samples of a whole job (`jobs`), each part as one batch: those to train on, and the held-out ones or
        None."""

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

    def event(self) -> Any:
        """Return a new event of CUDA that measures time; None: the process's clock is read."""
        return None

    def mark(self) -> Any:
        """Return a mark behind all work that the device has been given so far."""
        event = self.event()
        if event is None:
            return time.monotonic()
        event.record()
        return event

    def seconds(self, marks: list[Any]) -> list[float]:
        """Return the seconds between consecutive marks, after a `sync` and before the next one.

        If a step waits for the step before it, its mark is the end of that step. The last step ends with `sync`.
        """
        if self.waits:
            marks = [marks[0], *marks[2:], self.synced]
        pairs = itertools.pairwise(marks)
        if isinstance(marks[0], float):
            return [end - start for start, end in pairs]
        return [start.elapsed_time(end) / 1000 for start, end in pairs]

    def window_opens(self) -> None:
        """Note what there is to note just before the timed window, such as the peak of memory so far."""

    def losses(self, values: list[Any]) -> list[float]:
        """Return as numbers the losses that `step` returned. It is called after `sync`."""
        return values

    def skipped(self) -> int:
        """Return how many steps the loss scaler has skipped. It waits for the device, outside the timed window."""
        return 0

    @abstractmethod
    def memory(self) -> dict[str, Any]:
        """Return the peaks of memory of the GPU, or of the process on a CPU: {needed_bytes, reserved_bytes, reasons}.

        `reasons` says why a value is None. `window_needed_bytes` is the peak within the window, if it can be counted.
        """

    def product(self, size: int) -> Callable[[], Any] | None:
        """Return a function that multiplies two size x size matrices in the run's precision, without waiting; or None.

        The matrices are random, from a standard normal distribution: a GPU draws less power for constant matrices, so
        it would multiply them faster than those of real training.
        """
        return None

    def matmul(self, seconds: float) -> float | None:
        """Measure for about `seconds` the FLOP/s of a large `product`; None without one."""
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

    def multiplied(self, left: Any, right: Any) -> Any:
        """Return the product of two float32 matrices as a step computes it in the run's precision, as a numpy array;
        None if the framework has no such product. A 16-bit type is that of the operands and of the product."""
        return None

    def exchange_alone(self, min_seconds: float) -> tuple[list[int], float] | None:
        """Measure the exchange of gradients without any computation, for at least `min_seconds`.

        Return the bytes of each message of a step, and the seconds that all of them take; None if it is not measured.
        Every rank calls this and gets the same result.
        """
        return None

    def settings(self) -> dict[str, Any]:
        """Return the values that show whether two frameworks do the same work, as they are really set up (SETTINGS)."""
        clip, threads = self.options.clip, self.threads() if self.kind == "cpu" else None
        of_model, optimizer = self.form.settings(self.network), self.spec.optimizer
        schedule = optimizer.schedule  # with a schedule, the optimizer itself only knows the rate of the last step
        if not self.trains:
            return {**of_model, "threads": threads}
        return {
            **of_model,
            "optimizer": optimizer.name,
            "sharding": self.options.sharding,
            **self.update_settings(),
            **({"epsilon_is_added_to": UNCORRECTED} if optimizer.name == "bertadam" else {}),
            **({"learning_rate": optimizer.learning_rate, "schedule": schedule.words} if schedule.changes else {}),
            "clip": clip,
            "clip_at": None if clip == "none" else CLIP_AT,
            "cuda_graph": self.options.cuda_graph,
            "threads": threads,
        }

    def update_settings(self) -> dict[str, Any]:
        """Return those of SETTINGS that are read from the optimizer itself."""
        return {}

    def threads(self) -> int:
        """Return the number of threads that compute on a CPU. The launcher sets OMP_NUM_THREADS."""
        return self.spec.threads

    def from_cache(self) -> bool | None:
        """True if all compiled code came from the compiler's cache; None if nothing is compiled or nobody knows."""
        return None

    @abstractmethod
    def versions(self) -> dict[str, str | None]:
        """Return the versions of the framework and of what it runs on."""

    def is_out_of_memory(self, error: BaseException) -> bool:
        """True if the error means that an allocator refused memory. It is not called for a MemoryError."""
        return memory.is_refusal(str(error))

    def checkpoints(self) -> Any:
        """Return what saves and loads the whole state as users do (`checkpoints`), after the first step."""
        raise NotImplementedError

    # The next three belong to the feature `convergence`. A check in a framework without it is refused before.

    def seed(self, value: int) -> None:
        """Seed the random numbers of dropout, for a convergence check."""
        raise NotImplementedError

    def states(self) -> dict[str, Any]:
        """Return everything that a step changes, as numpy arrays by name. The names of weights begin with `weight `."""
        raise NotImplementedError

    def set_states(self, arrays: dict[str, Any]) -> None:
        """Set the states of these names: all, or only the weights. It is called before the first step."""
        raise NotImplementedError

    def save(self, stream: IO[bytes]) -> None:
        """Write everything that a step changes, such as the weights and the optimizer's states, as plain arrays."""
        import numpy as np

        np.savez(stream, **self.states())

    def restore(self, stream: IO[bytes], weights_alone: bool = False) -> None:
        """Read what `save` has written, or only its weights. Only arrays are read, so nothing in the file runs code."""
        import numpy as np

        arrays = np.load(stream, allow_pickle=False)
        wanted = [name for name in arrays.files if name.startswith("weight ") or not weights_alone]
        self.set_states({name: arrays[name] for name in wanted})

    def close(self) -> None:
        """Leave the other ranks."""


UNCORRECTED = "the root of the second moment, whose bias is not corrected"


def refuse_if(holds: bool, reason: str) -> None:
    """Raise Unsupported with this reason if it holds."""
    if holds:
        raise Unsupported(reason)


def optimizer_settings(
    learning_rate: float, weight_decay: float, decays_vectors: bool, **constants: Any
) -> dict[str, Any]:
    """Return an optimizer's SETTINGS. constants: `momentum` and `nesterov`, or `betas` and `epsilon`."""
    if "epsilon" in constants:
        constants["epsilon_is_added_to"] = "the root of the bias-corrected second moment"
    decays = "everything" if decays_vectors else "matrices"
    return {"learning_rate": learning_rate, **constants, "weight_decay": weight_decay, "decays": decays}


def load(name: str) -> type[Rank]:
    """Import a framework and return the class of its ranks."""
    module, _, kind = of(name).rank.partition(":")
    return getattr(importlib.import_module(f"{__package__}.{module}"), kind)  # type: ignore[no-any-return]
