"""`torch-horovod`: PyTorch with Horovod's DistributedOptimizer, over gloo or MPI, NCCL on GPUs; a single rank runs
without it."""

from contextlib import AbstractContextManager
from typing import Any

import horovod.torch as hvd
import torch
from torch import Tensor

from throughline.frameworks import horovod
from throughline.frameworks.torch.rank import Batch, TorchRank


class TorchHorovod(TorchRank):
    def join(self) -> None:
        if self.world > 1:
            horovod.join(hvd, self.options, self.kind)

    def model(self, facts: dict[str, Any]) -> None:
        super().model(facts)
        if self.world > 1:
            hvd.broadcast_parameters(self.network.state_dict(), root_rank=0)

    def optimizer(self) -> None:
        super().optimizer()
        if self.exchanges:
            # It exchanges gradients from hooks of the backward pass, with the last micro-batch's.
            made = self.update
            self.update = hvd.DistributedOptimizer(
                made, self.network.named_parameters(), backward_passes_per_step=self.options["accumulate"]
            )
            # It makes another optimizer from the groups alone: this one skips an overflow on the device as well, and
            # the loss scaler need not wait to see whether there was one.
            self.update._step_supports_amp_scaling = getattr(made, "_step_supports_amp_scaling", False)

    def passes(self, batches: list[Batch]) -> Tensor:
        if self.exchanges and self.changing:  # as DistributedDataParallel does
            hvd.broadcast_parameters(self.changing, root_rank=0)
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
