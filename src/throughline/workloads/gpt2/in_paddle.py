"""GPT-2 pre-training in Paddle: operations of paddle.nn, the vocabulary head on all positions.

The model is ours, like BERT in Paddle. The names are those of the PyTorch implementation. Paddle's linear layers keep
their weights transposed: [inputs, outputs].
"""

from __future__ import annotations

from typing import Any

import paddle
import paddle.nn.functional as F
from paddle import nn
from paddle.distributed.fleet.utils import recompute

from throughline.spec import RunSpec
from throughline.workloads import Values
from throughline.workloads.gpt2 import POSITIONS, SHAPES, Parameters, Shape, padded
from throughline.workloads.in_paddle_form import DRAWN, PaddleForm, dense

EPSILON = 1e-5
"""Epsilon of the layer norms."""


class Gpt2(nn.Layer):  # type: ignore[misc]
    """GPT-2 with its head and its loss. `forward` takes the tensors of `gpt2.batch` and returns the mean over all
    tokens."""

    def __init__(
        self, shape: Shape, vocabulary: int, given: Parameters, dropout: float, activation_checkpointing: bool
    ) -> None:
        super().__init__()
        self.gelu, self.dropout, self.activation_checkpointing = given.gelu, dropout, activation_checkpointing
        hidden, rows = shape.hidden, max(POSITIONS, given.sequence_length)
        residual = given.residual_deviation(shape.layers)
        self.tokens = nn.Embedding(padded(vocabulary), hidden, weight_attr=DRAWN)
        self.positions = nn.Embedding(rows, hidden, weight_attr=nn.initializer.Normal(std=given.position_init))
        self.layers = nn.LayerList([Block(shape, given.gelu, residual) for _ in range(shape.layers)])
        self.norm = nn.LayerNorm(hidden, EPSILON)

    def forward(self, tokens: Any) -> Any:
        """Return the loss. The last of the tokens [B, S + 1] is only a label."""
        return F.cross_entropy(self.scores(tokens[:, :-1]), tokens[:, 1:].flatten())

    def scores(self, ids: Any) -> Any:
        """Return the scores of the vocabulary for every next token [B * S, V]."""
        p = self.dropout if self.training else 0.0
        hidden = F.dropout(self.tokens(ids) + self.positions.weight[: ids.shape[1]], p)
        for block in self.layers:
            if self.activation_checkpointing:  # the backward pass computes a layer's activations again
                hidden = recompute(block, hidden, p, use_reentrant=False)
            else:
                hidden = block(hidden, p)
        return paddle.matmul(self.norm(hidden).flatten(0, 1), self.tokens.weight, transpose_y=True)


class Block(nn.Layer):  # type: ignore[misc]
    """One layer: attention, then feed-forward. Each comes after a norm and is added to the residual."""

    def __init__(self, shape: Shape, gelu: str, residual: float) -> None:
        super().__init__()
        hidden, self.heads, self.approximate = shape.hidden, shape.heads, gelu == "tanh"
        self.attention_norm = nn.LayerNorm(hidden, EPSILON)
        self.query, self.key, self.value = (dense(hidden, hidden) for _ in range(3))
        self.mix = dense(hidden, hidden, residual)
        self.feed_norm = nn.LayerNorm(hidden, EPSILON)
        self.up, self.down = dense(hidden, 4 * hidden), dense(4 * hidden, hidden, residual)

    def forward(self, hidden: Any, p: float) -> Any:
        normed = self.attention_norm(hidden)
        projections = self.query, self.key, self.value
        three = (projection(normed).reshape([0, 0, self.heads, -1]) for projection in projections)
        mixed = F.scaled_dot_product_attention(*three, dropout_p=p, is_causal=True, training=self.training)
        hidden = hidden + F.dropout(self.mix(mixed.flatten(2)), p)
        wide = F.gelu(self.up(self.feed_norm(hidden)), approximate=self.approximate)
        return hidden + F.dropout(self.down(wide), p)


class Gpt2InPaddle(PaddleForm[Parameters, Gpt2]):
    lacks = {"tensor_parallel": "the implementation in Paddle holds the whole model on each device"}

    def build(self, spec: RunSpec[Parameters], facts: Values, at: Any = None) -> Gpt2:
        given, options = spec.parameters, spec.options
        recomputes = bool(options.activation_checkpointing)
        return Gpt2(SHAPES[spec.model], facts["vocabulary"], given, options.dropout, recomputes)

    def settings(self, network: Gpt2) -> dict[str, Any]:
        return {
            "parameters": sum(parameter.size for parameter in network.parameters()),
            "vocabulary_rows": network.tokens.weight.shape[0],
            "vocabulary_head": "all positions, sharing the token embeddings",
            "gelu": network.gelu,
            "norm_epsilon": network.norm._epsilon,
            "attention": "Paddle's scaled_dot_product_attention",
            "dropout": [network.dropout] * 3,
            "loss": "mean over all tokens, of each replica",
        }

    def predicted(self, network: Gpt2, batch: dict[str, Any]) -> dict[str, Any]:
        """Compute one sample at a time: the scores of a whole batch would take more memory than training does."""
        losses = [
            F.cross_entropy(network.scores(sample[:, :-1]), sample[:, 1:].flatten(), reduction="none")
            for sample in batch["tokens"].split(len(batch["tokens"]))
        ]
        return {"loss": paddle.concat(losses), "tokens": paddle.ones_like(paddle.concat(losses))}


FORM = Gpt2InPaddle()
