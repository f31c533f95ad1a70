"""What ranks that share a replica (`tensor_parallel`) or experts (`expert_parallel`) do after the passes.

Tokens travel within the passes (`workloads.hugging_face.in_torch_experts`), so a rank has the gradients of its experts
from the samples of all ranks that share experts with it, as a mean over them.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from throughline.frameworks.rank import refuse_if
from throughline.frameworks.torch.norms import Norms, Tensors, norms_here
from throughline.spec import Options
from throughline.workloads.in_torch_tensor_parallel import TensorGroup


def refuse_experts(options: Options) -> None:
    """Raise Unsupported if ranks cannot share experts with these options."""
    if options.expert_parallel == 1:
        return
    travel = "with options.expert_parallel tokens travel between the ranks in every pass"
    refuse_if(not options.gradient_sync, f"{travel}: options.gradient_sync has to be true")
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


def average_experts(gradients: Sequence[Tensor | None], holders: dist.ProcessGroup) -> None:
    """Average the gradients of this rank's experts in place over the ranks that hold the same ones, in one message."""
    held = [gradient for gradient in gradients if gradient is not None]
    if holders.size() > 1:
        flat = torch.cat([gradient.flatten() for gradient in held])
        dist.all_reduce(flat, group=holders)
        parts = torch.split(flat / holders.size(), [gradient.numel() for gradient in held])
        torch._foreach_copy_(held, [part.view_as(gradient) for part, gradient in zip(parts, held, strict=True)])


def norms_of_whole(ranks: TensorGroup, network: nn.Module, norms_of: Norms = norms_here) -> Norms:
    """Return a function for the norms of whole tensors, of which the ranks hold parts.

    It adds up the squares of the parts over the ranks. A tensor that every rank holds as a whole counts once. norms_of:
    returns the norms of what a rank holds.
    """
    parts = {network.get_parameter(name) for name in ranks.dimensions}

    def norms(tensors: Tensors, parameters: Sequence[Tensor]) -> Tensor:
        lengths = list(norms_of(tensors, parameters).unbind())
        cut = [number for number, parameter in enumerate(parameters) if parameter in parts]
        if cut:
            squares = torch.stack([lengths[number] for number in cut]).square()
            dist.all_reduce(squares, group=ranks.group)
            for number, norm in zip(cut, squares.sqrt().unbind(), strict=True):
                lengths[number] = norm
        return torch.stack(lengths)

    return norms


def share_overflow(scaler: Any, optimizer: Any, ranks: TensorGroup) -> None:
    """Make all ranks skip a step if one of them has to, after `unscale_`. Nothing waits for the device."""
    if scaler.is_enabled():
        for overflows in scaler._found_inf_per_device(optimizer).values():
            dist.all_reduce(overflows, dist.ReduceOp.MAX, group=ranks.group)
