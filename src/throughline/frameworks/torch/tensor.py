"""What the ranks that share a replica exchange after its passes: the norms of whole gradients, and overflows."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from throughline.frameworks.torch.norms import Norms, Tensors, norms_here
from throughline.workloads.in_torch_tensor_parallel import TensorGroup


def norms_of_whole(ranks: TensorGroup, network: nn.Module, norms_of: Norms = norms_here) -> Norms:
    """Return a function for the norms of whole tensors, of which the ranks hold parts.

    It adds up the squares of the parts over the ranks. A tensor that every rank holds as a whole counts once. norms_of:
    returns the norms of these parts, or of these wholes.
    """
    parts = {network.get_parameter(name) for name in ranks.dimensions}

    def norms(tensors: Tensors, parameters: Sequence[Tensor]) -> Tensor:
        every = list(norms_of(tensors, parameters).unbind())
        cut = [number for number, parameter in enumerate(parameters) if parameter in parts]
        if cut:
            squares = torch.stack([every[number] for number in cut]).square()
            dist.all_reduce(squares, group=ranks.group)
            for number, norm in zip(cut, squares.sqrt().unbind(), strict=True):
                every[number] = norm
        return torch.stack(every)

    return norms


def share_overflow(scaler: Any, optimizer: Any, ranks: TensorGroup) -> None:
    """Make all ranks skip a step if one of them has to skip it. Call this after `unscale_`.

    It does not wait for the device.
    """
    if scaler.is_enabled():
        for overflows in scaler._found_inf_per_device(optimizer).values():
            dist.all_reduce(overflows, dist.ReduceOp.MAX, group=ranks.group)
