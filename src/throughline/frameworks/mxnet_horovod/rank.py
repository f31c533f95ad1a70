"""A rank of `mxnet-horovod`: MXNet with Horovod's DistributedTrainer, over gloo or MPI, and NCCL on GPUs.

A single rank runs without it.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import horovod.mxnet as hvd
import mxnet as mx
from mxnet.contrib import amp

from throughline import gpus, memory
from throughline.frameworks import horovod
from throughline.frameworks.mxnet_horovod import libraries
from throughline.frameworks.mxnet_horovod.optimizers import build, clip
from throughline.frameworks.rank import CLIP_AT, Rank, optimizer_settings, refuse_if
from throughline.spec import RunSpec

NOT_COUNTED = "MXNet 1.9 does not count what its pool has given out; what it reserves is all that the card has given"
SCALER = ("_loss_scale", "_next_loss_scale", "_unskipped")
"""The attributes of a loss scaler that decide its next scales."""

Batch = list[Any]


class MXNetHorovod(Rank):
    waits = True

    def __init__(self, spec: RunSpec, rank: int, local_rank: int, world: int, kind: str) -> None:
        super().__init__(spec, rank, local_rank, world, kind)
        self.at = mx.gpu(local_rank) if kind == "cuda" else mx.cpu()
        self.half = spec.precision == "fp16"
        self.skips = 0

    def join(self) -> None:
        if self.world > 1:
            horovod.join(hvd, self.options, self.kind)

    def device(self) -> None:
        refuse_if(self.spec.precision == "tf32", "MXNet does not say which of its products are in tf32")
        refuse_if(self.half and self.kind == "cpu", "MXNet has no fp16 on CPUs")
        if self.half:
            amp.init("float16")
        mx.random.seed(self.spec.seed)

    def model(self, facts: dict[str, Any]) -> None:
        self.network = self.form.build(self.spec, facts, self.at)
        self.parameters = [parameter for _, parameter in self.network.named_parameters()]
        if self.options.gradient_accumulation > 1:
            for parameter in self.parameters:
                parameter.grad_req = "add"
        if self.world > 1:
            hvd.broadcast_parameters(self.network.collect_params(), root_rank=0)
        mx.random.seed(self.spec.seed + 1 + self.rank)  # the weights are the same on all ranks, the dropout is not

    def data(self, arrays: dict[str, Any]) -> Batch:
        return [mx.nd.array(array, dtype=array.dtype) for array in self.form.batch(arrays)]

    def deliver(self, batch: Batch) -> Batch:
        return [array.as_in_context(self.at) for array in batch]

    def optimizer(self) -> None:
        update = build(self.spec.optimizer, self.parameters)
        self.trainer: Any = (
            hvd.DistributedTrainer(self.network.collect_params(), update)
            if self.exchanges
            else mx.gluon.Trainer(self.network.collect_params(), update, kvstore=None)
        )
        self.latest: Any = None
        if self.half:
            amp.init_trainer(self.trainer)
            scaler = self.trainer._amp_loss_scaler
            scaler.has_overflow = partial(self._overflows, scaler.has_overflow)

    def _overflows(self, has_overflow: Callable[[Any], Any], parameters: Any) -> bool:
        """Return the loss scaler's answer, and count the overflows."""
        overflows = bool(has_overflow(parameters))
        self.skips += overflows
        return overflows

    def set_rate(self, rate: float) -> None:
        self.trainer.set_learning_rate(rate)

    def step(self, batches: list[Batch]) -> Any:
        total = mx.nd.zeros((1,), ctx=self.at)
        for batch in batches:
            with mx.autograd.record():
                loss = self.network(*batch) / len(batches)
                if self.half:
                    with amp.scale_loss(loss, self.trainer) as scaled:
                        mx.autograd.backward(scaled)
            if not self.half:
                loss.backward()
            total += loss
        self.trainer.allreduce_grads()
        if self.options.clip != "none":  # the optimizer multiplies every gradient by the trainer's scale
            gradients = [parameter.grad() for parameter in self.parameters]
            clip(self.options.clip, gradients, CLIP_AT / self.trainer._scale)
        self.trainer.update(1)
        if self.options.gradient_accumulation > 1:
            for parameter in self.parameters:
                parameter.zero_grad()
        if self.latest is not None:
            self.latest.wait_to_read()
        self.latest = total
        return total

    def sync(self) -> None:
        mx.nd.waitall()
        self.synced = time.monotonic()

    def barrier(self) -> None:
        if self.world > 1:  # Horovod has no barrier for MXNet
            hvd.allreduce(mx.nd.zeros((1,)), name="barrier").wait_to_read()

    def broadcast(self, value: int) -> int:
        if self.world == 1:
            return value
        return int(hvd.broadcast(mx.nd.array([value], dtype="int64"), root_rank=0, name="broadcast").asscalar())

    def losses(self, values: list[Any]) -> list[float]:
        return [float(value) for value in mx.nd.concat(*values, dim=0).asnumpy()] if values else []

    def skipped(self) -> int:
        return self.skips

    def memory(self) -> dict[str, Any]:
        if self.kind == "cpu":
            return memory.of_process()
        free, total = mx.context.gpu_memory_info(self.local_rank)  # MXNet never gives memory back, so this is the peak
        return {"needed_bytes": None, "reserved_bytes": int(total - free), "reasons": {"needed_bytes": NOT_COUNTED}}

    def multiplied(self, left: Any, right: Any) -> Any:
        dtype = "float16" if self.half else "float32"
        here = (mx.nd.array(matrix, ctx=self.at, dtype="float32").astype(dtype) for matrix in (left, right))
        return mx.nd.dot(*here).astype("float32").asnumpy()

    def product(self, size: int) -> Callable[[], Any]:
        dtype = "float16" if self.half else "float32"
        left, right, product = (mx.nd.random.normal(shape=(size, size), ctx=self.at).astype(dtype) for _ in range(3))
        return partial(mx.nd.dot, left, right, out=product)

    def update_settings(self) -> dict[str, Any]:
        optimizer = self.trainer._optimizer
        decays_vectors = any(weight.wd_mult != 0.0 for weight in self.parameters if len(weight.shape) < 2)
        if self.spec.optimizer.name == "sgd":
            constants: dict[str, Any] = {"momentum": optimizer.momentum, "nesterov": False}
        else:
            betas, epsilon = [optimizer.beta1, optimizer.beta2], getattr(optimizer, "stated_epsilon", optimizer.epsilon)
            constants = {"betas": betas, "epsilon": epsilon}
        return optimizer_settings(optimizer.lr, optimizer.wd, decays_vectors, **constants)

    def versions(self) -> dict[str, str | None]:
        return {
            "mxnet": mx.__version__,
            **self.form.versions(),
            **(libraries.versions() if mx.runtime.Features().is_enabled("CUDA") else {"cuda": None}),
            "driver": gpus.driver(),
            **horovod.versions(hvd, self.options),
        }

    def close(self) -> None:
        if self.world > 1:
            self.barrier()
            hvd.shutdown()

    def seed(self, value: int) -> None:
        mx.random.seed(value & 2**31 - 1)

    def states(self) -> dict[str, Any]:
        arrays = {f"weight {name}": parameter.data() for name, parameter in self.network.named_parameters()}
        for index, state in self.trainer._updaters[0].states.items():
            # SGD has one moment, which stands alone, and none without momentum.
            moments = [state] if isinstance(state, mx.nd.NDArray) else state or []
            arrays |= {f"state {index} {part}": array for part, array in enumerate(moments)}
        arrays["updates"] = mx.nd.array([self.trainer._optimizer.num_update], dtype="int64")
        if self.half:
            scaler = self.trainer._amp_loss_scaler
            arrays["scaler"] = mx.nd.array([getattr(scaler, name) for name in SCALER], dtype="float64")
        return {name: array.asnumpy() for name, array in arrays.items()}

    def set_states(self, arrays: dict[str, Any]) -> None:
        arrays = {name: mx.nd.array(array, self.at, array.dtype) for name, array in arrays.items()}
        for name, parameter in self.network.named_parameters():
            parameter.set_data(arrays[f"weight {name}"])
        if "updates" not in arrays:  # only the weights
            return
        states: dict[int, Any] = {}
        for name in sorted(arrays):  # sorted, so that the parts of a weight's state come in their order
            if name.startswith("state "):
                index = int(name.split()[1])
                states[index] = (*states.get(index, ()), arrays[name])
        if self.spec.optimizer.name == "sgd":
            states = {index: moment for index, (moment,) in states.items()}
        updater, optimizer = self.trainer._updaters[0], self.trainer._optimizer
        updater.states, updater.states_synced = states, dict.fromkeys(states, True)
        optimizer.num_update = optimizer.begin_num_update = int(arrays["updates"].asscalar())
        if self.half:
            for name, value in zip(SCALER, arrays["scaler"].asnumpy().tolist(), strict=True):
                setattr(self.trainer._amp_loss_scaler, name, value)
