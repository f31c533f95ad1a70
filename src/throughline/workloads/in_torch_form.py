"""What the implementations of all workloads in PyTorch share (`TorchForm`), and their networks (`InParts`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from throughline.workloads import Arrays, Form
from throughline.workloads.form import same_names
from throughline.workloads.in_torch_compiler import compiled
from throughline.workloads.workload import P


class InParts(nn.Module):
    """A network whose forward pass calls a few functions of tensors, so that a compiler sees each function as a whole.

    With `half_type`, the weights keep their type, and are cast where they are used.
    """

    half_type: torch.dtype | None = None
    several_lengths = False
    """True if a tensor of a batch has another length in every batch (see `of_any_length`)."""
    dynamic = False
    parts: tuple[Callable[..., Tensor], ...]

    def compile_parts(self, dynamic: bool, backend: Any = "inductor") -> None:
        """Compile each part by itself. So one that is called several times, such as a layer, is compiled once.

        `dynamic`: the tensors that `of_any_length` gets have another length in every batch. Several ranks run the same
        program as one: otherwise PyTorch cuts the parts under DistributedDataParallel, which hides the exchange within
        one large graph. Our parts are small, and their gradients are exchanged between them.
        """
        import torch._dynamo  # only here, because it takes a second

        torch._dynamo.config.optimize_ddp = False
        self.dynamic = dynamic
        self.parts = tuple(compiled(part, None if dynamic else False, backend) for part in self.parts)

    def of_any_length(self, *tensors: Tensor) -> None:
        """Say, before a compiled part takes these tensors, that their first dimension changes from batch to batch.

        So the first batch makes the code for all lengths. Otherwise the second length would compile every part again.
        """
        if self.dynamic:
            for tensor in tensors:
                torch._dynamo.mark_dynamic(tensor, 0)


N = TypeVar("N", bound=nn.Module)
"""The class of the network."""


class TorchForm(Form[P, N]):
    """A workload in PyTorch. The implementations in all other libraries use its names of parameters."""

    def weights(self, network: N) -> Arrays:
        return {name: parameter.detach().cpu().numpy() for name, parameter in network.named_parameters()}

    def snapshot(self, network: N) -> Arrays:
        return {name: _whole(parameter).numpy() for name, parameter in network.named_parameters()}

    def load(self, network: N, weights: Arrays) -> None:
        parameters = dict(network.named_parameters())
        same_names(parameters, weights)
        for name, parameter in parameters.items():
            put(parameter, torch.from_numpy(weights[name]))


@torch.no_grad()
def put(parameter: Tensor, whole: Tensor) -> None:
    """Set a parameter to a whole tensor. If ranks have split it (FSDP2), this rank takes its part; nothing is sent."""
    part: Any = parameter
    if not hasattr(part, "device_mesh"):
        parameter.copy_(whole)
        return
    from torch.distributed.tensor import distribute_tensor  # only here, because it takes a second

    mesh, places = part.device_mesh, part.placements
    split: Any = distribute_tensor(whole.to(part.device), mesh, places, src_data_rank=None)
    part.to_local().copy_(split.to_local())


def _whole(parameter: Tensor) -> Tensor:
    """Return a parameter in main memory. Ranks that have split its rows (FSDP2) gather them."""
    gather = getattr(parameter, "full_tensor", None)
    whole: Tensor = (gather() if gather else parameter).detach().cpu()
    return whole
