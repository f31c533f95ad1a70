"""`torch`: PyTorch's DistributedDataParallel, gloo on CPUs and NCCL on GPUs; a single rank runs without it."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from throughline.frameworks.torch.graph import Replayed
from throughline.frameworks.torch.rank import Batch, TorchRank


class TorchDDP(TorchRank):
    def join(self) -> None:
        if self.world > 1:
            # The address and port of rank 0 stand in MASTER_ADDR and MASTER_PORT.
            backend, here = ("nccl", self.at) if self.kind == "cuda" else ("gloo", None)
            dist.init_process_group(backend, rank=self.rank, world_size=self.world, device_id=here)

    def model(self, facts: dict[str, Any]) -> None:
        network = self.build(facts)
        self.parallel: Any = network
        if self.world > 1:
            self.parallel = torch.nn.parallel.DistributedDataParallel(
                network,
                device_ids=[self.at] if self.kind == "cuda" else None,
                bucket_cap_mb=self.options["bucket_mb"],
                gradient_as_bucket_view=True,
            )
        self.network = self.parallel

    def optimizer(self) -> None:
        super().optimizer()
        self.replayed = Replayed(self.passes, self.parameters) if self.captures() else None

    def passes(self, batches: list[Batch]) -> Tensor:
        """Forward and backward through the micro-batches: the mean loss, and every parameter's gradient."""
        total = torch.zeros((), device=self.at)
        for number, batch in enumerate(batches, 1):
            last = number == len(batches)  # gradients are exchanged with the last micro-batch
            alone = self.world > 1 and not (last and self.exchanges)
            with self.parallel.no_sync() if alone else nullcontext():
                loss = self.network(**batch) / len(batches)
                self.scaler.scale(loss).backward()
            total += loss.detach()
        return total

    def step(self, batches: list[Batch]) -> Tensor:
        total = self.replayed(batches) if self.replayed else self.passes(batches)
        if self.clip is not None:
            self.scaler.unscale_(self.update)
            self.clip(self.parameters)
        self.scaler.step(self.update)
        self.scaler.update()
        if self.replayed is None:
            self.update.zero_grad(set_to_none=True)
        return total

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
