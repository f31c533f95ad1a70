"""BERT pre-training in Paddle: operations of paddle.nn, heads on the masked positions.

The model is ours, because no maintained library for Paddle has a BERT. The names are those of the PyTorch
implementation. Paddle's linear layers keep their weights transposed: [inputs, outputs].
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import paddle
import paddle.nn.functional as F
from paddle import nn
from paddle.distributed.fleet.utils import recompute
from paddle.nn.attention import SDPBackend, sdpa_kernel

from throughline.spec import RunSpec
from throughline.workloads import Values
from throughline.workloads.bert import POSITIONS, SHAPES, Parameters, Shape, padded
from throughline.workloads.in_paddle_form import DRAWN, PaddleForm, dense, on_gpu

EPSILON = 1e-12
"""Epsilon of the layer norms."""
FAR_BELOW = -1e4
"""Added to the scores of padding, so that their softmax is 0. Every precision can represent this number."""
IN_32_BITS = ", in 32 bits with a mask: products and softmax by themselves"


class BertForPretraining(nn.Layer):  # type: ignore[misc]
    """BERT with its heads and its loss. `forward` takes the tensors of `bert.batch`.

    The loss is the mean over masked tokens + the mean over next-sentence labels.
    """

    predictions: int | None = None
    activation_checkpointing = False

    def __init__(self, shape: Shape, vocabulary: int, dropout: float, gpu: bool) -> None:
        super().__init__()
        self.gpu = gpu
        hidden, rows = shape.hidden, padded(vocabulary)
        self.heads, self.dropout = shape.heads, dropout
        sizes = {"word_embeddings": rows, "position_embeddings": POSITIONS, "token_type_embeddings": 2}
        tables = {name: nn.Embedding(size, hidden, weight_attr=DRAWN) for name, size in sizes.items()}
        embeddings = nn.LayerDict({**tables, "LayerNorm": nn.LayerNorm(hidden, EPSILON)})
        layers = nn.LayerList([Layer(hidden, shape.feed_forward, gpu) for _ in range(shape.layers)])
        encoder, pooler = nn.LayerDict({"layer": layers}), nn.LayerDict({"dense": dense(hidden, hidden)})
        self.bert = nn.LayerDict({"embeddings": embeddings, "encoder": encoder, "pooler": pooler})
        self.transform, self.norm = dense(hidden, hidden), nn.LayerNorm(hidden, EPSILON)
        self.bias = self.create_parameter([rows], is_bias=True)
        self.following = dense(hidden, 2)

    def forward(
        self, input_ids: Any, segments: Any, positions: Any, labels: Any, following: Any, mask: Any = None
    ) -> Any:
        scores, order = self.scores(input_ids, segments, positions, mask)
        weights = (positions != 0).flatten().astype("float32")
        losses = F.cross_entropy(scores, labels.flatten(), reduction="none").flatten()
        masked = (losses * weights).sum() / weights.sum().clip(min=1.0)
        return masked + F.cross_entropy(order, following.astype("int32"))

    def scores(self, input_ids: Any, segments: Any, positions: Any, mask: Any) -> tuple[Any, Any]:
        """Return the scores of the vocabulary at the masked positions [B * P, V], and of the next sentence [B, 2]."""
        hidden, (count, length) = self.encode(input_ids, segments, mask), input_ids.shape
        pooled = F.tanh(self.bert["pooler"]["dense"](hidden[:, 0]))
        places = (positions + paddle.arange(count, dtype="int32").unsqueeze(1) * length).flatten()
        chosen = paddle.gather(hidden.flatten(0, 1), places)
        chosen = self.norm(F.gelu(self.transform(chosen)))
        table = self.bert["embeddings"]["word_embeddings"].weight
        return paddle.matmul(chosen, table, transpose_y=True) + self.bias, self.following(pooled)

    def encode(self, input_ids: Any, segments: Any, mask: Any) -> Any:
        """Return the hidden states [B, S, H] of the last layer. `mask` [B, S] is 0 at padding."""
        embeddings, p = self.bert["embeddings"], self.dropout if self.training else 0.0
        kinds = embeddings["token_type_embeddings"](segments.astype("int32"))
        hidden = embeddings["word_embeddings"](input_ids) + kinds
        hidden = embeddings["LayerNorm"](hidden + embeddings["position_embeddings"].weight[: input_ids.shape[1]])
        hidden = F.dropout(hidden, p)
        unseen = None if mask is None else (mask == 0).astype("float32").unsqueeze([1, 2]) * FAR_BELOW
        for layer in self.bert["encoder"]["layer"]:
            if self.activation_checkpointing:  # the backward pass computes a layer's activations again
                hidden = recompute(layer, hidden, unseen, self.heads, p, use_reentrant=False)
            else:
                hidden = layer(hidden, unseen, self.heads, p)
        return hidden


class Layer(nn.Layer):  # type: ignore[misc]
    """One encoder layer: attention, then feed-forward, each followed by residual and norm."""

    def __init__(self, hidden: int, wide: int, gpu: bool) -> None:
        super().__init__()
        self.gpu = gpu
        three = nn.LayerDict({name: dense(hidden, hidden) for name in ("query", "key", "value")})
        self.attention = nn.LayerDict({"self": three, "output": _into(hidden, hidden)})
        self.intermediate = nn.LayerDict({"dense": dense(hidden, wide)})
        self.output = _into(wide, hidden)

    def forward(self, hidden: Any, unseen: Any, heads: int, p: float) -> Any:
        three = (projection(hidden).reshape([0, 0, heads, -1]) for projection in self.attention["self"].values())
        mixed = _attention([*three], unseen, self.gpu, dropout_p=p, training=self.training)
        hidden = _ended(self.attention["output"], mixed.flatten(2), hidden, p)
        return _ended(self.output, F.gelu(self.intermediate["dense"](hidden)), hidden, p)


def _attention(three: list[Any], unseen: Any, gpu: bool, **given: Any) -> Any:
    """Return the mix of the values [B, S, H, D], with a mask as Paddle's kernel for this device and type wants it.

    `three` are query, key and value [B, S, H, D]. `unseen` [B, 1, 1, S] is added to the scores. On GPUs in 16 bits,
    FlashAttention wants a mask of the query's type with a row for every query. In 32 bits, where the memory-efficient
    kernel would read [B, H, S, S], products and softmax are computed by themselves, as on a CPU.
    """
    query, *_ = three
    chosen: Any = nullcontext()
    if gpu and unseen is not None:
        if query.dtype in (paddle.float16, paddle.bfloat16):
            unseen = unseen.astype(query.dtype).expand([-1, -1, query.shape[1], -1])
        else:
            chosen = sdpa_kernel(SDPBackend.MATH)
    with chosen:
        return F.scaled_dot_product_attention(*three, attn_mask=unseen, **given)


def _into(width: int, hidden: int) -> Any:
    """Make the linear layer before a residual connection, and the norm after it."""
    return nn.LayerDict({"dense": dense(width, hidden), "LayerNorm": nn.LayerNorm(hidden, EPSILON)})


def _ended(parts: Any, wide: Any, residual: Any, p: float) -> Any:
    return parts["LayerNorm"](residual + F.dropout(parts["dense"](wide), p))


class BertInPaddle(PaddleForm[Parameters, BertForPretraining]):
    lacks = {"remove_padding": "the implementation in Paddle computes padding as well"}

    def build(self, spec: RunSpec[Parameters], facts: Values, at: Any = None) -> BertForPretraining:
        options = spec.options
        network = BertForPretraining(SHAPES[spec.model], facts["vocabulary"], options.dropout, on_gpu(at))
        network.predictions = spec.parameters.predictions
        network.activation_checkpointing = bool(options.activation_checkpointing)
        return network

    def settings(self, network: BertForPretraining) -> dict[str, Any]:
        table = network.bert["embeddings"]["word_embeddings"].weight
        return {
            "predictions": network.predictions,
            "parameters": sum(parameter.size for parameter in network.parameters()),
            "vocabulary_rows": table.shape[0],
            "vocabulary_head": "masked positions, sharing the word embeddings",
            "gelu": "erf",
            "norm_epsilon": network.norm._epsilon,
            "attention": "Paddle's scaled_dot_product_attention" + IN_32_BITS * network.gpu,
            "dropout": [network.dropout, network.dropout],
            "loss": "mean over masked tokens + mean over next-sentence labels, of each rank",
        }

    def predicted(self, network: BertForPretraining, batch: dict[str, Any]) -> dict[str, Any]:
        given = {name: batch.get(name) for name in ("input_ids", "segments", "positions", "mask")}
        scores, order = network.scores(**given)
        labels, following = batch["labels"].flatten(), batch["following"].astype("int32")
        used = (batch["positions"] != 0).flatten()
        return {
            "mlm_loss": F.cross_entropy(scores, labels, reduction="none").flatten()[used],
            "mlm_right": (scores.argmax(1, dtype="int32") == labels)[used],
            "masked": used,
            "nsp_loss": F.cross_entropy(order, following, reduction="none"),
            "nsp_right": order.argmax(1, dtype="int32") == following,
        }


FORM = BertInPaddle()
