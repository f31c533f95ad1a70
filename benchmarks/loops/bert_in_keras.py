"""BERT in TensorFlow or JAX: what the guides of Keras and keras-hub show.

BertBackbone, its MaskedLMHead, a layer for the sentences' order, Keras' AdamW, and one `tf.function` or, in JAX, one
`jax.jit` around `stateless_call` and `stateless_apply`. It uses keras-hub's approximation of gelu and its own weights.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import keras_hub

from throughline.workloads import bert

ROWS = ["1:bert-tiny:8:sequence=128", "1:bert-mini:8:sequence=128", "1:bert-small:4:sequence=128"]
SETTINGS: dict[str, Any] = {}
OURS: dict[str, dict[str, Any]] = {"ours": {}}


def contestant(spec: Any, rank: Any, arrays: list[Any]) -> tuple[Callable[[int], float], None]:
    for each in arrays:
        each.update({name: array.astype("int32") for name, array in each.items()})
    batches = [rank.deliver(rank.data(each)) for each in arrays]
    shape, given = bert.SHAPES[spec.model], spec.optimizer
    backbone = keras_hub.models.BertBackbone(
        bert.VOCABULARY, shape.layers, shape.heads, shape.hidden, shape.feed_forward, dropout=spec.options.dropout
    )
    head = keras_hub.layers.MaskedLMHead(
        vocabulary_size=bert.VOCABULARY, token_embedding=backbone.token_embedding, intermediate_activation="gelu"
    )
    order = keras.layers.Dense(2)
    ids, segments, mask, places = (keras.Input((None,), dtype="int32") for _ in range(4))
    states = backbone({"token_ids": ids, "segment_ids": segments, "padding_mask": mask})
    outputs = head(states["sequence_output"], places), order(states["pooled_output"])
    model = keras.Model([ids, segments, mask, places], outputs)
    optimizer = keras.optimizers.AdamW(
        given.learning_rate, weight_decay=given.weight_decay, beta_1=given.betas[0], beta_2=given.betas[1],
        epsilon=given.epsilon,
    )  # fmt: skip
    optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    optimizer.build(model.trainable_variables)
    step = {"tensorflow": step_in_tensorflow, "jax": step_in_jax}[spec.framework](model, optimizer)
    return lambda number: float(step(batches[number % len(batches)])), None


def inputs(batch: dict[str, Any]) -> list[Any]:
    return [batch["input_ids"], batch["segments"], keras.ops.ones_like(batch["input_ids"]), batch["positions"]]


def loss_of(outputs: Any, batch: dict[str, Any]) -> Any:
    words, follows = outputs
    used = keras.ops.cast(batch["positions"] != 0, "float32")
    each = keras.losses.sparse_categorical_crossentropy(batch["labels"], words, from_logits=True)
    following = keras.losses.sparse_categorical_crossentropy(batch["following"], follows, from_logits=True)
    return keras.ops.sum(each * used) / keras.ops.sum(used) + keras.ops.mean(following)


def step_in_tensorflow(model: Any, optimizer: Any) -> Callable[[dict[str, Any]], Any]:
    import tensorflow as tf

    def step(batch: dict[str, Any]) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(model(inputs(batch), training=True), batch)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    compiled: Callable[[dict[str, Any]], Any] = tf.function(step)
    return compiled


def step_in_jax(model: Any, optimizer: Any) -> Callable[[dict[str, Any]], Any]:
    import jax

    def passes(weights: Any, own: Any, batch: dict[str, Any]) -> Any:
        outputs, own = model.stateless_call(weights, own, inputs(batch), training=True)
        return loss_of(outputs, batch), own

    @jax.jit  # type: ignore[untyped-decorator]
    def stepped(state: Any, batch: dict[str, Any]) -> Any:
        weights, own, moments = state
        (loss, own), gradients = jax.value_and_grad(passes, has_aux=True)(weights, own, batch)
        weights, moments = optimizer.stateless_apply(moments, gradients, weights)
        return (weights, own, moments), loss

    variables = model.trainable_variables, model.non_trainable_variables, optimizer.variables
    state: Any = tuple([variable.value for variable in each] for each in variables)

    def step(batch: dict[str, Any]) -> Any:
        nonlocal state
        state, loss = stepped(state, batch)
        return loss

    return step
