"""BERT's parameters in PyTorch, and a plain forward pass through them.

Names, shapes, order and random values are those of Hugging Face's `BertModel`. So weights fit both, and a seed gives
both the same weights. Tests compare the two. This file does not import transformers, because that takes longer than
importing PyTorch.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

from throughline.workloads.bert import POSITIONS, Shape
from throughline.workloads.in_torch_half import HalfCopy, Halved
from throughline.workloads.in_torch_operations import plain_attention

EPSILON = 1e-12
"""Epsilon of the layer norms."""


def encoder(shape: Shape, vocabulary: int) -> Any:
    """Make embeddings, layers and pooler, with random weights."""
    hidden = shape.hidden
    embeddings = _parts(
        word_embeddings=nn.Embedding(vocabulary, hidden),
        position_embeddings=nn.Embedding(POSITIONS, hidden),
        token_type_embeddings=nn.Embedding(2, hidden),
        LayerNorm=nn.LayerNorm(hidden, eps=EPSILON),
    )
    layers = nn.ModuleList(_layer(hidden, shape.feed_forward) for _ in range(shape.layers))
    whole = _parts(embeddings=embeddings, encoder=_parts(layer=layers), pooler=_parts(dense=nn.Linear(hidden, hidden)))
    draw(whole)
    with torch.no_grad():
        embeddings.word_embeddings.weight[0] = 0.0  # [PAD]
    return whole


def draw(network: nn.Module) -> None:
    """Draw new weights for all linear layers and embeddings, in their order. They replace those that PyTorch drew."""
    for module in network.modules():
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)


def _layer(hidden: int, wide: int) -> Any:
    """Make one encoder layer."""
    three = {name: nn.Linear(hidden, hidden) for name in ("query", "key", "value")}
    attention = {"self": _parts(**three), "output": _into(hidden, hidden)}
    parts = {"attention": _parts(**attention), "intermediate": _parts(dense=nn.Linear(hidden, wide))}
    return Layer({**parts, "output": _into(wide, hidden)})


class Layer(nn.ModuleDict):
    """The parameters of one layer. A call reads them, so ranks that split them can gather them just before the call."""

    halved: Halved | None = None
    """The parameters with their copies in a 16-bit type, if there are such copies."""

    def forward(self, hidden: Tensor, layer: Callable[..., Tensor], *given: Any) -> Tensor:
        return layer(hidden, self.halved or self.weights(), *given)

    def halve(self, copy: HalfCopy) -> None:
        """Keep copies of what the matrix products take: three projections in one, and what follows them."""
        self.halved = copy.of(self.weights(), ((0, 2, 4), (1, 3, 5), (6,), (7,), (10,), (11,), (12,), (13,)))

    def weights(self) -> list[Tensor]:
        """Return the parameters, in the order in which `in_torch.layer` unpacks them."""
        layer: Any = self
        attention, three = layer.attention, layer.attention.self
        parts = [three.query, three.key, three.value, attention.output.dense, attention.output.LayerNorm]
        parts += [layer.intermediate.dense, layer.output.dense, layer.output.LayerNorm]
        return [tensor for part in parts for tensor in (part.weight, part.bias)]


def _into(width: int, hidden: int) -> Any:
    """Make the linear layer before a residual connection, and the norm after it."""
    return _parts(dense=nn.Linear(width, hidden), LayerNorm=nn.LayerNorm(hidden, eps=EPSILON))


def _parts(**modules: nn.Module) -> Any:
    """Make a module with these modules as its attributes."""
    return nn.ModuleDict(modules)


def states(bert: Any, heads: int, ids: Tensor, segments: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the hidden states [B, S, H] of the last layer, and the pooled states [B, H] of the first positions.

    ids, segments, mask [B, S]. There is no dropout, and the weights' type is used. This pass calls one module after the
    other and shares no code with the training step.
    """
    embeddings = bert.embeddings
    hidden = embeddings.word_embeddings(ids) + embeddings.token_type_embeddings(segments)
    hidden = embeddings.LayerNorm(hidden + embeddings.position_embeddings.weight[: ids.shape[1]])
    seen = None if mask is None else mask[:, None, None].bool()
    for layer in bert.encoder.layer:
        attention = layer.attention
        mixed = plain_attention(attention.self.children(), hidden, heads, attn_mask=seen)
        hidden = attention.output.LayerNorm(attention.output.dense(mixed) + hidden)
        wide = gelu(layer.intermediate.dense(hidden))
        hidden = layer.output.LayerNorm(layer.output.dense(wide) + hidden)
    return hidden, torch.tanh(bert.pooler.dense(hidden[:, 0]))
