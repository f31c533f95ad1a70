"""What the implementations of all workloads in MXNet share (`MxnetForm`)."""

from __future__ import annotations

from typing import Any

import mxnet as mx

from throughline.workloads import Arrays, Form
from throughline.workloads.form import N, same_names
from throughline.workloads.workload import P


class MxnetForm(Form[P, N]):
    """A workload in MXNet, compiled into one graph. `named_parameters` of its network returns every weight once."""

    def load(self, network: Any, weights: Arrays) -> None:
        parameters = dict(network.named_parameters())
        arrays = {self.name(name, parameters): array for name, array in weights.items()}
        same_names(parameters, arrays)
        for name, parameter in parameters.items():
            parameter.set_data(mx.nd.array(arrays[name], dtype="float32"))

    def snapshot(self, network: Any) -> Arrays:
        parameters = dict(network.named_parameters())
        for parameter in parameters.values():  # MXNet keeps what was loaded aside until the first batch
            parameter._finish_deferred_init()
        return {name: parameter.data().asnumpy() for name, parameter in parameters.items()}

    def name(self, common: str, parameters: dict[str, Any]) -> str:
        """Return the name here of a weight in the PyTorch implementation. `parameters` has all names here."""
        return common
