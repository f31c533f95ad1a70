"""A rank of `torch`: PyTorch's DistributedDataParallel, over gloo on CPUs and NCCL on GPUs.

A single rank runs without DistributedDataParallel. With `options.cuda_graph: step`, the whole step is one CUDA graph,
so that its kernels need no time to launch (recorded.py).
"""

import os
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.distributed.device_mesh import init_device_mesh

from throughline import workloads
from throughline.frameworks.rank import refuse_if
from throughline.frameworks.torch import recorded, sharding
from throughline.frameworks.torch.checkpoint import Checkpoints
from throughline.frameworks.torch.parallel import average_experts, norms_of_whole, refuse_experts
from throughline.frameworks.torch.rank import HALF, TorchRank
from throughline.frameworks.torch.recorded import Batch
from throughline.workloads import in_torch_timed
from throughline.workloads.in_torch_tensor_parallel import TensorGroup


class TorchDDP(TorchRank):
    averaging: dist.ProcessGroup | None = None
    """The ranks over which gradients are averaged; None for all ranks."""
    mesh: Any = None
    """The ranks that split weights with this one (`sharding`); with groups, (group, place in it). None: all ranks."""
    holding: Any = None
    """Like `mesh`, the ranks that hold the same experts as this one; None if every rank holds all experts."""
    sharing: dist.ProcessGroup | None = None
    """The replicas that split the states with this one; None for all ranks."""
    split_already = False
    """True if the network's weights are already split (`sharding`)."""
    gathered: torch.dtype | None = None
    """The type in which split weights are gathered, if it is not that of the weights (see `sharding.weights`)."""
    aside: Any = None
    """The stream on which a step is made that a CUDA graph records."""

    def join(self) -> None:
        if self.world > 1:
            if self.options.cuda_graph == "step":
                # PyTorch asks for it: its watch over NCCL must not end a process that records.
                os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")
            # PyTorch reads the address and port of rank 0 from MASTER_ADDR and MASTER_PORT.
            backend, here = ("nccl", self.at) if self.kind == "cuda" else ("gloo", None)
            dist.init_process_group(backend, rank=self.rank, world_size=self.world, device_id=here)
            if workloads.of(self.spec.model).own_gradient_sync(self.spec):
                self.together = TensorGroup(dist.new_group())
        if self.options.tensor_parallel > 1:
            # Consecutive ranks share a replica. Ranks with the same position in their replicas average their gradients.
            shape, names = (self.replicas, self.options.tensor_parallel), ("replica", "tensor")
            every = init_device_mesh(self.kind, shape, mesh_dim_names=names)
            self.averaging, self.tensor = every.get_group("replica"), TensorGroup(every.get_group("tensor"))
            self.mesh, self.sharing = every["replica"], self.averaging
        if self.groups > 1:
            sizes = self.groups, self.replicas // self.groups, self.options.tensor_parallel
            every = init_device_mesh(self.kind, sizes, mesh_dim_names=("group", "place", "tensor"))
            self.mesh, self.sharing = every["group", "place"], every.get_group("place")
        if self.options.expert_parallel > 1:  # consecutive ranks share the experts
            sharing = self.options.expert_parallel
            sizes = self.groups, self.replicas // self.groups // sharing, sharing
            every = init_device_mesh(self.kind, sizes, mesh_dim_names=("group", "holder", "part"))
            self.experts = TensorGroup(every.get_group("part"))
            self.holding = every["group", "holder"] if self.groups > 1 else every["holder"]

    def device(self) -> None:
        if self.options.cuda_graph == "step":
            recorded.refuse(self.options, self.kind)
        sharding.refuse(self.options, self.replicas, self.groups)
        refuse_experts(self.options)
        refuse_if(
            self.options.reduce_dtype != "fp32" and self.options.sharding in sharding.WEIGHTS,
            "FSDP2 sums the parts of gradients in fp32: with options.reduce_dtype, options.sharding can only be "
            "`none` or `zero1`",
        )
        super().device()
        if self.options.cuda_graph == "step":
            self.aside = torch.cuda.Stream(self.at)  # type: ignore[no-untyped-call]

    def model(self, facts: dict[str, Any]) -> None:
        self.in_parts = self.options.sharding in sharding.WEIGHTS
        if self.kind == "cuda":  # on a CPU, copies between processes are cheap, and losses stay what they were
            self.gathered = HALF.get(self.spec.precision)
        super().model(facts)
        if self.replicas > 1 and self.trains and not self.in_parts:
            # No step reads the buffers that training changes, such as running statistics, and rank 0 alone evaluates
            # and writes checkpoints. So it sends them once, at the start.
            kept = [name for name, _ in self.network.named_buffers() if name not in self.changing]
            ddp: Any = torch.nn.parallel.DistributedDataParallel
            ddp._set_params_and_buffers_to_ignore_for_model(self.network, [*self.spread, *kept])
            with recorded.beside(self.aside):  # its gradients are added on the stream on which it is made
                self.parallel = torch.nn.parallel.DistributedDataParallel(
                    self.network,
                    device_ids=[self.at] if self.kind == "cuda" else None,
                    process_group=self.averaging,
                    bucket_cap_mb=self.options.bucket_mb,
                    gradient_as_bucket_view=True,
                )
            self.parallel.broadcast_buffers = False  # not as an argument, which would leave out the start as well
            if self.options.reduce_dtype == "bf16":
                self.parallel.register_comm_hook(self.averaging or dist.group.WORLD, in_bf16)
            # PyTorch measures its own parts in the first ten steps and in every hundredth, and waits for the device.
            self.parallel._set_ddp_runtime_logging_sample_rate(2**31 - 1)

    def built(self) -> Any:
        """If the implementation can, divide the weights before they have memory: no rank ever holds all of them."""
        if not self.form.draws_in_parts or not (self.in_parts or self.tensor or self.experts):
            return super().built()
        network = self.form.build(self.spec, self.facts, torch.device("meta"))
        self.divide(network)
        if self.in_parts:
            self._split(network)
        self.form.draw(network, self.spec, self.at)
        return network

    def _split(self, network: Any) -> None:
        blocks, kind = self.form.blocks(network), self.options.sharding
        shared = sharding.Shared(self.spread, self.holding) if self.experts else None
        sharding.weights(network, blocks, kind, self.gathered, self.mesh, shared)
        self.split_already = True

    def optimizer(self) -> None:
        if self.in_parts:  # the weights of other implementations not earlier, because `load` sets whole weights
            if not self.split_already:
                self._split(self.network)
            self.parameters = list(self.network.parameters())
            self.norms = sharding.norms_of_parts(self.sharing)
            if self.tensor:
                self.norms = norms_of_whole(self.tensor, self.network, self.norms)
            # Experts need no more: the ranks of `sharing` hold all parts of all of them.
        if self.options.sharding == "zero1":
            self.shared_by = partial(sharding.optimizer, process_group=self.sharing)
        super().optimizer()
        if self.options.cuda_graph == "step":
            first = recorded.FIRST_OF_SEVERAL if self.replicas > 1 else recorded.FIRST
            given = self.passes, self.parameters, list(self.changing.values()), self.aside
            self.recorded = recorded.ReplayedStep(self.whole, self.update, first, *given)

    def passes(self, batches: list[Batch]) -> Tensor:
        total = super().passes(batches)
        if self.experts and not self.in_parts:
            own = [self.network.get_parameter(name).grad for name in sorted(self.spread)]
            average_experts(own, self.holding.get_group())
        return total

    def exchange(self, last: bool) -> AbstractContextManager[Any]:
        if self.options.sharding == "shard_grad_op" and self.options.gradient_accumulation > 1:
            self.network.set_reshard_after_backward(last)  # weights are gathered once for all micro-batches of a step
        alone = self.replicas > 1 and not self.in_parts and not (last and self.exchanges)
        return self.parallel.no_sync() if alone else nullcontext()

    def exchange_alone(self, min_seconds: float) -> tuple[list[int], float] | None:
        """Exchange all buckets of DistributedDataParallel at the same time, as a step does."""
        wrapped = isinstance(self.parallel, torch.nn.parallel.DistributedDataParallel)
        if not wrapped or self.options.sharding != "none" or self.experts:  # these send other messages as well
            return None
        logged = self.parallel._get_ddp_logging_data()
        sizes = [int(size) for size in logged.get("rebuilt_bucket_sizes", logged["bucket_sizes"]).split(", ")]
        sent = torch.float32 if self.options.reduce_dtype == "fp32" else torch.bfloat16
        sizes = [size * sent.itemsize // torch.float32.itemsize for size in sizes]
        try:
            # All messages use the same memory. This does not matter, because sums of zeros are zeros.
            largest = torch.zeros(max(sizes), dtype=torch.uint8, device=self.at).view(sent)
        except RuntimeError as error:
            largest = None
            if not self.is_out_of_memory(error):
                raise
        all_have_it = torch.tensor(int(largest is not None), device=self.at)
        dist.all_reduce(all_have_it, dist.ReduceOp.MIN)
        if largest is None or not all_have_it:
            return None
        parts = [largest[: size // largest.itemsize] for size in sizes]

        def call() -> None:
            for message in [dist.all_reduce(part, group=self.averaging, async_op=True) for part in parts]:
                message.wait()

        return sizes, in_torch_timed.together(call, min_seconds, self.at)

    def checkpoints(self) -> Checkpoints:
        return Checkpoints(self)

    def update_settings(self) -> dict[str, Any]:
        settings = super().update_settings()
        settings["sharding"] = sharding.words(self.options.sharding, self.gathered, self.groups)
        if self.options.reduce_dtype != "fp32":
            settings["reduce_dtype"] = self.options.reduce_dtype
        return settings | ({"recorded": self.recorded.words} if self.recorded else {})

    def barrier(self) -> None:
        if self.world > 1:
            dist.barrier()

    def broadcast(self, value: int) -> int:
        if self.world == 1:
            return value
        carrier = torch.tensor(value, device=self.at)
        dist.broadcast(carrier, 0)
        return int(carrier)

    def close(self) -> None:
        if dist.is_initialized():
            dist.barrier()
            dist.destroy_process_group()


def in_bf16(group: dist.ProcessGroup, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:  # type: ignore[name-defined]
    """Average a bucket of gradients in bf16. PyTorch registers its own hook over NCCL only, but it works over gloo."""
    averaged: torch.futures.Future[Tensor] = bf16_compress_hook(group, bucket)
    return averaged
