"""What the forms of all workloads in PyTorch share (`TorchForm`)."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import nn

from throughline.workloads import Arrays, Form
from throughline.workloads.workload import P

N = TypeVar("N", bound=nn.Module)
"""The class of the network."""


class TorchForm(Form[P, N]):
    """A workload in PyTorch. The forms in all other libraries use its names of parameters."""

    def weights(self, network: N) -> Arrays:
        return {name: parameter.detach().cpu().numpy() for name, parameter in network.named_parameters()}

    def load(self, network: N, weights: Arrays) -> None:
        parameters = dict(network.named_parameters())
        if parameters.keys() != weights.keys():
            raise ValueError(f"weights of another network: {sorted(parameters.keys() ^ weights.keys())}")
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(torch.from_numpy(weights[name]))
