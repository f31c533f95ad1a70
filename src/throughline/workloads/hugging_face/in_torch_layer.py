"""One layer of a decoder in PyTorch, as a function of tensors: attention, then the feed-forward part.

`own` holds the layer's parameters by their names in transformers. Weights are cast to the type of the hidden states
where they are used. Norms, softmax and rotary positions are computed in fp32 at least.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn
from torch.nn.functional import linear, rms_norm, scaled_dot_product_attention

from throughline.workloads.hugging_face import cut
from throughline.workloads.hugging_face.architecture import NORMS, Layer
from throughline.workloads.hugging_face.in_torch_experts import activated, mixed, wide
from throughline.workloads.hugging_face.in_torch_fp8 import product
from throughline.workloads.in_torch_half import Named, by_name
from throughline.workloads.in_torch_tensor_parallel import (
    TensorGroup,
    entered,
    gathered,
    left,
    scattered,
    summed_gradients,
)

Own = dict[str, Tensor]
SIDE_BY_SIDE = (("self_attn.q", "self_attn.k", "self_attn.v"), ("mlp.gate", "mlp.up"))
"""The projections that one product computes."""


def layer(
    hidden: Tensor,
    own: Own | Named,
    angles: Tensor,
    shape: Layer,
    grouped: bool = True,
    ranks: TensorGroup | None = None,
    holders: TensorGroup | None = None,
    documents: Tensor | None = None,
) -> Tensor:
    """Return hidden [B, S, H] after one layer; or, if ranks share it, this rank's rows [B x S / ranks, H].

    angles: cosines and sines [2, S, pairs]. grouped: attention takes fewer heads of keys and values than of queries;
    otherwise they are repeated for it. ranks: they share the layer, and each has some of its heads. holders: they
    share the layer's experts, and each has some of them. documents: those of a sample do not see each other. [B, S]:
    the number of each token's document; or [documents + 1]: where they begin if all samples lie in a row, and where the
    last one ends, for FlashAttention.
    """
    before, after, before_feed, after_feed = NORMS[shape.norms]
    own = by_name(own)
    own = shared(own, shape, ranks) if ranks else own
    branch = attention(_norm(hidden, own, before, shape), own, angles, shape, grouped, ranks, documents)
    hidden = hidden + _norm(branch, own, after, shape)
    branch = feed_forward(_norm(hidden, own, before_feed, shape), own, shape, ranks, holders)
    return hidden + _norm(branch, own, after_feed, shape)


def shared(own: Own, shape: Layer, ranks: TensorGroup) -> Own:
    """Return the parameters of a layer that ranks share. Those that are whole on every rank see only its part of the
    activations, so their gradients are added up. Biases of experts' results are added on every rank: each adds its
    share."""
    whole = [name for name in own if name not in cut.of_layer(shape)]
    own = own | dict(zip(whole, summed_gradients([own[name] for name in whole], ranks), strict=True))
    if (name := "mlp.experts.down_proj_bias") in own:
        own[name] = own[name] / ranks.size
    return own


def normed(hidden: Tensor, gain: Tensor, epsilon: float, plus_one: bool) -> Tensor:
    """Return hidden divided by the root of its mean square, times the gain (Zhang and Sennrich 2019)."""
    inside, gain = wide(hidden), wide(gain)
    return rms_norm(inside, gain.shape, gain + 1 if plus_one else gain, epsilon).to(hidden.dtype)


def _norm(hidden: Tensor, own: Own, name: str | None, shape: Layer) -> Tensor:
    return hidden if name is None else normed(hidden, own[f"{name}.weight"], shape.epsilon, shape.unit_offset)


def projected(hidden: Tensor, own: Own, names: list[str], fp8: str | None) -> Tensor:
    """Return one product of hidden with several matrices side by side, and with their biases if they have some."""
    bias = _together(own, names, "bias", hidden.dtype) if f"{names[0]}_proj.bias" in own else None
    if fp8:
        result = product(hidden, [own[f"{name}_proj.weight"] for name in names], fp8)
        return result if bias is None else result + bias
    return linear(hidden, _together(own, names, "weight", hidden.dtype), bias)


def _together(own: Own, names: list[str], last: str, kind: torch.dtype) -> Tensor:
    """Return the weights or biases of projections in one tensor. A copy in a 16-bit type has them so already, under the
    first name."""
    keys = [f"{name}_proj.{last}" for name in names]
    parts = [own[key].to(kind) for key in keys if key in own]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def attention(
    hidden: Tensor, own: Own, angles: Tensor, shape: Layer, grouped: bool, ranks: TensorGroup | None,
    documents: Tensor | None,
) -> Tensor:  # fmt: skip
    """Causal attention: every position sees itself and the positions before it, or the last ones in its window."""
    names = ["self_attn.qkv"] if shape.packed else list(SIDE_BY_SIDE[0])
    sizes = [shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim, shape.kv_heads * shape.head_dim]
    if ranks:
        hidden = gathered(hidden, ranks).view(-1, angles.shape[1], shape.hidden)
    query, key, value = torch.split(projected(hidden, own, names, shape.fp8), sizes, -1)
    if shape.head_norms == "all":
        pairs = (query, "q"), (key, "k")
        query, key = (_over_all_heads(part, own[f"self_attn.{name}_norm.weight"], shape, ranks) for part, name in pairs)
    query, key, value = (part.view(*part.shape[:-1], -1, shape.head_dim) for part in (query, key, value))
    if shape.head_norms == "each":
        gains = [own[f"self_attn.{name}_norm.weight"] for name in "qk"]
        query, key = (
            normed(part, gain, shape.epsilon, shape.unit_offset) for part, gain in zip((query, key), gains, strict=True)
        )
    query, key, value = (part.transpose(1, 2) for part in (query, key, value))
    query, key = turned(query, angles), turned(key, angles)
    seen = attended(query, key, value, own.get("self_attn.sinks"), shape, grouped, documents)
    return _added(seen.transpose(1, 2).flatten(-2), own, "self_attn.o", shape.fp8, ranks)


def _over_all_heads(part: Tensor, gain: Tensor, shape: Layer, ranks: TensorGroup | None) -> Tensor:
    """The norm of all heads of a position together. Ranks that have some of them exchange the sums of their squares."""
    if ranks is None:
        return normed(part, gain, shape.epsilon, shape.unit_offset)
    inside, length = wide(part), part.shape[-1] * ranks.size
    squares = entered(left(inside.square().sum(-1, keepdim=True), ranks), ranks)
    return (inside * torch.rsqrt(squares / length + shape.epsilon) * wide(gain)).to(part.dtype)


def turned(heads: Tensor, angles: Tensor) -> Tensor:
    """Return heads [B, heads, S, width] with rotary positions: dimension i and i + pairs are turned together."""
    cosines, sines = angles.unbind()
    pairs = cosines.shape[-1]
    first, second = heads[..., :pairs], heads[..., pairs : 2 * pairs]
    parts = [first * cosines - second * sines, second * cosines + first * sines]
    turned_ones = torch.cat(parts, -1).to(heads.dtype)
    return turned_ones if heads.shape[-1] == 2 * pairs else torch.cat([turned_ones, heads[..., 2 * pairs :]], -1)


def attended(
    query: Tensor, key: Tensor, value: Tensor, sinks: Tensor | None, shape: Layer, grouped: bool,
    documents: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Return the attention [B, heads, S, width]. A soft cap and sinks are in no kernel of PyTorch, so such scores are
    computed by single products."""
    if shape.softcap is not None or sinks is not None:
        return by_products(query, key, value, sinks, shape, documents)
    if documents is not None and documents.ndim == 1:
        return in_a_row(query, key, value, shape, documents)
    if not grouped:
        times = shape.heads // shape.kv_heads
        key, value = (part.repeat_interleave(times, 1) for part in (key, value))
    mask = None if shape.window is None and documents is None else visible(query, shape.window, documents)
    causal, several = mask is None, grouped and shape.heads != shape.kv_heads
    return scaled_dot_product_attention(
        query, key, value, mask, is_causal=causal, scale=shape.scale, enable_gqa=several
    )


def in_a_row(query: Tensor, key: Tensor, value: Tensor, shape: Layer, bounds: Tensor) -> Tensor:
    """Return what FlashAttention computes within documents that lie between `bounds`, whatever their number."""
    longest, before = query.shape[2], -1 if shape.window is None else shape.window - 1
    rows = [part.transpose(1, 2).flatten(0, 1) for part in (query, key, value)]
    kernel: Any = varlen_attn
    several = shape.heads != shape.kv_heads
    seen: Tensor = kernel(
        *rows, bounds, bounds, longest, longest, scale=shape.scale, window_size=(before, 0), enable_gqa=several
    )
    return seen.view(len(query), longest, *seen.shape[1:]).transpose(1, 2)


def visible(query: Tensor, window: int | None, documents: Tensor | None = None) -> Tensor:
    """Return which positions each position sees: [S, S], or [B, 1, S, S] with documents [B, S]."""
    places = torch.arange(query.shape[-2], device=query.device)
    back = places[:, None] - places
    seen = (back >= 0) & (back < window) if window else back >= 0
    return seen if documents is None else seen & (documents[:, None, :, None] == documents[:, None, None])


def by_products(
    query: Tensor, key: Tensor, value: Tensor, sinks: Tensor | None, shape: Layer, documents: Tensor | None = None
) -> Tensor:
    grouped = query.view(len(query), shape.kv_heads, -1, *query.shape[2:])
    scores = wide(grouped @ key[:, :, None].transpose(-1, -2)) * shape.scale
    if shape.softcap is not None:
        scores = shape.softcap * torch.tanh(scores / shape.softcap)
    seen = visible(query, shape.window, documents)
    scores = scores.masked_fill(~(seen if documents is None else seen[:, None]), float("-inf"))
    if sinks is not None:
        last = sinks.to(scores.dtype).view(1, shape.kv_heads, -1, 1, 1).expand(*scores.shape[:-1], 1)
        scores = torch.cat([scores, last], -1)
    shares = scores.softmax(-1).to(query.dtype)
    if sinks is not None:
        shares = shares[..., :-1]
    return (shares @ value[:, :, None]).flatten(1, 2)


def feed_forward(
    hidden: Tensor, own: Own, shape: Layer, ranks: TensorGroup | None, holders: TensorGroup | None
) -> Tensor:
    if ranks:
        hidden = gathered(hidden, ranks)
    if shape.experts:
        total = mixed(hidden.flatten(0, -2), own, shape, shape.experts, holders)
        return scattered(total, ranks) if ranks else total.view_as(hidden)
    names = ["mlp.gate_up"] if shape.packed else list(SIDE_BY_SIDE[1])
    both = projected(hidden, own, names, shape.fp8)
    gate, up = both.chunk(2, -1)
    return _added(activated(gate, shape.activation) * up, own, "mlp.down", shape.fp8, ranks)


def _added(part: Tensor, own: Own, name: str, fp8: str | None, ranks: TensorGroup | None) -> Tensor:
    """Return the product with a matrix whose result is added to the residual. Ranks add up their parts of it, and each
    keeps its rows."""
    matrix = own[f"{name}_proj.weight"]
    whole = product(part, [matrix], fp8) if fp8 else linear(part, matrix.to(part.dtype))
    whole = scattered(whole.flatten(0, -2), ranks) if ranks else whole
    bias = own.get(f"{name}_proj.bias")
    return whole if bias is None else whole + bias.to(part.dtype)
