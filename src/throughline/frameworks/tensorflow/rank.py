"""A rank of `tensorflow`: TensorFlow 2 in a hand-written loop, one process per device.

TensorFlow's own collectives exchange the gradients: RING over gRPC on CPUs, NCCL on GPUs. We ask for NCCL, because
TensorFlow would choose RING on GPUs as well.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")  # warnings and errors

import tensorflow as tf
from tensorflow.python.distribute.collective_all_reduce_strategy import CollectiveAllReduceExtended

from throughline import gpus, memory
from throughline.frameworks.rank import FIRST_SCALE, Rank, optimizer_settings, refuse_if
from throughline.frameworks.tensorflow.optimizers import Optimizer, clip
from throughline.spec import RunSpec

if TYPE_CHECKING:
    from throughline.workloads.in_keras_form import KerasForm

Batch = dict[str, Any]
NOT_COUNTED = "TensorFlow does not say what its allocator has reserved"


class TensorFlow(Rank):
    form: KerasForm[Any, Any]

    strategy: Any = None
    """TensorFlow's object that exchanges gradients, or None if there is only one rank."""

    def __init__(self, spec: RunSpec, rank: int, local_rank: int, world: int, kind: str) -> None:
        super().__init__(spec, rank, local_rank, world, kind)
        self.at = "GPU:0" if kind == "cuda" else "CPU:0"
        self.scaled, self.waits = spec.precision == "fp16", kind == "cuda"

    def join(self) -> None:
        """Meet the other ranks. TensorFlow takes its devices and threads here and cannot change them later."""
        cards = tf.config.list_physical_devices("GPU") if self.kind == "cuda" else []
        mine = cards[self.local_rank : self.local_rank + 1]
        tf.config.set_visible_devices(mine, "GPU")
        for card in mine:  # otherwise TensorFlow takes the memory of the whole GPU
            tf.config.experimental.set_memory_growth(card, True)
        tf.config.threading.set_intra_op_parallelism_threads(self.spec.threads)
        tf.config.threading.set_inter_op_parallelism_threads(1)
        if self.world == 1:
            return
        addresses = os.environ["RANK_ADDRESSES"].split(",")
        task = {"type": "worker", "index": self.rank}
        os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": addresses}, "task": task})
        CollectiveAllReduceExtended._enable_check_health = False  # the launcher watches the ranks
        self.strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=self._communication())
        self.total = tf.function(lambda value: self._reduced(tf.distribute.ReduceOp.SUM, [value])[0], autograph=False)

    def device(self) -> None:
        precision = self.spec.precision
        refuse_if(self.kind == "cpu" and precision == "tf32", "tf32 exists on GPUs only")
        tf.config.experimental.enable_tensor_float_32_execution(precision == "tf32")
        self.form.seed(self.spec.seed)

    def model(self, facts: dict[str, Any]) -> None:
        with tf.device(self.at):
            self.network = self.form.build(self.spec, facts, self.form.policy(self.spec.precision))
        variables = self.network.trainable_variables
        self.weights = [variable.value for variable in variables]
        self.decays = self.form.decays(variables)
        self.seed(self.spec.seed + 1 + self.rank)  # the weights are the same on all ranks, the dropout is not

    def data(self, arrays: dict[str, Any]) -> Batch:
        """Turn numpy arrays into a batch on the device.

        TensorFlow's copy to a GPU blocks its thread, so it is made here, in the loader's thread. Only memory of its own
        allocator goes through pinned memory: a copy of numpy's would block within the driver, where the training thread
        launches its kernels.
        """
        with tf.device("CPU:0"):
            batch = {name: tf.constant(array) for name, array in arrays.items()}
            if self.kind == "cpu":
                return batch
            batch = {name: tf.raw_ops.DeepCopy(x=tensor) for name, tensor in batch.items()}
        with tf.device(self.at):
            return {name: tf.identity(tensor) for name, tensor in batch.items()}

    def optimizer(self) -> None:
        with tf.device(self.at):
            self.update = Optimizer(self.spec.optimizer, self.weights, self.decays)
            self.scale = tf.Variable(FIRST_SCALE if self.scaled else 1.0, trainable=False)
            self.skips = tf.Variable(0, trainable=False)
            summed = self.weights if self.options.gradient_accumulation > 1 else []
            self.sums = [tf.Variable(tf.zeros_like(weight), trainable=False) for weight in summed]
        graph = partial(tf.function, autograph=False)
        self.passes: Any = graph(self._passes, jit_compile=True) if self.options.compile else self._passes
        self.add, self.finish = graph(self._add), graph(self._finish)
        self.latest: Any = None

    def set_rate(self, rate: float) -> None:
        self.update.rate.assign(rate)

    def _passes(self, batch: Batch) -> tuple[Any, list[Any]]:
        """Return the loss and the gradients of a micro-batch, both divided by the number of micro-batches. The
        gradients may carry a loss scale."""
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(self.weights)
            loss = self.network(batch) / self.options.gradient_accumulation
            scaled = loss * self.scale if self.scaled else loss
        # Gradients of embeddings can be sparse. That of the word embeddings is dense anyway: the head adds its own.
        return loss, [tf.convert_to_tensor(gradient) for gradient in tape.gradient(scaled, self.weights)]

    def _add(self, batch: Batch) -> Any:
        """Add up the gradients of a micro-batch that is not the last of its step. Return its loss."""
        loss, gradients = self.passes(batch)
        for total, gradient in zip(self.sums, gradients, strict=True):
            total.assign_add(gradient)
        return loss

    def _finish(self, batch: Batch) -> Any:
        """Compute the last micro-batch and update the weights. Return its loss."""
        loss, gradients = self.passes(batch)
        if self.sums:
            gradients = [total + gradient for total, gradient in zip(self.sums, gradients, strict=True)]
            for total in self.sums:
                total.assign(tf.zeros_like(total))
        if self.exchanges:
            gradients = self._exchanged(gradients)
        if not self.scaled:
            self._apply(gradients)
            return loss
        gradients = [gradient / self.scale for gradient in gradients]
        finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(gradient)) for gradient in gradients])
        tf.cond(finite, lambda: self._apply(gradients), self._skip)
        return loss

    def _apply(self, gradients: list[Any]) -> None:
        self.update.apply(clip(self.options.clip, gradients))

    def _skip(self) -> None:
        self.scale.assign(self.scale / 2)
        self.skips.assign_add(1)

    def _exchanged(self, gradients: list[Any]) -> list[Any]:
        """Return the means of the gradients over all ranks, exchanged in packs of `bucket_mb`, the last layer's
        first."""
        packs = self._communication(bytes_per_pack=self.options.bucket_mb << 20)
        return list(reversed(self._reduced(tf.distribute.ReduceOp.MEAN, gradients[::-1], packs)))

    def _communication(self, **given: Any) -> Any:
        implementations = tf.distribute.experimental.CommunicationImplementation
        chosen = implementations.NCCL if self.kind == "cuda" else implementations.AUTO
        return tf.distribute.experimental.CommunicationOptions(implementation=chosen, **given)

    def _reduced(self, how: Any, values: list[Any], packs: Any = None) -> list[Any]:
        """Return the values, reduced over all ranks."""

        def reduce(*values: Any) -> Any:
            copies = [tf.identity(value) for value in values]  # they have a device, as the strategy demands
            return tf.distribute.get_replica_context().all_reduce(how, copies, packs)

        return list(self.strategy.run(reduce, args=tuple(values)))

    def step(self, batches: list[Batch]) -> Any:
        *before, last = batches
        losses = [self.add(batch) for batch in before]
        total = tf.add_n([*losses, self.finish(last)])
        if self.latest is not None and self.waits:
            self.latest.numpy()
        self.latest = total
        return total

    def sync(self) -> None:
        if self.kind == "cuda":
            tf.test.experimental.sync_devices()
        self.synced = time.monotonic()

    def barrier(self) -> None:
        self.broadcast(0)

    def broadcast(self, value: int) -> int:
        if self.world == 1:
            return value
        return int(self.total(tf.constant(value if self.rank == 0 else 0, tf.int64)))

    def losses(self, values: list[Any]) -> list[float]:
        return [float(value) for value in values]

    def skipped(self) -> int:
        return int(self.skips)

    def memory(self) -> dict[str, Any]:
        if self.kind == "cpu":
            return memory.of_process()
        needed = tf.config.experimental.get_memory_info(self.at)["peak"]
        return {"needed_bytes": int(needed), "reserved_bytes": None, "reasons": {"reserved_bytes": NOT_COUNTED}}

    @property
    def type_of_products(self) -> Any:
        return {"bf16": tf.bfloat16, "fp16": tf.float16}.get(self.spec.precision, tf.float32)

    def multiplied(self, left: Any, right: Any) -> Any:
        with tf.device(self.at):
            product = tf.matmul(*(tf.cast(tf.constant(matrix), self.type_of_products) for matrix in (left, right)))
            return tf.cast(product, tf.float32).numpy()

    def product(self, size: int) -> Callable[[], Any]:
        with tf.device(self.at):
            left, right = (tf.cast(tf.random.normal((size, size)), self.type_of_products) for _ in range(2))
        return partial(tf.matmul, left, right)

    def update_settings(self) -> dict[str, Any]:
        update, constants = self.update, {"betas": list(self.update.betas), "epsilon": self.update.epsilon}
        if update.name == "sgd":
            constants = {"momentum": update.momentum, "nesterov": False}
        return optimizer_settings(self.spec.optimizer.learning_rate, update.decay, all(self.decays), **constants)

    def threads(self) -> int:
        return int(tf.config.threading.get_intra_op_parallelism_threads())

    def versions(self) -> dict[str, str | None]:
        built = tf.sysconfig.get_build_info()
        return {
            "tensorflow": tf.__version__,
            **self.form.versions(),
            "cuda": built.get("cuda_version"),
            "cudnn": built.get("cudnn_version"),
            "driver": gpus.driver(),
        }

    def is_out_of_memory(self, error: BaseException) -> bool:
        return isinstance(error, tf.errors.ResourceExhaustedError) or super().is_out_of_memory(error)

    def seed(self, value: int) -> None:
        self.form.reseed(self.network, value)

    def _variables(self) -> dict[str, Any]:
        weights = {f"weight {i}": weight for i, weight in enumerate(self.weights)}
        return {**weights, **self.update.state(), "scale": self.scale}

    def states(self) -> dict[str, Any]:
        return {name: variable.numpy() for name, variable in self._variables().items()}

    def set_states(self, arrays: dict[str, Any]) -> None:
        variables = self._variables()
        for name, array in arrays.items():
            variables[name].assign(array)
