"""A rank of `hf-loop`: a training loop around a model of transformers, as people write it by hand.

It has autocast, a loss scaler for fp16, a fused AdamW, and DistributedDataParallel with default settings apart from the
size of its buckets. Meeting the other ranks, sending batches and reading figures work as in `torch`.
"""

from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from throughline.frameworks.torch import sharding
from throughline.frameworks.torch.ddp import TorchDDP
from throughline.frameworks.torch.norms import norms_here
from throughline.frameworks.torch.rank import HALF
from throughline.workloads import in_torch_compiler


class HfLoop(TorchDDP):
    keeps_freed_memory = False

    def model(self, facts: dict[str, Any]) -> None:
        self.facts = facts
        with self.building():
            network = self.form.build(self.spec, facts, self.at)
        self.network = self.parallel = network.to(self.at)
        self.parameters, self.norms, self.changing = list(self.network.parameters()), norms_here, {}
        self.in_parts = self.options.sharding in sharding.WEIGHTS
        if self.options.compile:  # layer by layer if weights are split, because they are gathered between the layers
            for module in self.form.blocks(self.network) if self.in_parts else [self.network.model]:
                module.compile()
            self.compiler = in_torch_compiler.words
        if self.world > 1 and not self.in_parts:
            self.parallel = DistributedDataParallel(self.network, bucket_cap_mb=self.options.bucket_mb)
        torch.manual_seed(self.spec.seed + 1 + self.replica)

    def cast(self) -> AbstractContextManager[Any]:
        half = HALF.get(self.spec.precision)
        return torch.autocast(self.kind, dtype=half, enabled=half is not None)
