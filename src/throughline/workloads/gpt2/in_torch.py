"""GPT-2 pre-training in PyTorch: the published architecture, the order of operations ours.

The forward pass is a few functions of tensors, so that a compiler sees each of them whole and compiles a layer once for
all layers. A test holds it against Hugging Face's own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, gelu, linear
from torch.utils.checkpoint import checkpoint

from throughline import workloads
from throughline.workloads.gpt2 import SHAPES, Parameters, Shape, padded
from throughline.workloads.gpt2.in_torch_parameters import EPSILON, parts, states
from throughline.workloads.in_torch_operations import (
    MEAN,
    SHARED,
    attended,
    dropped,
    load,
    normed,
    pin_attention,
    versions,
    weights,
)

__all__ = ["CHANGING", "LACKS", "blocks", "build", "load", "settings", "sums", "versions", "weights"]

LACKS = {"unpadded": "GPT-2's samples have no padding that could be left out"}
CHANGING: frozenset[str] = frozenset()


def build(spec: dict[str, Any], facts: dict[str, Any], at: torch.device | None = None) -> Gpt2:
    """The network that a run specification asks for, with random weights; `at` is where this process trains it."""
    given, options = workloads.parameters(spec), spec["options"]
    network = Gpt2(SHAPES[spec["model"]], facts["vocabulary"], given, options["dropout"], options["checkpointing"])
    if at:
        network.attention = pin_attention(at.type, spec["precision"], options["dropout"], masked=False)
    return network


def blocks(network: Gpt2) -> list[nn.Module]:
    """The layers. Each is called, and reads its parameters then; all other parameters are the network's own."""
    return list(network.layers.children())


def settings(network: Gpt2) -> dict[str, Any]:
    """What the network is, as built, in the words of `SETTINGS`."""
    return {
        "parameters": sum(parameter.numel() for parameter in network.parameters()),
        "vocabulary_rows": network.tokens.num_embeddings,
        "vocabulary_head": "all positions, sharing the token embeddings",
        "gelu": network.gelu,
        "norm_epsilon": EPSILON,
        "attention": network.attention,
        "dropout": [network.dropout] * 3,
        "loss": "mean over all tokens, of each replica",
    }


@torch.no_grad()
def sums(network: Gpt2, batch: dict[str, Tensor]) -> dict[str, float]:
    """The loss over a delivered batch (what `gpt2.batch` returns), summed over its tokens, without dropout.

    Through the plain forward pass, in the weights' precision: it shares the weights with the training step, and none
    of its code. One sample at a time: scores of a whole batch would take more memory than training does.
    """
    ids, total = batch["tokens"].long(), 0.0
    for one in torch.split(ids, 1):
        hidden = states(network, one[:, :-1])
        scores = linear(hidden[0], network.tokens.weight)
        total += float(cross_entropy(scores, one[0, 1:], reduction="sum").double())
    return {"loss": total, "tokens": float(ids[:, 1:].numel()), "samples": float(len(ids))}


class Gpt2(nn.Module):
    """`forward` takes the tensors of `gpt2.batch`, and returns the loss: the mean over all tokens.

    With `half_type`, weights stay as they are and are cast where they are used; matrix products, attention and the
    activations between them are of that type, norms and losses are computed in the weights' own.
    """

    half_type: torch.dtype | None = None
    attention: str | None = None
    """The kernel that this process is pinned to; None where it is left to PyTorch."""
    tokens: nn.Embedding
    positions: nn.Embedding
    layers: nn.ModuleList
    norm: nn.LayerNorm

    def __init__(self, shape: Shape, vocabulary: int, given: Parameters, dropout: float, checkpointing: bool) -> None:
        super().__init__()
        for name, module in parts(shape, padded(vocabulary), given).items():
            self.add_module(name, module)
        self.gelu, self.dropout, self.checkpointing = given.gelu, dropout, checkpointing
        self.parts: tuple[Callable[..., Tensor], ...] = (embedded, layer, loss)

    def compile_parts(self, dynamic: bool) -> None:
        """Compile embeddings, layer and loss, each by itself: a layer's code is made once and serves them all."""
        self.parts = tuple(torch.compile(part, dynamic=None if dynamic else False) for part in self.parts)

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens [B, S + 1]: the last is a label alone."""
        ids, p = tokens.long(), self.dropout if self.training else 0.0
        table: Tensor = self.tokens.weight
        rows, table = SHARED(table, ids[:, :-1], self.half_type or table.dtype)
        one_layer = self.parts[1]
        if self.checkpointing:  # the backward pass computes a layer's activations again
            one_layer = partial(checkpoint, one_layer, use_reentrant=False)
        hidden = self.parts[0](rows, self.positions.weight, p, table.dtype)
        for block in self.layers:
            hidden = block(hidden, one_layer, p)
        return self.parts[2](hidden, ids[:, 1:], table, *self.norm.parameters())


def embedded(rows: Tensor, positions: Tensor, p: float, half: torch.dtype) -> Tensor:
    """Token and position embeddings [B, S, H]."""
    return dropped((rows + positions[: rows.shape[1]]).to(half), p)


def layer(hidden: Tensor, own: list[Tensor], heads: int, gelu: str, p: float) -> Tensor:
    """One layer over hidden [B, S, H], with a block's parameters in their order: attention, then feed-forward."""
    return feed_forward(attention(hidden, own[:10], heads, p), own[10:], gelu, p)


def attention(hidden: Tensor, own: list[Tensor], heads: int, p: float) -> Tensor:
    """Every position mixes in what it sees, itself and those before it."""
    norm, norm_bias, query, query_bias, key, key_bias, value, value_bias, mix, mix_bias = own
    kind = hidden.dtype
    packed = torch.cat([query.to(kind), key.to(kind), value.to(kind)])
    packed_bias = torch.cat([query_bias, key_bias, value_bias]).to(kind)
    three = linear(normed(hidden, norm, norm_bias, EPSILON), packed, packed_bias)
    queries, keys, values = torch.unbind(three.view(*hidden.shape[:-1], 3, heads, -1).permute(2, 0, 3, 1, 4))
    mixed = attended(queries, keys, values, None, p, causal=True).transpose(1, 2).flatten(-2)
    return hidden + dropped(linear(mixed, mix.to(kind), mix_bias.to(kind)), p)


def feed_forward(hidden: Tensor, own: list[Tensor], approximate: str, p: float) -> Tensor:
    norm, norm_bias, up, up_bias, down, down_bias = own
    kind = hidden.dtype
    wide = linear(normed(hidden, norm, norm_bias, EPSILON), up.to(kind), up_bias.to(kind))
    return hidden + dropped(linear(gelu(wide, approximate=approximate), down.to(kind), down_bias.to(kind)), p)


def loss(hidden: Tensor, labels: Tensor, table: Tensor, norm: Tensor, norm_bias: Tensor) -> Tensor:
    """The mean cross entropy of the next tokens, labels [B, S], in the weights' own type."""
    scores = linear(normed(hidden, norm, norm_bias, EPSILON).flatten(0, 1), table)
    if hidden.device.type == "cpu" and not torch.compiler.is_compiling():
        return MEAN(scores, labels.flatten(), norm.new_ones(len(scores)))
    return cross_entropy(scores.to(norm.dtype), labels.flatten())
