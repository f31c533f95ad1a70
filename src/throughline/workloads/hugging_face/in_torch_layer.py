"""One layer of a decoder in PyTorch: attention, then the feed-forward part, added to the residual.

Parameters have the names that they have in transformers. Norms, softmax and rotary positions are computed in fp32 at
least; products have the type of the hidden states.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask
from torch.nn.attention.varlen import varlen_attn
from torch.nn.functional import linear, rms_norm, scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from throughline.workloads.hugging_face import in_torch_flex
from throughline.workloads.hugging_face.architecture import NORMS, Layer
from throughline.workloads.hugging_face.in_torch_experts import Mixture, activated, wide
from throughline.workloads.hugging_face.in_torch_fp8 import product
from throughline.workloads.in_torch_tensor_parallel import TensorGroup, copied, gathered, reduced, scattered

ATEN = torch.ops.aten
KEPT = [
    ATEN.mm.default, ATEN.addmm.default, ATEN._scaled_mm.default, ATEN._grouped_mm.default,
    torch.ops.throughline.grouped.default,
    ATEN._scaled_dot_product_flash_attention.default,
    ATEN._scaled_dot_product_efficient_attention.default, ATEN._scaled_dot_product_cudnn_attention.default,
    ATEN._scaled_dot_product_flash_attention_for_cpu.default, torch.ops.torch_attn._varlen_attn.default,
]  # fmt: skip
"""What `activation_checkpointing: selective` keeps of a layer: products with weights, and attention."""


class Norm(nn.Module):
    """Divide by the root of the mean square, and multiply by a gain (Zhang and Sennrich 2019).

    ranks: those that share the replica. Each has some rows of the states; or, with `over_ranks`, some of their columns.
    """

    ranks: TensorGroup | None = None

    def __init__(self, size: int, layer: Layer, over_ranks: bool = False) -> None:
        super().__init__()
        self.epsilon, self.unit_offset, self.over_ranks = layer.epsilon, layer.unit_offset, over_ranks
        self.weight = nn.Parameter(torch.empty(size))

    def forward(self, hidden: Tensor) -> Tensor:
        inside, ranks = wide(hidden), self.ranks
        if ranks and self.over_ranks:
            squares = copied(reduced(inside.square().sum(-1, keepdim=True), ranks), ranks)
            scale = torch.rsqrt(squares / (inside.shape[-1] * ranks.size) + self.epsilon)
            return (inside * scale * wide(self.weight)).to(hidden.dtype)
        gain = wide(copied(self.weight, ranks))
        return rms_norm(inside, gain.shape, gain + 1 if self.unit_offset else gain, self.epsilon).to(hidden.dtype)


class Output(nn.Linear):
    """The product whose result is added to the residual. Ranks add up their parts of it, and each keeps its rows."""

    ranks: TensorGroup | None = None

    def __init__(self, inputs: int, layer: Layer, name: str) -> None:
        super().__init__(inputs, layer.hidden, name in layer.biased)
        self.fp8 = layer.fp8

    def forward(self, part: Tensor) -> Tensor:
        whole = product(part, [self.weight], self.fp8) if self.fp8 else linear(part, self.weight)
        if self.ranks:
            whole = scattered(whole.flatten(0, -2), self.ranks)
        return whole if self.bias is None else whole + copied(self.bias, self.ranks).to(whole.dtype)


class Projections(nn.Module):
    """Linear layers of hidden states, by the names and widths of their results, which are computed as one product."""

    ranks: TensorGroup | None = None

    def __init__(self, layer: Layer, widths: dict[str, int]) -> None:
        super().__init__()
        self.layer, self.names = layer, [f"{name}_proj" for name in widths]
        for name, width in widths.items():
            self.add_module(f"{name}_proj", nn.Linear(layer.hidden, width, name in layer.biased))

    def projected(self, hidden: Tensor) -> Tensor:
        """Return the results side by side."""
        layers: list[Any] = [self.get_submodule(name) for name in self.names]
        biases = [layer.bias.to(hidden.dtype) for layer in layers if layer.bias is not None]
        bias = torch.cat(biases) if biases else None
        if self.layer.fp8:
            result = product(hidden, [layer.weight for layer in layers], self.layer.fp8)
            return result if bias is None else result + bias
        weights = [layer.weight.to(hidden.dtype) for layer in layers]
        return linear(hidden, weights[0] if len(weights) == 1 else torch.cat(weights), bias)


class Attention(Projections):
    """Causal attention: every position sees itself and the positions before it, or the last ones in its window.

    grouped: its kernel takes fewer heads of keys and values than of queries; otherwise they are repeated for it.
    """

    grouped = True

    def __init__(self, layer: Layer) -> None:
        query, key = layer.query_width, layer.key_width
        super().__init__(layer, {"qkv": query + 2 * key} if layer.packed else {"q": query, "k": key, "v": key})
        if layer.sinks:
            self.sinks = nn.Parameter(torch.empty(layer.heads))
        self.o_proj = Output(query, layer, "o")
        if layer.head_norms != "none":
            over_all = layer.head_norms == "all"
            self.q_norm = Norm(query if over_all else layer.head_dim, layer, over_all)
            self.k_norm = Norm(key if over_all else layer.head_dim, layer, over_all)

    def forward(self, hidden: Tensor, angles: Tensor, documents: Tensor | BlockMask | None) -> Tensor:
        layer = self.layer
        if self.ranks:
            hidden = gathered(hidden, self.ranks).view(-1, angles.shape[1], layer.hidden)
        both = self.projected(hidden)
        share = both.shape[-1] // (layer.heads + 2 * layer.kv_heads)  # the width of a head, or of a rank's part of it
        query, key, value = torch.split(both, [share * n for n in (layer.heads, layer.kv_heads, layer.kv_heads)], -1)
        if layer.head_norms == "all":
            query, key = self.q_norm(query), self.k_norm(key)
        query, key, value = (part.view(*part.shape[:-1], -1, layer.head_dim) for part in (query, key, value))
        if layer.head_norms == "each":
            query, key = self.q_norm(query), self.k_norm(key)
        query, key, value = (part.transpose(1, 2) for part in (query, key, value))
        query, key = rotated(query, angles), rotated(key, angles)
        mixed = attended(query, key, value, self.sinks if layer.sinks else None, layer, self.grouped, documents)
        result: Tensor = self.o_proj(mixed.transpose(1, 2).flatten(-2))
        return result


class FeedForward(Projections):
    def __init__(self, layer: Layer) -> None:
        inner = layer.intermediate
        super().__init__(layer, {"gate_up": 2 * inner} if layer.packed else {"gate": inner, "up": inner})
        self.down_proj = Output(inner, layer, "down")

    def forward(self, hidden: Tensor) -> Tensor:
        gate, up = self.projected(gathered(hidden, self.ranks) if self.ranks else hidden).chunk(2, -1)
        result: Tensor = self.down_proj(activated(gate, self.layer.activation) * up)
        return result


class Block(nn.Module):
    """A layer of states [B, S, H]. If ranks share a replica, each has its rows [B x S / ranks, H] of the states.

    angles: cosines and sines [2, S, pairs]. documents: the number of each token's document [B, S]; or, for
    FlashAttention over samples in a row, where documents begin and the last one ends [documents + 1]; or the mask of
    FlexAttention, with the layer's window. selective: products and attention are kept for the backward pass.
    """

    def __init__(self, layer: Layer, selective: bool) -> None:
        super().__init__()
        self.layer, self.selective = layer, selective
        self.self_attn = Attention(layer)
        self.mlp = Mixture(layer, layer.experts) if layer.experts else FeedForward(layer)
        for name in filter(None, NORMS[layer.norms]):
            self.add_module(name, Norm(layer.hidden, layer))

    def forward(self, hidden: Tensor, angles: Tensor, documents: Tensor | BlockMask | None = None) -> Tensor:
        if not self.selective:
            return self.computed(hidden, angles, documents)
        result: Tensor = checkpoint(
            self.computed, hidden, angles, documents, use_reentrant=False, context_fn=_keep_products
        )
        return result

    def computed(self, hidden: Tensor, angles: Tensor, documents: Tensor | BlockMask | None) -> Tensor:
        before, after, before_feed, after_feed = NORMS[self.layer.norms]
        branch = self.self_attn(self.normed(before, hidden), angles, documents)
        hidden = hidden + self.normed(after, branch)
        branch = self.mlp(self.normed(before_feed, hidden))
        return hidden + self.normed(after_feed, branch)

    def normed(self, name: str | None, hidden: Tensor) -> Tensor:
        result: Tensor = self.get_submodule(name)(hidden) if name else hidden
        return result


def _keep_products() -> Any:
    return create_selective_checkpoint_contexts(KEPT)  # type: ignore[no-untyped-call]


def rotated(heads: Tensor, angles: Tensor) -> Tensor:
    """Return heads [B, heads, S, width] with rotary positions: dimension i and i + pairs are turned together."""
    cosines, sines = angles.unbind()
    pairs = cosines.shape[-1]
    first, second = heads[..., :pairs], heads[..., pairs : 2 * pairs]
    turned = torch.cat([first * cosines - second * sines, second * cosines + first * sines], -1).to(heads.dtype)
    return turned if heads.shape[-1] == 2 * pairs else torch.cat([turned, heads[..., 2 * pairs :]], -1)


def attended(
    query: Tensor, key: Tensor, value: Tensor, sinks: Tensor | None, layer: Layer, grouped: bool,
    documents: Tensor | BlockMask | None = None,
) -> Tensor:  # fmt: skip
    """Return the attention [B, heads, S, width]. A soft cap and sinks are in no kernel of PyTorch but FlexAttention, so
    such scores are computed by single products."""
    if isinstance(documents, BlockMask):
        return in_torch_flex.attended(query, key, value, sinks, layer, documents)
    if layer.softcap is not None or sinks is not None:
        return by_products(query, key, value, sinks, layer, documents)
    if documents is not None and documents.ndim == 1:
        return in_a_row(query, key, value, layer, documents)
    if not grouped:
        times = layer.heads // layer.kv_heads
        key, value = (part.repeat_interleave(times, 1) for part in (key, value))
    mask = None if layer.window is None and documents is None else visible(query, layer.window, documents)
    causal, several = mask is None, grouped and layer.heads != layer.kv_heads
    return scaled_dot_product_attention(
        query, key, value, mask, is_causal=causal, scale=layer.scale, enable_gqa=several
    )


def in_a_row(query: Tensor, key: Tensor, value: Tensor, layer: Layer, bounds: Tensor) -> Tensor:
    """Return what FlashAttention computes within documents that lie between `bounds`, whatever their number."""
    longest, before = query.shape[2], -1 if layer.window is None else layer.window - 1
    rows = [part.transpose(1, 2).flatten(0, 1) for part in (query, key, value)]
    kernel: Any = varlen_attn
    several = layer.heads != layer.kv_heads
    seen: Tensor = kernel(
        *rows, bounds, bounds, longest, longest, scale=layer.scale, window_size=(before, 0), enable_gqa=several
    )
    return seen.view(len(query), longest, *seen.shape[1:]).transpose(1, 2)


def visible(query: Tensor, window: int | None, documents: Tensor | None = None) -> Tensor:
    """Return which positions each position sees: [S, S], or [B, 1, S, S] with documents [B, S]."""
    places = torch.arange(query.shape[-2], device=query.device)
    back = places[:, None] - places
    seen = (back >= 0) & (back < window) if window else back >= 0
    return seen if documents is None else seen & (documents[:, None, :, None] == documents[:, None, None])


def by_products(
    query: Tensor, key: Tensor, value: Tensor, sinks: Tensor | None, layer: Layer, documents: Tensor | None = None
) -> Tensor:
    grouped = query.view(len(query), key.shape[1], -1, *query.shape[2:])
    scores = wide(grouped @ key[:, :, None].transpose(-1, -2)) * layer.scale
    if layer.softcap is not None:
        scores = layer.softcap * torch.tanh(scores / layer.softcap)
    seen = visible(query, layer.window, documents)
    scores = scores.masked_fill(~(seen if documents is None else seen[:, None]), float("-inf"))
    if sinks is not None:
        last = sinks.to(scores.dtype).view(1, key.shape[1], -1, 1, 1).expand(*scores.shape[:-1], 1)
        scores = torch.cat([scores, last], -1)
    shares = scores.softmax(-1).to(query.dtype)
    if sinks is not None:
        shares = shares[..., :-1]
    return (shares @ value[:, :, None]).flatten(1, 2)
