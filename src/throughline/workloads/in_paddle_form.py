"""What the implementations of all workloads in Paddle share (`PaddleForm`): layers, and weights by the names of the
PyTorch implementations."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import paddle
from paddle import nn

from throughline.workloads import Arrays, Form
from throughline.workloads.form import same_names
from throughline.workloads.workload import P

DEVIATION = 0.02
"""Standard deviation of the initial weights."""
DRAWN = nn.initializer.Normal(std=DEVIATION)


def dense(inputs: int, outputs: int, deviation: float = DEVIATION) -> nn.Linear:
    """Make a linear layer."""
    return nn.Linear(inputs, outputs, weight_attr=nn.initializer.Normal(std=deviation))


def on_gpu(at: str | None) -> bool:
    """True if Paddle's name of a device (`at` of `build`) is that of a GPU."""
    return (at or "cpu").startswith("gpu")


def trained(network: nn.Layer) -> dict[str, Any]:
    """Return the parameters that are trained. Paddle's own list also has the running statistics of batch norms."""
    return {name: parameter for name, parameter in network.named_parameters() if not parameter.stop_gradient}


N = TypeVar("N", bound=nn.Layer)
"""The class of the network."""


class PaddleForm(Form[P, N]):
    """A workload in Paddle."""

    def load(self, network: N, weights: Arrays) -> None:
        """Set all weights in place. Paddle keeps weights of linear layers transposed."""
        linear = {f"{name}.weight" for name, layer in network.named_sublayers() if isinstance(layer, nn.Linear)}
        parameters = trained(network)
        same_names(parameters, weights)
        for name, parameter in parameters.items():
            array = weights[name].T if name in linear else weights[name]
            parameter.set_value(np.ascontiguousarray(array, dtype=np.float32))

    def snapshot(self, network: N) -> Arrays:
        return {name: parameter.numpy() for name, parameter in trained(network).items()}

    @paddle.no_grad()  # type: ignore[untyped-decorator]
    def sums(self, network: N, batch: dict[str, Any]) -> dict[str, float]:
        network.eval()
        values = {name: value.numpy() for name, value in self.predicted(network, batch).items()}
        network.train()
        samples = float(len(next(iter(batch.values()))))
        return {**{name: float(value.sum(dtype=np.float64)) for name, value in values.items()}, "samples": samples}
