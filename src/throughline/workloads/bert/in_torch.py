"""BERT pre-training in PyTorch: Hugging Face's parameters, our own operations, and heads on the masked positions.

The forward pass is a few functions of tensors. So a compiler sees each function as a whole, and compiles one layer for
all layers. A test compares the forward pass with Hugging Face's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, embedding, gelu, layer_norm, linear
from torch.utils.checkpoint import checkpoint

from throughline.spec import RunSpec
from throughline.workloads import Values
from throughline.workloads.bert import POSITIONS, SHAPES, Parameters, Shape, padded
from throughline.workloads.bert.in_torch_parameters import EPSILON, draw, encoder, states
from throughline.workloads.in_torch_attention import Asked, Attention, pin
from throughline.workloads.in_torch_form import InParts, TorchForm
from throughline.workloads.in_torch_half import HalfCopy, Halved, used
from throughline.workloads.in_torch_operations import MEAN, SHARED, attended, dropped, normed


class BertForPretraining(InParts):
    """BERT with its heads and its loss. `forward` takes the tensors of `bert.batch` or `bert.without_padding`.

    The loss is the mean over masked tokens + the mean over next-sentence labels. With `half_type`, the weights keep
    their type and are cast where they are used. Matrix products, attention and the activations between them have the
    16-bit type; norms and losses are computed in the weights' type.
    """

    longest = POSITIONS
    predictions: int | None = None
    """The most tokens, and the most masked tokens, that a sample has."""
    attention: Attention | None = None
    """The kernel of attention to which this process is pinned. None: PyTorch chooses."""
    halved: Halved | None = None
    halved_words: Halved | None = None
    """The parameters of the heads, and the table of words, with their copies in a 16-bit type, if there are such."""

    def __init__(self, shape: Shape, vocabulary: int, dropout: float, activation_checkpointing: bool) -> None:
        super().__init__()
        self.bert = encoder(shape, padded(vocabulary))
        self.heads, self.dropout, self.activation_checkpointing = shape.heads, dropout, activation_checkpointing
        self.transform = nn.Linear(shape.hidden, shape.hidden)
        self.norm = nn.LayerNorm(shape.hidden, eps=EPSILON)
        self.bias = nn.Parameter(torch.zeros(padded(vocabulary)))
        self.following = nn.Linear(shape.hidden, 2)
        draw(self.transform)
        draw(self.following)
        self.parts = (embedded, layer, losses)

    def forward(self, input_ids: Tensor, segments: Tensor, **batch: Tensor) -> Tensor:
        lengths = batch.get("lengths")
        bounds = torch.arange(0, input_ids.numel() + 1, input_ids.shape[-1], device=input_ids.device)
        if lengths is not None:
            bounds = nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
        hidden, table = self.encode(input_ids, segments, batch.get("mask"), None if lengths is None else bounds)
        if lengths is not None:
            self.of_any_length(hidden)
        positions, labels, following = batch["positions"], batch["labels"], batch["following"]
        own = self.halved or self.heads_own()
        return self.parts[2](hidden.flatten(0, -2), bounds[:-1], positions, labels, following, table, own)

    def heads_own(self) -> list[Tensor]:
        """Return the parameters of the heads, in the order in which `losses` unpacks them."""
        modules = self.bert.pooler.dense, self.following, self.transform, self.norm
        return [*(tensor for module in modules for tensor in module.parameters()), self.bias]

    def encode(
        self, input_ids: Tensor, segments: Tensor, mask: Tensor | None = None, bounds: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the hidden states [B, S, H] of the last layer, and the word embeddings, which the head shares.

        `mask` [B, S] is 0 at padding. If padding is left out: ids [T], `bounds` i4[B + 1] between samples, states
        [T, H].
        """
        embeddings, p = self.bert.embeddings, self.dropout if self.training else 0.0
        words: Tensor = embeddings.word_embeddings.weight
        made = self.halved_words.copies[0] if self.halved_words else None
        rows, table = SHARED(words, input_ids, self.half_type or words.dtype, made)
        tables = [
            embeddings.position_embeddings.weight,
            embeddings.token_type_embeddings.weight,
            *embeddings.LayerNorm.parameters(),
        ]
        places = None
        if bounds is not None:
            starts = bounds[:-1].repeat_interleave(bounds.diff(), output_size=len(input_ids))
            places = torch.arange(len(input_ids), device=starts.device) - starts
            self.of_any_length(rows, segments, places)
        hidden = self.parts[0](rows, segments, places, tables, p, table.dtype)
        # Two kernels take samples of several lengths. FlashAttention takes 16-bit types, but no GPU before Ampere.
        flash = table.dtype.itemsize == 2 and not (self.attention and self.attention.name == "mem_efficient")
        masked = None
        if mask is not None:
            padding = mask[:, None, None] == 0
            masked = hidden.new_zeros(padding.shape).masked_fill_(padding, float("-inf"))
        one_layer: Callable[..., Tensor] = self.parts[1]
        if self.activation_checkpointing:  # the backward pass computes a layer's activations again
            one_layer = partial(checkpoint, one_layer, use_reentrant=False)
        for each in self.bert.encoder.layer:
            if bounds is not None:
                self.of_any_length(hidden)
            hidden = each(hidden, one_layer, self.heads, p, masked, bounds, self.longest, flash)
        return hidden, table


def projected(hidden: Tensor, parameters: list[Tensor], heads: int) -> Tensor:
    """Return query, key and value [..., 3, heads, width] of `hidden`, in one product.

    `parameters` are weight and bias of each, in this order, or of all three, stacked.
    """
    kind = hidden.dtype
    if len(parameters) == 2:
        packed, packed_bias = parameters
    else:
        query, query_bias, key, key_bias, value, value_bias = parameters
        packed = torch.cat([query.to(kind), key.to(kind), value.to(kind)])
        packed_bias = torch.cat([query_bias, key_bias, value_bias]).to(kind)
    return linear(hidden, packed, packed_bias).view(*hidden.shape[:-1], 3, heads, -1)


def embedded(
    words: Tensor, segments: Tensor, places: Tensor | None, tables: list[Tensor], p: float, half: torch.dtype
) -> Tensor:
    """Return the sum of word, segment and position embeddings, normed: [B, S, H].

    It is [T, H] if `places` [T], the positions of the tokens, are given. There are only two segments, so each is
    chosen with `where`, not looked up.
    """
    positions, kinds, norm, norm_bias = tables
    placed = positions[: words.shape[1]] if places is None else embedding(places, positions)
    total = words + torch.where(segments.bool()[..., None], kinds[1], kinds[0]) + placed
    return dropped(layer_norm(total, total.shape[-1:], norm, norm_bias, EPSILON).to(half), p)


def layer(
    hidden: Tensor,
    own: list[Tensor] | Halved,
    heads: int,
    p: float,
    masked: Tensor | None,
    bounds: Tensor | None,
    longest: int,
    flash: bool,
) -> Tensor:
    """One encoder layer: attention, then feed-forward, each followed by residual and norm.

    hidden is [B, S, H], and `masked` is added to the scores. Or hidden is [T, H], and the samples lie between `bounds`
    and have `longest` tokens at most; `flash` says which kernel a GPU takes for these.
    """
    parameters = used(own)
    out, out_bias, norm, norm_bias, *rest = parameters[-10:]
    up, up_bias, down, down_bias, last_norm, last_norm_bias = rest
    kind = hidden.dtype
    three = projected(hidden, parameters[:-10], heads)
    if bounds is None:
        queries, keys, values = torch.unbind(three.permute(2, 0, 3, 1, 4))
        mixed = attended(queries, keys, values, masked, p).transpose(1, 2).flatten(-2)
    else:
        queries, keys, values = torch.unbind(three, 1)
        mixed = attended_apart(queries, keys, values, bounds, longest, p, flash).flatten(-2)
    hidden = normed(hidden + dropped(linear(mixed, out.to(kind), out_bias.to(kind)), p), norm, norm_bias, EPSILON)
    wide = gelu(linear(hidden, up.to(kind), up_bias.to(kind)))
    return normed(
        hidden + dropped(linear(wide, down.to(kind), down_bias.to(kind)), p), last_norm, last_norm_bias, EPSILON
    )


def attended_apart(
    query: Tensor, key: Tensor, value: Tensor, bounds: Tensor, longest: int, p: float, flash: bool
) -> Tensor:
    """Attention within samples that lie in a row. query, key and value are [T, heads, 64].

    The samples lie between `bounds` i4[B + 1] and have `longest` tokens at most. On a GPU this calls the kernels of
    PyTorch's nested tensors directly: PyTorch's `varlen_attn` has no dropout, and operations on nested tensors cost
    more to launch. A CPU computes neighbours of the same length together.
    """
    if query.device.type == "cpu":
        sizes = [(len(list(same)), length) for length, same in groupby(bounds.diff().tolist())]
        parts = (torch.split(tensor, [count * length for count, length in sizes]) for tensor in (query, key, value))
        each = []
        for size, *three in zip(sizes, *parts, strict=True):
            queries, keys, values = (tensor.view(*size, *tensor.shape[1:]).transpose(1, 2) for tensor in three)
            each.append(attended(queries, keys, values, None, p).transpose(1, 2).flatten(0, 1))
        return torch.cat(each)
    mixed: Tensor
    if flash:
        mixed = torch.ops.aten._flash_attention_forward(
            query, key, value, bounds, bounds, longest, longest, p, False, False
        )[0]
    else:
        most = min(longest, len(key))  # the kernel refuses a bound that is above the number of all tokens
        mixed = torch.ops.aten._efficient_attention_forward(
            query[None], key[None], value[None], None, bounds, bounds, most, most, p, 0, True
        )[0][0]
    return mixed


def losses(
    hidden: Tensor,
    starts: Tensor,
    positions: Tensor,
    labels: Tensor,
    following: Tensor,
    table: Tensor,
    own: list[Tensor] | Halved,
) -> Tensor:
    """Return the mean loss of masked tokens + the mean loss of next-sentence labels, in the weights' type.

    hidden [T, H] has the samples in a row; they start at `starts` [B]. positions, labels [B, P] and following [B] are
    as a shard has them. `table` are the word embeddings, `own` the parameters of the heads.
    """
    pooler, pooler_bias, next_weight, next_bias, *vocabulary = used(own)
    kind, count, whole = hidden.dtype, len(starts), vocabulary[2].dtype  # a norm's weights are in no 16-bit type
    chosen = hidden.index_select(0, torch.cat([starts, (starts[:, None] + positions).flatten()]))
    labels, following = labels.flatten().long(), following.long()
    weights = (positions != 0).flatten().to(whole)
    pooled = torch.tanh(linear(chosen[:count], pooler.to(kind), pooler_bias.to(kind)))
    follows = linear(pooled, next_weight.to(kind), next_bias.to(kind)).to(whole)
    scores = vocabulary_scores(chosen[count:], table, vocabulary)
    if hidden.device.type == "cpu" and not torch.compiler.is_compiling():
        return MEAN(scores, labels, weights) + cross_entropy(follows, following)
    each = cross_entropy(scores.to(whole), labels, reduction="none")
    return (each * weights).sum() / weights.sum().clamp(min=1) + cross_entropy(follows, following)


def vocabulary_scores(chosen: Tensor, table: Tensor, parameters: list[Tensor]) -> Tensor:
    """Return the scores [N, padded vocabulary] of hidden states [N, H]."""
    transform, transform_bias, norm, norm_bias, bias = parameters
    kind = chosen.dtype
    chosen = normed(gelu(linear(chosen, transform.to(kind), transform_bias.to(kind))), norm, norm_bias, EPSILON)
    return linear(chosen, table.to(kind), bias.to(kind))


class BertInTorch(TorchForm[Parameters, BertForPretraining]):
    lacks = {
        "tensor_parallel": "the layers of bert models cannot be cut: their implementation in PyTorch has no `split`"
    }

    def build(self, spec: RunSpec[Parameters], facts: Values, at: torch.device | None = None) -> BertForPretraining:
        shape, options = SHAPES[spec.model], spec.options
        recomputes = bool(options.activation_checkpointing)
        network = BertForPretraining(shape, facts["vocabulary"], options.dropout, recomputes)
        network.longest, network.predictions = spec.parameters.sequence_length, spec.parameters.predictions
        if at:
            left_out = options.remove_padding is True
            sizes = shape.heads, shape.hidden // shape.heads, spec.parameters.sequence_length
            network.attention = pin(at, Asked(spec.precision, *sizes, options.dropout, not left_out, left_out))
        return network

    def halve(self, network: BertForPretraining, copy: HalfCopy) -> None:
        for each in network.bert.encoder.layer:
            each.halve(copy)
        heads = network.heads_own()
        norms = 6, 7
        network.halved = copy.of(heads, tuple((place,) for place in range(len(heads)) if place not in norms))
        network.halved_words = copy.of([network.bert.embeddings.word_embeddings.weight], ((0,),))

    def blocks(self, network: BertForPretraining) -> list[nn.Module]:
        return list(network.bert.encoder.layer)

    def settings(self, network: BertForPretraining) -> dict[str, Any]:
        return {
            "predictions": network.predictions,
            "parameters": sum(parameter.numel() for parameter in network.parameters()),
            "vocabulary_rows": network.bert.embeddings.word_embeddings.num_embeddings,
            "vocabulary_head": "masked positions, sharing the word embeddings",
            "gelu": "erf",
            "norm_epsilon": EPSILON,
            "attention": network.attention and network.attention.words,
            "dropout": [network.dropout, network.dropout],
            "loss": "mean over masked tokens + mean over next-sentence labels, of each rank",
        }

    @torch.no_grad()
    def sums(self, network: BertForPretraining, batch: dict[str, Tensor]) -> dict[str, float]:
        """Return the sums of losses and right answers over masked tokens (mlm) and over samples (nsp).

        They come from the plain forward pass, in the weights' precision. It shares the weights with the training step,
        but no code.
        """
        labels, following = batch["labels"].flatten().long(), batch["following"].long()
        positions, segments = batch["positions"], batch["segments"].long()
        weights = (positions != 0).flatten()
        hidden, pooled = states(network.bert, network.heads, batch["input_ids"], segments, batch.get("mask"))
        chosen = hidden.take_along_dim(positions[..., None].long(), 1).flatten(0, 1)
        chosen = network.norm(gelu(network.transform(chosen)))
        scores = linear(chosen, network.bert.embeddings.word_embeddings.weight, network.bias)
        order = network.following(pooled)
        every = {
            "mlm_loss": (cross_entropy(scores, labels, reduction="none") * weights).sum(dtype=torch.float64),
            "mlm_right": ((scores.argmax(1) == labels) * weights).sum(dtype=torch.float64),
            "masked": weights.sum(dtype=torch.float64),
            "nsp_loss": cross_entropy(order, following, reduction="sum").double(),
            "nsp_right": (order.argmax(1) == following).sum(dtype=torch.float64),
        }
        return {**{name: float(total) for name, total in every.items()}, "samples": float(len(following))}


FORM = BertInTorch()
