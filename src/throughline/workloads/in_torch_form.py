"""What the forms of all workloads in PyTorch share (`TorchForm`), and their networks (`InParts`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor, nn

from throughline.workloads import Arrays, Form
from throughline.workloads.form import same_names
from throughline.workloads.workload import P


class InParts(nn.Module):
    """A network whose forward pass calls a few functions of tensors, so that a compiler sees each function as a whole.

    With `half_type`, the weights keep their type, and are cast where they are used.
    """

    half_type: torch.dtype | None = None
    parts: tuple[Callable[..., Tensor], ...]

    def compile_parts(self, dynamic: bool) -> None:
        """Compile each part by itself. So one that is called several times, such as a layer, is compiled once.

        `dynamic`: shapes may change. PyTorch then compiles code for any shape when it sees the second one.
        """
        self.parts = tuple(torch.compile(part, dynamic=None if dynamic else False) for part in self.parts)


N = TypeVar("N", bound=nn.Module)
"""The class of the network."""


class TorchForm(Form[P, N]):
    """A workload in PyTorch. The forms in all other libraries use its names of parameters."""

    def weights(self, network: N) -> Arrays:
        return {name: parameter.detach().cpu().numpy() for name, parameter in network.named_parameters()}

    def load(self, network: N, weights: Arrays) -> None:
        parameters = dict(network.named_parameters())
        same_names(parameters, weights)
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(torch.from_numpy(weights[name]))
