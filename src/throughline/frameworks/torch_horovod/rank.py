"""`torch-horovod`: PyTorch with Horovod's DistributedOptimizer, over gloo or MPI, NCCL on GPUs; a single rank runs
without it."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import horovod.torch as hvd
import torch
from torch import Tensor

from throughline.frameworks import horovod
from throughline.frameworks.torch.rank import Batch, TorchRank


class TorchHorovod(TorchRank):
    def join(self) -> None:
        if self.world > 1:
            horovod.join(hvd, self.options)

    def model(self, facts: dict[str, Any]) -> None:
        network = self.build(facts)
        if self.world > 1:
            hvd.broadcast_parameters(network.state_dict(), root_rank=0)
        self.network: Any = network

    def optimizer(self) -> None:
        super().optimizer()
        if self.exchanges:
            # It exchanges gradients from hooks of the backward pass, with the last micro-batch's.
            self.update = hvd.DistributedOptimizer(
                self.update, self.bare.named_parameters(), backward_passes_per_step=self.options["accumulate"]
            )

    def step(self, batches: list[Batch]) -> Tensor:
        total = torch.zeros((), device=self.at)
        for batch in batches:
            loss = self.network(**batch) / len(batches)
            self.scaler.scale(loss).backward()
            total += loss.detach()
        if self.exchanges:
            self.update.synchronize()
        if self.clip is not None:
            self.scaler.unscale_(self.update)
            self.clip(self.parameters)
        with self.update.skip_synchronize() if self.exchanges else nullcontext():
            self.scaler.step(self.update)
        self.scaler.update()
        self.update.zero_grad()  # Horovod's takes no arguments; PyTorch's default is to drop the gradients
        return total

    def barrier(self) -> None:
        if self.world > 1:
            hvd.barrier()

    def broadcast(self, value: int) -> int:
        if self.world == 1:
            return value
        return int(hvd.broadcast(torch.tensor(value, device=self.at), root_rank=0, name="broadcast"))

    def versions(self) -> dict[str, str | None]:
        return {**super().versions(), **horovod.versions(self.options)}

    def close(self) -> None:
        if self.world > 1:
            hvd.barrier()
            hvd.shutdown()
