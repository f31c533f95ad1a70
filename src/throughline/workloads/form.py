"""What the implementation of a workload in a library offers (`Form`): the model itself, written for that library."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar

from throughline.spec import RunSpec
from throughline.workloads.workload import Arrays, Values

P = TypeVar("P")
"""The class of the workload's parameters."""
N = TypeVar("N")
"""The class of the network."""


class Form(ABC, Generic[P, N]):
    """A workload in a library. `in_<library>.py` has one subclass, and one instance of it as `FORM`.

    All implementations of a model use the parameter names of its PyTorch implementation. A method that raises
    NotImplementedError belongs to a feature, such as `sharding`, or to workloads that train. A run that asks for a
    feature which the implementation lacks is refused before the method is called.
    """

    lacks: ClassVar[Mapping[str, str]] = {}
    """Map a missing feature to the reason. `Workload.lacks` has the reasons of all implementations."""
    changing: ClassVar[frozenset[str]] = frozenset()
    """In PyTorch: the attribute names of buffers that training changes. Ranks exchange these, and no other buffer."""
    draws_on_device: ClassVar[bool] = False
    """In PyTorch: the device draws the weights. A CPU would need minutes for a model of many billion parameters."""
    draws_in_parts: ClassVar[bool] = False
    """In PyTorch: on the device `meta`, `build` makes a network without memory, and `draw` gives it memory and weights.
    Ranks that split weights (`sharding`) then never hold more of them than their parts and one whole tensor."""

    @abstractmethod
    def build(self, spec: RunSpec[P], facts: Values, at: Any = None) -> N:
        """Return the network with random weights, or raise Unsupported. `at` is where it computes, in the library's
        words: a device of PyTorch or MXNet, a dtype policy of Keras."""

    def weights(self, network: N) -> Arrays:
        """Return the parameters, without buffers, by name."""
        raise NotImplementedError

    def load(self, network: N, weights: Arrays) -> None:
        """Set all parameters; ValueError if the names differ."""
        raise NotImplementedError

    def snapshot(self, network: N) -> Arrays:
        """Return all parameters in this library's own names, shapes and layouts; they may share the memory.

        If ranks split weights, all of them have to call this together.
        """
        raise NotImplementedError

    @abstractmethod
    def settings(self, network: N) -> dict[str, Any]:
        """Return what was built: `parameters`, `dropout`, `loss` and the names in the workload's `settings`."""

    def versions(self) -> dict[str, str | None]:
        """Return the versions of what the implementation uses beside the library."""
        return {}

    def figures(self, network: N) -> list[tuple[str, Any, float | None]]:
        """Measure, after the timed window, the workload's figures without `of_steps` and `of_counts`: their names,
        sizes and values."""
        return []

    def predicted(self, network: N, batch: Any) -> dict[str, Any]:
        """Return the values whose sums over a batch `Workload.look` takes: the losses and the hits of each head."""
        raise NotImplementedError

    def sums(self, network: N, batch: Any) -> dict[str, float]:
        """Return sums over a delivered batch, without dropout: `samples`, and what the workload's `look` takes."""
        raise NotImplementedError

    def batch(self, arrays: Arrays) -> Any:
        """Return a batch as the network takes it."""
        return arrays

    def blocks(self, network: N) -> list[Any]:
        """Return the modules, such as layers, whose weights are gathered one module at a time (`sharding`)."""
        raise NotImplementedError

    def split(self, network: N, ranks: Any) -> None:
        """Keep this rank's part of the parameters (`tensor_parallel`); `ranks` are those that share a replica.

        From then on `load` takes whole weights, and `weights` gathers them.
        """
        raise NotImplementedError

    def split_experts(self, network: N, ranks: Any) -> frozenset[str]:
        """Keep this rank's experts (`expert_parallel`); `ranks` is a TensorGroup of those that share them.

        Return the names of their parameters. From then on `load` takes whole weights, and `weights` gathers them.
        """
        raise NotImplementedError

    def spread(self, network: N, ranks: Any) -> frozenset[str]:
        """Share parameters with all ranks, a TensorGroup (`own_gradient_sync`). Return the names of those that the
        network exchanges itself, in its forward and backward pass."""
        raise NotImplementedError

    def draw(self, network: N, spec: RunSpec[P], at: Any) -> None:
        """Give a network without memory (`draws_in_parts`) memory on a device and the random weights of `build`."""
        raise NotImplementedError

    def by_rows(self, network: N) -> list[Any]:
        """Return, in PyTorch, the parameters that have sparse gradients, and are updated row by row."""
        return []


def same_names(here: Mapping[str, Any], weights: Mapping[str, Any]) -> None:
    """Raise ValueError if weights have other names than those of a network."""
    if here.keys() != weights.keys():
        raise ValueError(f"weights of another network: {sorted(here.keys() ^ weights.keys())}")
