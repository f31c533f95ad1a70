"""GPT-2 pre-training in Keras: the layers of keras-hub's GPT2Backbone, the head on the token embeddings, and the loss.

The keys of a run decide the gelu and the initial weights. This implementation calls the backbone's layers itself, so it
needs no padding mask, and the backward pass can compute a layer's activations again. Every backend of Keras can train
it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import keras
from keras import ops
from keras_hub.models import GPT2Backbone

from throughline.spec import RunSpec
from throughline.workloads import Values, in_keras_form
from throughline.workloads.gpt2 import DEVIATION, POSITIONS, SHAPES, Parameters, Shape, padded
from throughline.workloads.in_keras_form import KerasForm, gelu, through

PARTS = ["attention_norm", "query", "key", "value", "mix", "feed_norm", "up", "down"]
"""The parts of a layer by their names in the PyTorch implementation, in the order of `of_transformer_layer`."""
GELU = {"tanh": partial(keras.activations.gelu, approximate=True), "erf": gelu}


class Gpt2(keras.Layer):  # type: ignore[misc]
    """GPT-2 with its head and its loss. Calling it takes the arrays of `gpt2.batch` and returns the mean over all
    tokens.

    With `causal`, attention without dropout is the backend's causal kernel, which takes no mask.
    """

    def __init__(
        self, shape: Shape, rows: int, given: Parameters, dropout: float, recomputes: bool, policy: str, causal: bool
    ) -> None:
        super().__init__(dtype=policy)
        self.gpt2 = GPT2Backbone(
            vocabulary_size=rows,
            num_layers=shape.layers,
            num_heads=shape.heads,
            hidden_dim=shape.hidden,
            intermediate_dim=4 * shape.hidden,
            dropout=dropout,
            max_sequence_length=max(POSITIONS, given.sequence_length),
            dtype=policy,
        )
        residual = given.residual_deviation(shape.layers)
        drawn = [
            (self.gpt2.token_embedding.embeddings, DEVIATION),  # the backbone's default is 0.01
            (self.gpt2.position_embedding.position_embeddings, given.position_init),
        ]
        for layer in self.gpt2.transformer_layers:
            layer._feedforward_intermediate_dense.activation = GELU[given.gelu]
            added = layer._self_attention_layer.output_dense, layer._feedforward_output_dense
            drawn += [(dense.kernel, residual) for dense in added]
        for weight, deviation in drawn:
            weight.assign(keras.initializers.RandomNormal(stddev=deviation)(weight.shape))
        # The backbone's layers give a mask to Keras' attention. With a mask, cuDNN computes twice as much and reads the
        # mask as well. Keras has no kernel with dropout.
        self.causal = causal and dropout == 0
        if self.causal:
            for layer in self.gpt2.transformer_layers:
                attention = layer._self_attention_layer
                attention._compute_attention = partial(attention._compute_attention, use_causal_mask=True)
        self.activation_checkpointing = recomputes
        self.built = True

    def call(self, batch: dict[str, Any]) -> Any:
        return ops.mean(self.losses_of(batch["tokens"], training=True))

    def losses_of(self, tokens: Any, training: bool) -> Any:
        """Return the cross entropies [B, S] of the next tokens, in fp32. The last of the tokens [B, S + 1] is only a
        label."""
        gpt2, ids = self.gpt2, ops.cast(tokens, "int32")
        words = gpt2.token_embedding(ids[:, :-1])
        hidden = gpt2.embeddings_add((words, gpt2.position_embedding(words)))
        hidden = gpt2.embeddings_dropout(hidden, training=training)
        given = {"training": training, "use_causal_mask": not self.causal}
        hidden = through(gpt2.transformer_layers, hidden, self.activation_checkpointing and training, **given)
        scores = ops.cast(gpt2.token_embedding(gpt2.layer_norm(hidden), reverse=True), "float32")
        return ops.sparse_categorical_crossentropy(ids[:, 1:], scores, from_logits=True)

    def by_name(self) -> dict[str, Any]:
        """Return every weight by its name in the PyTorch implementation."""
        gpt2 = self.gpt2
        weights = {
            "tokens.weight": gpt2.token_embedding.embeddings,
            "positions.weight": gpt2.position_embedding.position_embeddings,
            **in_keras_form.of_layer("norm", gpt2.layer_norm),
        }
        for number, layer in enumerate(gpt2.transformer_layers):
            weights |= in_keras_form.of_transformer_layer([f"layers.{number}.{part}" for part in PARTS], layer)
        return weights


class Gpt2InKeras(KerasForm[Parameters, Gpt2]):
    lacks = {
        "sharding": "jax and tensorflow, which train this model, keep all states on every rank",
        "tensor_parallel": "keras-hub's layers cannot be cut: every rank computes them whole",
    }

    def build(self, spec: RunSpec[Parameters], facts: Values, at: str = "float32") -> Gpt2:
        given, rows = spec.parameters, padded(facts["vocabulary"])
        dropout, recomputes = spec.options.dropout, bool(spec.options.activation_checkpointing)
        causal = in_keras_form.has_causal_kernel()
        return Gpt2(SHAPES[spec.model], rows, given, dropout, recomputes, at, causal)

    def settings(self, network: Gpt2) -> dict[str, Any]:
        gpt2 = network.gpt2
        first = gpt2.transformer_layers[0]
        activation = first._feedforward_intermediate_dense.activation
        return {
            "parameters": in_keras_form.counted(network),
            "vocabulary_rows": gpt2.token_embedding.input_dim,
            "vocabulary_head": "all positions, sharing the token embeddings",
            "gelu": next(name for name, function in GELU.items() if function is activation),
            "norm_epsilon": first.layer_norm_epsilon,
            "attention": in_keras_form.attention_in_words(first.dropout) + ", causal" * network.causal,
            "dropout": [gpt2.embeddings_dropout.rate, first._self_attention_layer.dropout, first.dropout],
            "loss": "mean over all tokens, of each replica",
        }

    def predicted(self, network: Gpt2, batch: dict[str, Any]) -> dict[str, Any]:
        """Compute one sample at a time: the scores of a whole batch would take more memory than training does."""
        samples = ops.split(batch["tokens"], len(batch["tokens"]))
        losses = ops.concatenate([network.losses_of(sample, training=False) for sample in samples])
        return {"loss": losses, "tokens": ops.ones_like(losses)}


FORM = Gpt2InKeras()
