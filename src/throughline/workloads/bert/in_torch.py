"""BERT pre-training in PyTorch: plain modules, and heads on the masked positions.

Names, shapes, order and random values of the parameters are those of Hugging Face's `BertModel`, and tests compare the
two. This file does not import transformers, because that takes longer than importing PyTorch.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, embedding, gelu, linear, pad

from throughline.spec import RunSpec
from throughline.workloads import Values
from throughline.workloads.bert import POSITIONS, SHAPES, Parameters, Shape, padded
from throughline.workloads.in_torch_attention import Asked, Attention, pin
from throughline.workloads.in_torch_form import Network, TorchForm
from throughline.workloads.in_torch_operations import MEAN, SHARED, attended, dropped, projected

EPSILON = 1e-12
"""Epsilon of the layer norms."""


class Embeddings(nn.Module):
    """Sum of word, segment and position embeddings, normed."""

    def __init__(self, hidden: int, vocabulary: int) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(vocabulary, hidden)
        self.position_embeddings = nn.Embedding(POSITIONS, hidden)
        self.token_type_embeddings = nn.Embedding(2, hidden)
        self.LayerNorm = nn.LayerNorm(hidden, EPSILON)

    def forward(self, words: Tensor, segments: Tensor, places: Tensor | None, p: float, kind: torch.dtype) -> Tensor:
        """Map word embeddings [B, S, H] to states of the type `kind`; `places` are the positions of words [T, H]."""
        positions, kinds = self.position_embeddings.weight, self.token_type_embeddings.weight
        placed = positions[: words.shape[1]] if places is None else embedding(places, positions)
        total = words + torch.where(segments.bool()[..., None], kinds[1], kinds[0]) + placed
        return dropped(self.LayerNorm(total).to(kind), p)


class Added(nn.Module):
    """A linear layer that is added to the residual, and the norm after it."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.dense, self.LayerNorm = nn.Linear(inputs, hidden), nn.LayerNorm(hidden, EPSILON)

    def forward(self, given: Tensor, residual: Tensor, p: float) -> Tensor:
        states: Tensor = self.LayerNorm(residual + dropped(self.dense(given), p))
        return states.to(residual.dtype)


class Layer(nn.Module):
    """One encoder layer: attention, then feed-forward."""

    def __init__(self, shape: Shape, dropout: float) -> None:
        super().__init__()
        hidden, self.width, self.dropout = shape.hidden, shape.hidden // shape.heads, dropout
        three = nn.ModuleDict({name: nn.Linear(hidden, hidden) for name in ("query", "key", "value")})
        self.attention = nn.ModuleDict({"self": three, "output": Added(hidden, hidden)})
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(hidden, shape.feed_forward)})
        self.output = Added(shape.feed_forward, hidden)

    def forward(
        self, hidden: Tensor, masked: Tensor | None, bounds: Tensor | None, longest: int, flash: bool
    ) -> Tensor:
        """Map states to states: [B, S, H], with `masked` added to the scores. Or [T, H]: the samples lie between
        `bounds` and have `longest` tokens at most; `flash` says which kernel a GPU takes for these."""
        three: Any = self.attention["self"]
        p = self.dropout if self.training else 0.0
        heads = projected(hidden, [three.query, three.key, three.value], self.width)
        if bounds is None:
            queries, keys, values = torch.unbind(heads.permute(2, 0, 3, 1, 4))
            mixed = attended(queries, keys, values, masked, p).transpose(1, 2).flatten(-2)
        else:
            queries, keys, values = torch.unbind(heads, 1)
            mixed = attended_apart(queries, keys, values, bounds, longest, p, flash).flatten(-2)
        hidden = self.attention["output"](mixed, hidden, p)
        result: Tensor = self.output(gelu(self.intermediate["dense"](hidden)), hidden, p)
        return result


def attended_apart(
    query: Tensor, key: Tensor, value: Tensor, bounds: Tensor, longest: int, p: float, flash: bool
) -> Tensor:
    """Attention within samples that lie in a row between `bounds` i4[B + 1]. query, key and value are [T, heads, 64].

    On a GPU this calls the kernels of PyTorch's nested tensors directly: PyTorch's `varlen_attn` has no dropout, and
    operations on nested tensors cost more to launch. A CPU computes neighbours of the same length together.
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


class BertForPretraining(Network):
    """BERT with its heads and its loss. `forward` takes the tensors of `bert.batch` or `bert.without_padding`.

    The loss is the mean over masked tokens + the mean over next-sentence labels.
    """

    longest = POSITIONS
    predictions: int | None = None
    """The most tokens, and the most masked tokens, that a sample has."""
    attention: Attention | None = None
    """The kernel of attention to which this process is pinned. None: PyTorch chooses."""

    def __init__(self, shape: Shape, vocabulary: int, dropout: float, activation_checkpointing: bool) -> None:
        super().__init__()
        hidden, self.dropout, self.activation_checkpointing = shape.hidden, dropout, activation_checkpointing
        embeddings = Embeddings(hidden, padded(vocabulary))
        layers = nn.ModuleList(Layer(shape, dropout) for _ in range(shape.layers))
        encoder, pooler = nn.ModuleDict({"layer": layers}), nn.ModuleDict({"dense": nn.Linear(hidden, hidden)})
        self.bert: Any = nn.ModuleDict({"embeddings": embeddings, "encoder": encoder, "pooler": pooler})
        draw(self.bert)
        with torch.no_grad():
            embeddings.word_embeddings.weight[0] = 0.0  # [PAD]
        self.transform = nn.Linear(hidden, hidden)
        self.norm = nn.LayerNorm(hidden, EPSILON)
        self.bias = nn.Parameter(torch.zeros(padded(vocabulary)))
        self.following = nn.Linear(hidden, 2)
        draw(self.transform)
        draw(self.following)

    def parts(self) -> list[tuple[nn.Module, str]]:
        each = (self.bert.embeddings, *self.bert.encoder.layer)
        return [*((module, "forward") for module in each), (self, "losses")]

    def forward(self, **batch: Tensor) -> Tensor:
        return self.losses(*self.states(**batch), batch["positions"], batch["labels"], batch["following"])

    def states(
        self, input_ids: Tensor, segments: Tensor, mask: Tensor | None = None, lengths: Tensor | None = None,
        **heads: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        """Return the states of all tokens [T, H], the first token of each sample [B], and the word embeddings.

        ids and `mask`, which is 0 at padding, are [B, S]. If padding is left out, ids are [T], and `lengths` are [B].
        """
        embeddings, p = self.bert.embeddings, self.dropout if self.training else 0.0
        words: Tensor = embeddings.word_embeddings.weight
        rows, table = SHARED(words, input_ids, self.half_type or words.dtype)
        places = bounds = masked = None
        if lengths is not None:
            bounds = pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
            starts = bounds[:-1]
            places = torch.arange(len(input_ids), device=rows.device)
            places = places - starts.repeat_interleave(lengths, output_size=len(input_ids))
            self.of_any_length(rows, segments, places)
        else:
            starts = torch.arange(0, input_ids.numel(), input_ids.shape[-1], device=rows.device)
        hidden = embeddings(rows, segments, places, p, table.dtype)
        # Two kernels take samples of several lengths. FlashAttention takes 16-bit types, but no GPU before Ampere.
        flash = table.dtype.itemsize == 2 and not (self.attention and self.attention.name == "mem_efficient")
        if mask is not None:
            padding = mask[:, None, None] == 0
            masked = hidden.new_zeros(padding.shape).masked_fill_(padding, float("-inf"))
        with self.autocast():
            for layer in self.bert.encoder.layer:
                if bounds is not None:
                    self.of_any_length(hidden)
                hidden = self.call(layer, hidden, masked, bounds, self.longest, flash)
        if bounds is not None:
            self.of_any_length(hidden)
        return hidden.flatten(0, -2), starts, table

    def scores(self, hidden: Tensor, starts: Tensor, table: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return the scores of the vocabulary at the `positions` [B, P] of all samples [B x P, V], and of the sentence
        that follows [B, 2]."""
        chosen = hidden.index_select(0, torch.cat([starts, (starts[:, None] + positions).flatten()]))
        with self.autocast():
            follows = self.following(torch.tanh(self.bert.pooler.dense(chosen[: len(starts)])))
            normed = self.norm(gelu(self.transform(chosen[len(starts) :]))).to(hidden.dtype)
            return linear(normed, table, self.bias), follows

    def losses(
        self, hidden: Tensor, starts: Tensor, table: Tensor, positions: Tensor, labels: Tensor, following: Tensor
    ) -> Tensor:
        """Return the mean loss of masked tokens + the mean loss of next-sentence labels, in the weights' type.

        positions, labels [B, P] and following [B] are as a shard has them.
        """
        scores, follows = self.scores(hidden, starts, table, positions)
        whole = self.norm.weight.dtype
        labels, weights = labels.flatten().long(), (positions != 0).flatten().to(whole)
        order = cross_entropy(follows.to(whole), following.long())
        if hidden.device.type == "cpu" and not torch.compiler.is_compiling():
            return MEAN(scores, labels, weights) + order
        each = cross_entropy(scores.to(whole), labels, reduction="none")
        return (each * weights).sum() / weights.sum().clamp(min=1) + order


def draw(network: nn.Module) -> None:
    """Draw new weights for all linear layers and embeddings, in their order. They replace those that PyTorch drew."""
    for module in network.modules():
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)


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

    def blocks(self, network: BertForPretraining) -> list[nn.Module]:
        return list(network.bert.encoder.layer)

    def settings(self, network: BertForPretraining) -> dict[str, Any]:
        return {
            "predictions": network.predictions,
            "parameters": self.parameters(network),
            "vocabulary_rows": network.bert.embeddings.word_embeddings.num_embeddings,
            "vocabulary_head": "masked positions, sharing the word embeddings",
            "gelu": "erf",
            "norm_epsilon": EPSILON,
            "attention": network.attention and network.attention.words,
            "dropout": [network.dropout, network.dropout],
            "loss": "mean over masked tokens + mean over next-sentence labels, of each rank",
        }

    def predicted(self, network: BertForPretraining, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return losses and right answers of masked tokens (mlm) and of samples (nsp)."""
        scores, follows = network.scores(*network.states(**batch), batch["positions"])
        labels, following = batch["labels"].flatten().long(), batch["following"].long()
        weights = (batch["positions"] != 0).flatten()
        return {
            "mlm_loss": cross_entropy(scores, labels, reduction="none") * weights,
            "mlm_right": (scores.argmax(1) == labels) * weights,
            "masked": weights,
            "nsp_loss": cross_entropy(follows, following, reduction="none"),
            "nsp_right": follows.argmax(1) == following,
        }


FORM = BertInTorch()
