"""What the forms in Keras share: weights by the names of PyTorch's forms, and the seeds of dropout.

Written in Keras' own operations alone, so that every backend of Keras trains it.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import keras
import keras_hub
import numpy as np
from keras import ops

from throughline.workloads import Arrays

MATRICES = ("kernel", "embeddings")
"""Keras' names of the weights that decay. A bias may have two dimensions here (heads, width)."""
SEEDS = "seed_generator_state"


def versions() -> dict[str, str | None]:
    """Versions of what the form is made of, beside the backend's."""
    return {"keras": keras.__version__, "keras_hub": keras_hub.__version__}


def seed(value: int) -> None:
    """Seed what random weights are drawn from."""
    keras.utils.set_random_seed(value)


def reseed(network: Any, value: int) -> None:
    """Seed what dropout draws from: every layer from a place of its own."""
    for place, state in enumerate(one for one in network.variables if one.name == SEEDS):
        state.assign(np.array([value & 2**32 - 1, place], "uint32"))


def decays(weights: Iterable[Any]) -> list[bool]:
    """Which of the weights are matrices."""
    return [one.name in MATRICES for one in weights]


def counted(network: Any) -> int:
    return sum(int(np.prod(one.shape)) for one in network.trainable_variables)


def assign(own: Mapping[str, Any], weights: Arrays) -> None:
    """Set the weights, in place, from arrays by PyTorch's names; all of them and no other.

    A kernel of Keras is PyTorch's with inputs before outputs, both at the end, and with heads as a dimension of their
    own.
    """
    if own.keys() != weights.keys():
        raise ValueError(f"weights of another network: {sorted(own.keys() ^ weights.keys())}")
    for name, weight in own.items():
        array = weights[name]
        if weight.name == "kernel":
            array = array.transpose(*range(2, array.ndim), 1, 0)
        weight.assign(array.reshape(weight.shape))


def of_layer(name: str, layer: Any) -> dict[str, Any]:
    """The weights of a dense layer or of a norm by PyTorch's names."""
    if hasattr(layer, "gamma"):
        return {f"{name}.weight": layer.gamma, f"{name}.bias": layer.beta}
    return {f"{name}.weight": layer.kernel, f"{name}.bias": layer.bias}


def recomputed(layer: Any, hidden: Any, **given: Any) -> Any:
    """What the layer makes of `hidden`; the backward pass computes its activations again, with the same dropout.

    TensorFlow runs the layer a second time: both times begin with the same seeds. JAX lets no state out of what it
    computes twice, so that dropout's seeds go in and come out as values there.
    """
    if keras.backend.backend() != "jax":
        before = [ops.copy(one.value) for one in layer.non_trainable_variables]

        def call(hidden: Any) -> Any:
            for seed, value in zip(layer.non_trainable_variables, before, strict=True):
                seed.assign(value)
            return layer(hidden, **given)

        return keras.remat(call)(hidden)
    seeds, weights = layer.non_trainable_variables, [one.value for one in layer.trainable_variables]
    stateless = keras.remat(lambda hidden, seeds: layer.stateless_call(weights, seeds, hidden, **given))
    hidden, after = stateless(hidden, [one.value for one in seeds])
    for seed, value in zip(seeds, after, strict=True):
        seed.assign(value)
    return hidden
