"""`mxnet-horovod`: MXNet with Horovod's DistributedTrainer, over gloo or MPI, NCCL on GPUs; a
single rank runs without it."""

from __future__ import annotations

import itertools
import time
from typing import Any

import horovod.mxnet as hvd
import mxnet as mx
from mxnet.contrib import amp

from throughline import gpus, memory, workloads
from throughline.frameworks import MATMUL_SIZE, Spec, Unsupported, horovod, matmul_rate
from throughline.frameworks.mxnet_horovod.checkpointing import Checkpointing
from throughline.frameworks.mxnet_horovod.optimizers import CLIP, THRESHOLD, build, described

NOT_COUNTED = "MXNet 1.9 does not count what its pool has given out; what it reserves is all that the card has given"

Batch = list[Any]


class MXNetHorovod(Checkpointing):
    def __init__(self, spec: Spec, rank: int, local_rank: int, world: int, kind: str) -> None:
        self.spec, self.options = spec, spec["options"]
        self.rank, self.local_rank, self.world, self.kind = rank, local_rank, world, kind
        self.form = workloads.form(spec["model"], "mxnet")
        self.at = mx.gpu(local_rank) if kind == "cuda" else mx.cpu()
        self.half = spec["precision"] == "fp16"
        self.skips = 0

    def join(self) -> None:
        if self.world > 1:
            horovod.join(hvd, self.options)

    def device(self) -> None:
        precision = self.spec["precision"]
        if precision == "tf32":
            raise Unsupported("MXNet does not say which of its products are in tf32")
        if self.half and self.kind == "cpu":
            raise Unsupported("MXNet has no fp16 on CPUs")
        if self.half:
            amp.init("float16")
        mx.random.seed(self.spec["seed"])

    def model(self, facts: dict[str, Any]) -> None:
        self.network = self.form.build(self.spec, facts, self.at)
        self.parameters = [parameter for _, parameter in self.network.named_parameters()]
        if self.options["accumulate"] > 1:
            for parameter in self.parameters:
                parameter.grad_req = "add"
        if self.world > 1:
            hvd.broadcast_parameters(self.network.collect_params(), root_rank=0)
        mx.random.seed(self.spec["seed"] + 1 + self.rank)  # the weights are equal, the dropout is not

    def load(self, weights: dict[str, Any]) -> None:
        self.form.load(self.network, weights)

    def data(self, arrays: dict[str, Any]) -> Batch:
        batch = self.form.batch(arrays)
        return [None if array is None else mx.nd.array(array, dtype=array.dtype) for array in batch]

    def deliver(self, batch: Batch) -> Batch:
        return [None if array is None else array.as_in_context(self.at) for array in batch]

    def optimizer(self) -> None:
        update = build(self.spec["optimizer"], self.parameters)
        self.clip = CLIP[self.options["clip"]]
        self.trainer: Any = (
            hvd.DistributedTrainer(self.network.collect_params(), update)
            if self.world > 1 and self.options["exchange"]
            else mx.gluon.Trainer(self.network.collect_params(), update, kvstore=None)
        )
        self.latest: Any = None
        if self.half:
            amp.init_trainer(self.trainer)
            self._count_skips(self.trainer._amp_loss_scaler)

    def _count_skips(self, scaler: Any) -> None:
        overflows = scaler.has_overflow

        def counted(parameters: Any) -> bool:
            found = bool(overflows(parameters))
            self.skips += found
            return found

        scaler.has_overflow = counted

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
        if self.clip is not None:  # a gradient times the trainer's scale is what the optimizer sees
            self.clip([parameter.grad() for parameter in self.parameters], THRESHOLD / self.trainer._scale)
        self.trainer.update(1)
        if self.options["accumulate"] > 1:
            for parameter in self.parameters:
                parameter.zero_grad()
        # MXNet queues without limit. Waiting for the step before keeps the device busy, and the heartbeat true.
        if self.latest is not None:
            self.latest.wait_to_read()
        self.latest = total
        return total

    def sync(self) -> None:
        mx.nd.waitall()
        self.synced = time.monotonic()

    def barrier(self) -> None:
        if self.world > 1:  # Horovod has no barrier of its own for MXNet
            hvd.allreduce(mx.nd.zeros((1,)), name="barrier").wait_to_read()

    def broadcast(self, value: int) -> int:
        if self.world == 1:
            return value
        return int(hvd.broadcast(mx.nd.array([value], dtype="int64"), root_rank=0, name="broadcast").asscalar())

    def mark(self) -> float:
        return time.monotonic()

    def seconds(self, marks: list[float]) -> list[float]:
        """A step has waited for the one before it: its mark is that one's end, and the last one ends with `sync`."""
        ends = [marks[0], *marks[2:], self.synced]
        return [end - start for start, end in itertools.pairwise(ends)]

    def losses(self, values: list[Any]) -> list[float]:
        return [float(value) for value in mx.nd.concat(*values, dim=0).asnumpy()] if values else []

    def skipped(self) -> int:
        return self.skips

    def memory(self) -> dict[str, Any]:
        if self.kind == "cpu":
            return memory.of_process("MXNet")
        free, total = mx.context.gpu_memory_info(self.local_rank)  # MXNet keeps what it once took
        return {"needed_bytes": None, "reserved_bytes": int(total - free), "reasons": {"needed_bytes": NOT_COUNTED}}

    def matmul(self, seconds: float) -> float:
        size, dtype = MATMUL_SIZE[self.kind], "float16" if self.half else "float32"
        left, right, product = (mx.nd.ones((size, size), ctx=self.at, dtype=dtype) for _ in range(3))

        def timed(times: int) -> float:
            mx.nd.waitall()
            start = time.monotonic()
            for _ in range(times):
                mx.nd.dot(left, right, out=product)
            mx.nd.waitall()
            return time.monotonic() - start

        return matmul_rate(size, seconds, timed)

    def settings(self) -> dict[str, Any]:
        optimizer = self.trainer._optimizer
        return {
            **self.form.settings(self.network),
            **described(self.spec["optimizer"]["name"], optimizer, self.parameters, self.options["clip"]),
            "threads": self.spec["threads"] if self.kind == "cpu" else None,  # as OMP_NUM_THREADS says
        }

    def versions(self) -> dict[str, str | None]:
        return {
            "mxnet": mx.__version__,
            **self.form.versions(),
            "cuda": "yes" if mx.runtime.Features().is_enabled("CUDA") else None,
            "driver": gpus.driver(),
            **horovod.versions(self.options),
        }

    def is_out_of_memory(self, error: BaseException) -> bool:
        return isinstance(error, MemoryError) or memory.is_refusal(str(error))

    def close(self) -> None:
        if self.world > 1:
            self.barrier()
            hvd.shutdown()
