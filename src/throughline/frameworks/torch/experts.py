"""`options.expert_parallel`: what the ranks that share experts do after the passes, and what they cannot do.

Tokens travel within the passes (`workloads.hugging_face.in_torch_experts`), so a rank has the gradients of its
experts from the samples of all ranks that share experts with it, as a mean over them.
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from throughline.frameworks.rank import refuse_if
from throughline.spec import Options


def refuse(options: Options) -> None:
    """Raise Unsupported if ranks cannot share experts with these options."""
    if options.expert_parallel == 1:
        return
    refuse_if(
        not options.gradient_sync,
        "with options.expert_parallel tokens travel between the ranks in every pass: options.gradient_sync has to be "
        "true",
    )
    refuse_if(
        options.tensor_parallel > 1,
        "options.tensor_parallel cuts every expert over the ranks of a replica, and options.expert_parallel deals "
        "whole experts out to replicas: choose one of them",
    )
    refuse_if(
        options.sharding == "zero1",
        "ZeroRedundancyOptimizer sends updated tensors to all replicas, and with options.expert_parallel they hold "
        "different experts: options.sharding can be `none`, `shard_grad_op` or `full_shard`",
    )


def average(gradients: Sequence[Tensor | None], holders: dist.ProcessGroup) -> None:
    """Average the gradients of this rank's experts in place over the ranks that hold the same ones, in one message."""
    own = [gradient for gradient in gradients if gradient is not None]
    if holders.size() > 1:
        flat = torch.cat([gradient.flatten() for gradient in own])
        dist.all_reduce(flat, group=holders)
        parts = torch.split(flat / holders.size(), [gradient.numel() for gradient in own])
        torch._foreach_copy_(own, [part.view_as(gradient) for part, gradient in zip(parts, own, strict=True)])
