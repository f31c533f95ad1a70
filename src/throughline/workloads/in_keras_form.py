"""What the implementations of all workloads in Keras share (`KerasForm`): weights by their names in PyTorch, and seeds.

They use only Keras' own operations, so they work with every backend of Keras.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import keras
import keras_hub
import numpy as np
from keras import ops

from throughline.workloads import Arrays, Form
from throughline.workloads.form import N, same_names
from throughline.workloads.workload import P

BACKEND = keras.backend.backend()
MATRICES = ("kernel", "embeddings")
"""Keras' names of the weights that decay. We cannot go by the number of dimensions, because a bias can have two here
(heads, width)."""
SEEDS = "seed_generator_state"
POLICIES = {"bf16": "mixed_bfloat16", "fp16": "mixed_float16"}
"""Map the precisions in which matrix products and activations have another type than the weights to Keras' names."""


class KerasForm(Form[P, N]):
    """A workload in Keras. Its network is a layer with `by_name`, which returns each weight by its name in PyTorch.

    `at` of `build` is Keras' name of a precision (a dtype policy).
    """

    def load(self, network: Any, weights: Arrays) -> None:
        """Set all weights in place.

        A kernel of Keras has the inputs before the outputs, both as its last dimensions, and may have the heads as a
        dimension of their own. PyTorch's has the outputs first.
        """
        here = network.by_name()
        same_names(here, weights)
        for name, weight in here.items():
            array = weights[name]
            if weight.name == "kernel":
                array = array.transpose(*range(2, array.ndim), 1, 0)
            weight.assign(array.reshape(weight.shape))

    def snapshot(self, network: Any) -> Arrays:
        return {name: ops.convert_to_numpy(weight.value) for name, weight in network.by_name().items()}

    def sums(self, network: N, batch: dict[str, Any]) -> dict[str, float]:
        values = {name: ops.convert_to_numpy(value) for name, value in self.predicted(network, batch).items()}
        samples = float(len(next(iter(batch.values()))))
        return {**{name: float(value.sum(dtype="float64")) for name, value in values.items()}, "samples": samples}

    def policy(self, precision: str) -> str:
        """Return Keras' name of a precision: `at` of `build`."""
        return POLICIES.get(precision, "float32")

    def versions(self) -> dict[str, str | None]:
        return {"keras": keras.__version__, "keras_hub": keras_hub.__version__}

    def seed(self, value: int) -> None:
        """Seed the generator that draws random weights."""
        keras.utils.set_random_seed(value)

    def reseed(self, network: Any, value: int) -> None:
        """Seed the generators of dropout. Every layer gets a seed of its own."""
        for number, state in enumerate(variable for variable in network.variables if variable.name == SEEDS):
            state.assign(np.array([value & 2**32 - 1, number], "uint32"))

    def decays(self, weights: Iterable[Any]) -> list[bool]:
        """Return for each weight whether weight decay applies to it: only to matrices."""
        return [weight.name in MATRICES for weight in weights]


def gelu(x: Any) -> Any:
    """Return the exact gelu, x/2 * (1 + erf(x/sqrt(2))), as PyTorch computes it.

    `keras.activations.gelu` computes the same in TensorFlow. In JAX it uses erfc, which takes longer on CPUs.
    """
    return 0.5 * x * (1.0 + ops.erf(x * 0.5**0.5))


def has_causal_kernel() -> bool:
    """True if the backend has a kernel for causal attention without a mask: JAX has cuDNN's, on GPUs."""
    devices = keras.distribution.list_devices() if BACKEND == "jax" else []
    return any(not device.startswith("cpu") for device in devices)


def attention_in_words(dropout: float) -> str:
    """Return what computes attention. Keras has no function for attention with dropout. Without dropout, its function
    takes cuDNN's kernel in JAX on GPUs, if the type and the shapes allow it."""
    return "products and softmax by themselves" if dropout else f"Keras' dot_product_attention on {BACKEND}"


def counted(network: Any) -> int:
    return sum(int(np.prod(variable.shape)) for variable in network.trainable_variables)


def of_layer(name: str, layer: Any) -> dict[str, Any]:
    """Return the weights of a dense layer or of a norm by PyTorch's names."""
    if hasattr(layer, "gamma"):
        return {f"{name}.weight": layer.gamma, f"{name}.bias": layer.beta}
    return {f"{name}.weight": layer.kernel, f"{name}.bias": layer.bias}


def of_transformer_layer(names: Iterable[str], layer: Any) -> dict[str, Any]:
    """Return the weights of a layer of keras-hub by PyTorch's names.

    `names` are those of its parts: the norm of the attention, query, key, value and output of the attention, the norm
    of the feed-forward part, and its first and second product.
    """
    attention = layer._self_attention_layer
    parts = [
        layer._self_attention_layer_norm, attention.query_dense, attention.key_dense, attention.value_dense,
        attention.output_dense, layer._feedforward_layer_norm, layer._feedforward_intermediate_dense,
        layer._feedforward_output_dense,
    ]  # fmt: skip
    weights: dict[str, Any] = {}
    for name, part in zip(names, parts, strict=True):
        weights |= of_layer(name, part)
    return weights


def through(layers: Iterable[Any], hidden: Any, activation_checkpointing: bool, **given: Any) -> Any:
    """Return the hidden states after all layers."""
    for layer in layers:
        hidden = (partial(recomputed, layer) if activation_checkpointing else layer)(hidden, **given)
    return hidden


def recomputed(layer: Any, hidden: Any, **given: Any) -> Any:
    """Return layer(hidden). The backward pass computes the layer's activations again, with the same dropout.

    TensorFlow runs the layer a second time, so both runs begin with the same seeds. JAX cannot change state inside a
    function that it computes twice, so there the seeds of dropout are arguments and results.
    """
    if BACKEND != "jax":
        before = [ops.copy(seed.value) for seed in layer.non_trainable_variables]

        def call(hidden: Any) -> Any:
            for seed, value in zip(layer.non_trainable_variables, before, strict=True):
                seed.assign(value)
            return layer(hidden, **given)

        return keras.remat(call)(hidden)
    seeds, weights = layer.non_trainable_variables, [variable.value for variable in layer.trainable_variables]
    stateless = keras.remat(lambda hidden, seeds: layer.stateless_call(weights, seeds, hidden, **given))
    hidden, after = stateless(hidden, [seed.value for seed in seeds])
    for seed, value in zip(seeds, after, strict=True):
        seed.assign(value)
    return hidden
