"""A rank of `torch-horovod`: PyTorch with Horovod's DistributedOptimizer, over gloo or MPI, and NCCL on GPUs.

A single rank runs without it. As with Horovod's own users, every rank keeps its own running statistics of batch norm.
Training does not read them, and checkpoints have those of rank 0.
"""

from contextlib import AbstractContextManager
from typing import Any

import horovod.torch as hvd
import torch
from torch import Tensor

from throughline.frameworks import horovod
from throughline.frameworks.torch.rank import TorchRank
from throughline.frameworks.torch.recorded import Batch


class Dense:
    """Let Horovod exchange tensors in the memory format channels last, which it refuses, as views in the order of their
    memory. The interface is that of Horovod's compressions."""

    @staticmethod
    def compress(tensor: Tensor) -> tuple[Tensor, bool]:
        is_last = not tensor.is_contiguous() and tensor.is_contiguous(memory_format=torch.channels_last)
        return (tensor.permute(0, 2, 3, 1) if is_last else tensor), is_last

    @staticmethod
    def decompress(tensor: Tensor, is_last: bool) -> Tensor:
        return tensor.permute(0, 3, 1, 2) if is_last else tensor


class TorchHorovod(TorchRank):
    def join(self) -> None:
        if self.world > 1:
            horovod.join(hvd, self.options, self.kind)

    def model(self, facts: dict[str, Any]) -> None:
        super().model(facts)
        if self.world > 1:
            tensors = self.network.state_dict().items()
            hvd.broadcast_parameters({name: Dense.compress(tensor)[0] for name, tensor in tensors}, root_rank=0)

    def optimizer(self) -> None:
        super().optimizer()
        if self.exchanges:
            # It exchanges gradients from hooks in the backward pass of the last micro-batch.
            local, passes = self.update, self.options.gradient_accumulation
            self.update = hvd.DistributedOptimizer(
                local, self.network.named_parameters(), compression=Dense, backward_passes_per_step=passes
            )
            # Horovod makes a new optimizer from the groups. It skips an overflow on the device as the first one does,
            # so the loss scaler need not wait to see whether there was one.
            self.update._step_supports_amp_scaling = getattr(local, "_step_supports_amp_scaling", False)

    def passes(self, batches: list[Batch]) -> Tensor:
        total = super().passes(batches)
        if self.exchanges:
            self.update.synchronize()
        return total

    def updating(self) -> AbstractContextManager[Any]:
        return self.update.skip_synchronize() if self.exchanges else super().updating()

    def barrier(self) -> None:
        if self.world > 1:
            hvd.barrier()

    def broadcast(self, value: int) -> int:
        if self.world == 1:
            return value
        return int(hvd.broadcast(torch.tensor(value, device=self.at), root_rank=0, name="broadcast"))

    def versions(self) -> dict[str, str | None]:
        return {**super().versions(), **horovod.versions(hvd, self.options)}

    def close(self) -> None:
        if self.world > 1:
            hvd.barrier()
            hvd.shutdown()
