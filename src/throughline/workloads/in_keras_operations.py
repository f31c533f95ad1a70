"""Functions that the forms in Keras share: weights by the names of the PyTorch forms, and the seeds of dropout.

They use only Keras' own operations, so they work with every backend of Keras.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import keras
import keras_hub
import numpy as np
from keras import ops

from throughline.workloads import Arrays

MATRICES = ("kernel", "embeddings")
"""Keras' names of the weights that decay. We cannot go by the number of dimensions, because a bias can have two here
(heads, width)."""
SEEDS = "seed_generator_state"


def versions() -> dict[str, str | None]:
    """Return the versions of the libraries that the form uses beside the backend."""
    return {"keras": keras.__version__, "keras_hub": keras_hub.__version__}


def seed(value: int) -> None:
    """Seed the generator that draws random weights."""
    keras.utils.set_random_seed(value)


def reseed(network: Any, value: int) -> None:
    """Seed the generators of dropout. Every layer gets a seed of its own."""
    for place, state in enumerate(one for one in network.variables if one.name == SEEDS):
        state.assign(np.array([value & 2**32 - 1, place], "uint32"))


def gelu(x: Any) -> Any:
    """Return the exact gelu, x/2 * (1 + erf(x/sqrt(2))), as PyTorch computes it.

    `keras.activations.gelu` computes the same in TensorFlow. In JAX it uses erfc, which takes longer on CPUs.
    """
    return 0.5 * x * (1.0 + ops.erf(x * 0.5**0.5))


def decays(weights: Iterable[Any]) -> list[bool]:
    """Return for each weight whether weight decay applies to it: only to matrices."""
    return [one.name in MATRICES for one in weights]


def counted(network: Any) -> int:
    return sum(int(np.prod(one.shape)) for one in network.trainable_variables)


def assign(own: Mapping[str, Any], weights: Arrays) -> None:
    """Set all weights in place, from arrays by the names of the PyTorch form. ValueError if the names differ.

    A kernel of Keras has the inputs before the outputs, both as its last dimensions, and may have the heads as a
    dimension of their own. PyTorch's has the outputs first.
    """
    if own.keys() != weights.keys():
        raise ValueError(f"weights of another network: {sorted(own.keys() ^ weights.keys())}")
    for name, weight in own.items():
        array = weights[name]
        if weight.name == "kernel":
            array = array.transpose(*range(2, array.ndim), 1, 0)
        weight.assign(array.reshape(weight.shape))


def of_layer(name: str, layer: Any) -> dict[str, Any]:
    """Return the weights of a dense layer or of a norm by PyTorch's names."""
    if hasattr(layer, "gamma"):
        return {f"{name}.weight": layer.gamma, f"{name}.bias": layer.beta}
    return {f"{name}.weight": layer.kernel, f"{name}.bias": layer.bias}


def recomputed(layer: Any, hidden: Any, **given: Any) -> Any:
    """Return layer(hidden). The backward pass computes the layer's activations again, with the same dropout.

    TensorFlow runs the layer a second time, so both runs begin with the same seeds. JAX cannot change state inside a
    function that it computes twice, so there the seeds of dropout are arguments and results.
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
