"""A rank of `paddle`: PaddlePaddle's DataParallel, over gloo on CPUs and NCCL on GPUs.

A single rank runs without DataParallel.
"""

import math
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import numpy as np
import paddle
import paddle.distributed as dist

from throughline import gpus, memory
from throughline.frameworks.paddle import KEPT, optimizers
from throughline.frameworks.rank import Rank, refuse_if
from throughline.spec import RunSpec

HALF = {"bf16": "bfloat16", "fp16": "float16"}
"""Map the precisions in which matrix products and activations have another type than the weights to this type."""

Batch = dict[str, Any]


class Paddle(Rank):
    def __init__(self, spec: RunSpec, rank: int, local_rank: int, world: int, kind: str) -> None:
        super().__init__(spec, rank, local_rank, world, kind)
        self.meetings = 0
        self.on_the_way: list[Batch] = []
        self.at = f"gpu:{local_rank}" if kind == "cuda" else "cpu"

    def join(self) -> None:
        paddle.device.set_device(self.at)
        if self.world == 1:
            return
        addresses = os.environ["RANK_ADDRESSES"]
        os.environ.update(  # Paddle's ranks meet at MASTER_ADDR and MASTER_PORT
            PADDLE_TRAINER_ID=str(self.rank),
            PADDLE_TRAINERS_NUM=str(self.world),
            PADDLE_TRAINER_ENDPOINTS=addresses,
            PADDLE_CURRENT_ENDPOINT=addresses.split(",")[self.rank],
            PADDLE_DISTRI_BACKEND="nccl" if self.kind == "cuda" else "gloo",
            FLAGS_selected_gpus=str(self.local_rank),
        )
        dist.init_parallel_env()

    def device(self) -> None:
        precision = self.spec.precision
        products = f"Paddle's products of matrices on a CPU are in fp32 or fp64, not in {precision}"
        refuse_if(self.kind == "cpu" and precision != "fp32", products)
        refuse_if(bool(self.options.compile and self.options.activation_checkpointing), KEPT)
        if self.kind == "cuda":
            least = {"tf32": (8, 0), "bf16": (8, 0)}.get(precision, (0, 0))
            cuda = paddle.device.cuda
            too_old = cuda.get_device_capability(self.at) < least
            refuse_if(too_old, f"{cuda.get_device_name(self.at)} has no {precision} units")
            paddle.base.core.set_cublas_switch(precision == "tf32")
            paddle.base.core.set_cudnn_switch(precision == "tf32")
        paddle.seed(self.spec.seed)

    def model(self, facts: dict[str, Any]) -> None:
        """Build the model, with the same seed on all ranks. Afterwards every replica draws its own dropout."""
        self.network = self.parallel = self.form.build(self.spec, facts, self.at)
        self.parameters = [parameter for parameter in self.network.parameters() if not parameter.stop_gradient]
        if self.options.compile:
            paddle.jit.to_static(self.network, full_graph=True)
        self.barrier()
        if self.exchanges:
            self.parallel = paddle.DataParallel(self.network, comm_buffer_size=self.options.bucket_mb)
        paddle.seed(self.spec.seed + 1 + self.rank)

    def data(self, arrays: dict[str, Any]) -> Batch:
        """Turn numpy arrays into a batch in host memory. uint16, which Paddle reads as bits of bfloat16, becomes
        int32."""
        place = paddle.CUDAPinnedPlace() if self.kind == "cuda" else paddle.CPUPlace()
        wide = {name: array.astype(np.int32) if array.dtype == np.uint16 else array for name, array in arrays.items()}
        return {name: paddle.to_tensor(array, place=place) for name, array in wide.items()}

    def deliver(self, batch: Batch) -> Batch:
        if self.kind == "cpu":
            return batch
        # The host does not wait for the copies, so the pinned memory must not be used again before they are done.
        self.on_the_way.append(batch)
        return {name: tensor.cuda(self.local_rank, blocking=False) for name, tensor in batch.items()}

    def optimizer(self) -> None:
        self.update: Any = optimizers.build(self.spec.optimizer, self.parameters, self.options.clip)
        # The scale never grows within a run, so its halvings count the skipped steps, and no step waits for the device.
        self.scaler = paddle.amp.GradScaler(
            enable=self.spec.precision == "fp16", incr_every_n_steps=2**31 - 1, decr_every_n_nan_or_inf=1
        )
        self.first_scale = self.scale()
        self.latest: Any = None
        self.barrier()

    def set_rate(self, rate: float) -> None:
        self.update.set_lr(rate)

    def step(self, batches: list[Batch]) -> Any:
        total = 0.0
        for number, batch in enumerate(batches, 1):
            with self.exchange(number == len(batches)):
                with self.cast():
                    loss = self.parallel(**batch) / len(batches)
                self.scaler.scale(loss).backward()
            total += loss.detach()
        self.scaler.step(self.update)
        self.scaler.update()
        self.update.clear_grad(set_to_zero=False)
        if self.kind == "cuda":  # a GPU would queue steps without limit, so we wait for the step before this one
            before, self.latest = self.latest, (self.mark(), self.on_the_way)
            self.on_the_way = []
            if before is not None:
                mark, _ = before
                mark.synchronize()
        return total

    def cast(self) -> AbstractContextManager[Any]:
        """Return the context of a forward pass, in which Paddle chooses the precision of each operation (level O1)."""
        kind = HALF.get(self.spec.precision)
        return paddle.amp.auto_cast(level="O1", dtype=kind) if kind else nullcontext()

    def exchange(self, last: bool) -> AbstractContextManager[Any]:
        """Return the context of a micro-batch's passes. Gradients are exchanged in the last one."""
        return self.parallel.no_sync() if self.exchanges and not last else nullcontext()

    def sync(self) -> None:
        if self.kind == "cuda":
            paddle.device.synchronize(self.at)

    def barrier(self) -> None:
        """Wait for the other ranks, first at Paddle's store: in an exchange, Paddle's gloo waits only 30 seconds."""
        if self.world == 1:
            return
        self.meetings += 1
        store = paddle.base.core.create_or_get_global_tcp_store()
        if store.add(f"meeting {self.meetings}", 1) == self.world:
            store.set(f"meeting {self.meetings} is complete", b"1")
        store.wait(f"meeting {self.meetings} is complete")
        dist.barrier()

    def broadcast(self, value: int) -> int:
        if self.world == 1:
            return value
        carrier = paddle.to_tensor([value])
        dist.broadcast(carrier, 0)
        return int(carrier.item())

    def event(self) -> Any:
        return paddle.device.Event(enable_timing=True) if self.kind == "cuda" else None

    def losses(self, values: list[Any]) -> list[float]:
        return [float(value) for value in paddle.stack(values).tolist()] if values else []

    def scale(self) -> float:
        """Return the current scale of the loss scaler."""
        return float(self.scaler.state_dict()["scale"][0]) if self.scaler.is_enable() else 1.0

    def skipped(self) -> int:
        return round(math.log2(self.first_scale / self.scale()))

    def memory(self) -> dict[str, Any]:
        if self.kind == "cpu":
            return memory.of_process()
        cuda = paddle.device.cuda
        needed, reserved = cuda.max_memory_allocated(self.at), cuda.max_memory_reserved(self.at)
        return {"needed_bytes": needed, "reserved_bytes": reserved, "reasons": {}}

    def multiplied(self, left: Any, right: Any) -> Any:
        kind = HALF.get(self.spec.precision, "float32")
        with paddle.no_grad():
            product = paddle.matmul(*(paddle.to_tensor(matrix).astype(kind) for matrix in (left, right)))
        return product.astype("float32").numpy()

    def product(self, size: int) -> Callable[[], Any]:
        kind = HALF.get(self.spec.precision, "float32")
        return partial(paddle.matmul, *(paddle.randn([size, size]).astype(kind) for _ in range(2)))

    def update_settings(self) -> dict[str, Any]:
        return optimizers.settings(self.update, self.parameters)

    def versions(self) -> dict[str, str | None]:
        cuda = self.kind == "cuda"
        return {
            "paddle": paddle.__version__,
            **self.form.versions(),
            "cuda": paddle.version.cuda() if cuda else None,
            "cudnn": paddle.version.cudnn() if cuda else None,
            "gloo": "Paddle's own",
            "driver": gpus.driver(),
        }

    def close(self) -> None:
        if self.world > 1:
            dist.barrier()
            dist.destroy_process_group()

    def seed(self, value: int) -> None:
        paddle.seed(value)
        self.barrier()  # rank 0 alone may have evaluated held-out data, so the other ranks wait for it here

    def states(self) -> dict[str, Any]:
        arrays = {name: tensor.numpy() for name, tensor in self._tensors().items()}
        return {"scale": np.array([self.scale()], np.float32), **arrays}

    def set_states(self, arrays: dict[str, Any]) -> None:
        if self.scaler.is_enable() and "scale" in arrays:
            self.scaler.load_state_dict({**self.scaler.state_dict(), "scale": arrays["scale"]})
        for name, tensor in self._tensors().items():
            if name in arrays:
                tensor.set_value(arrays[name])

    def _tensors(self) -> dict[str, Any]:
        """Return the weights and the optimizer's states, by names that are the same in every process."""
        optimizers.begin(self.update, self.parameters)
        tensors = {f"weight {number}": parameter for number, parameter in enumerate(self.parameters)}
        for kind, states in self.update._accumulators.items():
            tensors |= {f"{kind} {number}": states[weight.name] for number, weight in enumerate(self.parameters)}
        return tensors
