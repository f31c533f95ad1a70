"""BERT pre-training in Keras: the layers of keras-hub's BertBackbone, heads on the masked positions, and the loss.

We replace the backbone's approximate gelu with the exact one. This implementation calls the backbone's layers itself,
so a batch without padding needs no mask, and the backward pass can compute a layer's activations again. Every backend
of Keras can train it.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops
from keras_hub.models import BertBackbone

from throughline.spec import RunSpec
from throughline.workloads import Values, in_keras_form
from throughline.workloads.bert import POSITIONS, SHAPES, Parameters, padded
from throughline.workloads.in_keras_form import KerasForm, gelu, through

EPSILON = 1e-12
PARTS = [
    "attention.output.LayerNorm", "attention.self.query", "attention.self.key", "attention.self.value",
    "attention.output.dense", "output.LayerNorm", "intermediate.dense", "output.dense",
]  # fmt: skip
"""The parts of a layer by their names in the PyTorch implementation, in the order of `of_transformer_layer`."""


def masked(batch: dict[str, Any]) -> Any:
    """Return 1 for every position that is predicted, and 0 for unused ones."""
    return ops.cast(batch["positions"] != 0, "float32")


def cross_entropy(labels: Any, scores: Any) -> Any:
    return ops.sparse_categorical_crossentropy(labels, scores, from_logits=True)


class BertForPretraining(keras.Layer):  # type: ignore[misc]
    """BERT with its heads and its loss. Calling it takes the arrays of `bert.batch`.

    The loss is the mean over masked tokens + the mean over next-sentence labels.
    """

    predictions: int | None = None

    def __init__(self, model: str, rows: int, dropout: float, activation_checkpointing: bool, policy: str) -> None:
        super().__init__(dtype=policy)
        shape = SHAPES[model]
        self.bert = BertBackbone(
            vocabulary_size=rows,
            num_layers=shape.layers,
            num_heads=shape.heads,
            hidden_dim=shape.hidden,
            intermediate_dim=shape.feed_forward,
            dropout=dropout,
            max_sequence_length=POSITIONS,
            dtype=policy,
        )
        for layer in self.bert.transformer_layers:
            layer._feedforward_intermediate_dense.activation = gelu
        normal = keras.initializers.RandomNormal(stddev=0.02)
        self.transform = keras.layers.Dense(shape.hidden, activation=gelu, kernel_initializer=normal, dtype=policy)
        self.norm = keras.layers.LayerNormalization(epsilon=EPSILON, dtype=policy)
        self.following = keras.layers.Dense(2, kernel_initializer=normal, dtype=policy)
        self.bias = self.add_weight(shape=(rows,), initializer="zeros", name="bias")
        for layer in (self.transform, self.norm, self.following):
            layer.build((None, shape.hidden))
        self.activation_checkpointing = activation_checkpointing
        self.built = True

    def call(self, batch: dict[str, Any]) -> Any:
        scores, order = self.scores(batch, training=True)
        each, weights = cross_entropy(batch["labels"], scores), masked(batch)
        tokens = ops.sum(each * weights) / ops.maximum(ops.sum(weights), 1.0)
        return tokens + ops.mean(cross_entropy(ops.cast(batch["following"], "int32"), order))

    def scores(self, batch: dict[str, Any], training: bool) -> tuple[Any, Any]:
        """Return the scores of the vocabulary at all masked positions [B, P, rows], and of the order of the sentences
        [B, 2], in fp32."""
        hidden = self.encoded(batch, training)
        chosen = ops.take_along_axis(hidden, batch["positions"][..., None], axis=1)
        chosen = self.norm(self.transform(chosen))
        table, bias = (ops.cast(tensor, chosen.dtype) for tensor in (self.bert.token_embedding.embeddings, self.bias))
        # `chosen` keeps its three dimensions: on CPUs only then XLA uses its fast product for the gradient of `table`.
        words = ops.matmul(chosen, ops.transpose(table)) + bias
        order = self.following(self.bert.pooled_dense(hidden[:, 0]))
        return ops.cast(words, "float32"), ops.cast(order, "float32")

    def encoded(self, batch: dict[str, Any], training: bool) -> Any:
        """Return the hidden states [B, S, H] of the last layer."""
        bert = self.bert
        words = bert.token_embedding(batch["input_ids"])
        hidden = bert.embeddings_add((words, bert.position_embedding(words), bert.segment_embedding(batch["segments"])))
        hidden = bert.embeddings_dropout(bert.embeddings_layer_norm(hidden), training=training)
        again = self.activation_checkpointing and training
        return through(bert.transformer_layers, hidden, again, padding_mask=batch.get("mask"), training=training)

    def by_name(self) -> dict[str, Any]:
        """Return every weight by its name in the PyTorch implementation."""
        bert, embeddings = self.bert, "bert.embeddings"
        weights = {
            f"{embeddings}.word_embeddings.weight": bert.token_embedding.embeddings,
            f"{embeddings}.position_embeddings.weight": bert.position_embedding.position_embeddings,
            f"{embeddings}.token_type_embeddings.weight": bert.segment_embedding.embeddings,
            "bias": self.bias,
        }
        layers = {
            f"{embeddings}.LayerNorm": bert.embeddings_layer_norm,
            "bert.pooler.dense": bert.pooled_dense,
            "transform": self.transform,
            "norm": self.norm,
            "following": self.following,
        }
        for name, layer in layers.items():
            weights |= in_keras_form.of_layer(name, layer)
        for number, layer in enumerate(bert.transformer_layers):
            names = [f"bert.encoder.layer.{number}.{part}" for part in PARTS]
            weights |= in_keras_form.of_transformer_layer(names, layer)
        return weights


class BertInKeras(KerasForm[Parameters, BertForPretraining]):
    lacks = {"remove_padding": "keras-hub's BERT computes padding as well"}

    def build(self, spec: RunSpec[Parameters], facts: Values, at: str = "float32") -> BertForPretraining:
        rows, recomputes = padded(facts["vocabulary"]), bool(spec.options.activation_checkpointing)
        network = BertForPretraining(spec.model, rows, spec.options.dropout, recomputes, at)
        network.predictions = spec.parameters.predictions
        return network

    def settings(self, network: BertForPretraining) -> dict[str, Any]:
        first = network.bert.transformer_layers[0]
        return {
            "predictions": network.predictions,
            "parameters": in_keras_form.counted(network),
            "vocabulary_rows": network.bert.token_embedding.input_dim,
            "vocabulary_head": "masked positions, sharing the word embeddings",
            "gelu": "erf" if first._feedforward_intermediate_dense.activation is gelu else "tanh",
            "norm_epsilon": first.layer_norm_epsilon,
            "attention": in_keras_form.attention_in_words(first.dropout),
            "dropout": [first.dropout, first._self_attention_layer.dropout],
            "loss": "mean over masked tokens + mean over next-sentence labels, of each rank",
        }

    def predicted(self, network: BertForPretraining, batch: dict[str, Any]) -> dict[str, Any]:
        scores, order = network.scores(batch, training=False)
        labels, following, weights = batch["labels"], ops.cast(batch["following"], "int32"), masked(batch)
        return {
            "mlm_loss": cross_entropy(labels, scores) * weights,
            "mlm_right": ops.cast(ops.equal(ops.cast(ops.argmax(scores, -1), "int32"), labels), "float32") * weights,
            "masked": weights,
            "nsp_loss": cross_entropy(following, order),
            "nsp_right": ops.cast(ops.equal(ops.cast(ops.argmax(order, -1), "int32"), following), "float32"),
        }


FORM = BertInKeras()
