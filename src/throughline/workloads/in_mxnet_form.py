"""What the implementations of all workloads in MXNet share (`MxnetForm`)."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

import mxnet as mx

from throughline.workloads import Arrays, Form
from throughline.workloads.form import same_names
from throughline.workloads.workload import P


class Network(Protocol):
    def named_parameters(self) -> list[tuple[str, Any]]:
        """Return every weight once, with a name that is its place in the network."""


N = TypeVar("N", bound=Network)
"""The class of the network."""


class MxnetForm(Form[P, N]):
    """A workload in MXNet, compiled into one graph."""

    def load(self, network: N, weights: Arrays) -> None:
        parameters = dict(network.named_parameters())
        known = {self.name(name, parameters): array for name, array in weights.items()}
        same_names(parameters, known)
        for name, parameter in parameters.items():
            parameter.set_data(mx.nd.array(known[name], dtype="float32"))

    def snapshot(self, network: N) -> Arrays:
        parameters = dict(network.named_parameters())
        for parameter in parameters.values():  # MXNet keeps what was loaded aside until the first batch
            parameter._finish_deferred_init()
        return {name: parameter.data().asnumpy() for name, parameter in parameters.items()}

    def name(self, common: str, parameters: dict[str, Any]) -> str:
        """Return the name here of a weight in the PyTorch implementation. `own` has all names here."""
        return common
