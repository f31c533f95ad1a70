"""GPT-2 pre-training in PyTorch: the published architecture, with our own operations.

The forward pass is a few functions of tensors. So a compiler sees each function as a whole, and compiles one layer for
all layers. A test compares the forward pass with Hugging Face's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, gelu, linear
from torch.utils.checkpoint import checkpoint

from throughline.spec import RunSpec
from throughline.workloads import Arrays, Values
from throughline.workloads.gpt2 import SHAPES, Parameters, Shape, padded
from throughline.workloads.gpt2.in_torch_parameters import EPSILON, parts, states
from throughline.workloads.in_torch_attention import Asked, Attention, pin
from throughline.workloads.in_torch_form import InParts, TorchForm
from throughline.workloads.in_torch_half import HalfCopy, Halved, used
from throughline.workloads.in_torch_head import ERRORS, HEAD_LOSS, ROWS
from throughline.workloads.in_torch_operations import MEAN, SHARED, attended, dropped, normed, projected
from throughline.workloads.in_torch_tensor_parallel import TensorGroup, entered, left, linear_by_rows

CUT = {"tokens": 0, "query": 0, "key": 0, "value": 0, "mix": 1, "up": 0, "down": 1}
"""Map each module that ranks of a replica split to the dimension of the cut: 0 by vocabulary rows, heads or outputs, 1
by inputs."""


class Gpt2(InParts):
    """GPT-2 with its head and its loss. `forward` takes the tensors of `gpt2.batch` and returns the mean over all
    tokens.

    With `half_type`, the weights keep their type and are cast where they are used. Matrix products, attention and the
    activations between them have the 16-bit type; norms and losses are computed in the weights' type.
    """

    ranks: TensorGroup | None = None
    """The ranks that share this replica, if each holds a part of it."""
    attention: Attention | None = None
    """The kernel of attention to which this process is pinned. None: PyTorch chooses."""
    halved: Halved | None = None
    """The table of tokens with its copy in a 16-bit type, if there is one."""
    tokens: nn.Embedding
    positions: nn.Embedding
    layers: nn.ModuleList
    norm: nn.LayerNorm

    def __init__(
        self, shape: Shape, vocabulary: int, given: Parameters, dropout: float, activation_checkpointing: bool
    ) -> None:
        super().__init__()
        for name, module in parts(shape, padded(vocabulary), given).items():
            self.add_module(name, module)
        self.gelu, self.dropout, self.activation_checkpointing = given.gelu, dropout, activation_checkpointing
        self.parts = (embedded, layer, loss, ended, ERRORS)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the loss. The last of the tokens [B, S + 1] is only a label."""
        ids, p = tokens.long(), self.dropout if self.training else 0.0
        rows, table = self.embed(ids[:, :-1])
        one_layer: Callable[..., Tensor] = partial(self.parts[1], ranks=self.ranks)
        if self.activation_checkpointing:  # the backward pass computes a layer's activations again
            one_layer = partial(checkpoint, one_layer, use_reentrant=False)
        hidden = self.parts[0](rows, self.positions.weight, p, table.dtype)
        for block in self.layers:
            hidden = block(hidden, one_layer, p)
        norm, norm_bias = self.norm.parameters()
        if self.keeps_scores():
            return self.parts[2](hidden, ids[:, 1:], table, norm, norm_bias, self.ranks)
        last, labels = self.parts[3](hidden, norm, norm_bias), ids[:, 1:].flatten()
        part: Any = self.parts[4]
        return HEAD_LOSS(last, table, labels, norm.dtype, part)

    def keeps_scores(self) -> bool:
        """True if the loss is computed from the scores of all positions at once.

        A CPU works on them in parts that stay in its caches. Ranks that share a replica hold parts of the scores.
        """
        return self.ranks is not None or self.norm.weight.device.type == "cpu"

    def embed(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return the token embeddings [B, S, H], and the table (or this rank's part of it), which the head shares."""
        table: Tensor = self.tokens.weight
        kind = self.half_type or table.dtype
        made = self.halved.copies[0] if self.halved else None
        if self.ranks is None:
            return SHARED(table, ids, kind, made)
        ids, others = self.ranks.local(ids, len(table))
        rows, table = SHARED(table, ids, kind, made)
        return left(rows.masked_fill(others[..., None], 0), self.ranks), table


def embedded(rows: Tensor, positions: Tensor, p: float, half: torch.dtype) -> Tensor:
    """Return the sum of token and position embeddings [B, S, H]."""
    return dropped((rows + positions[: rows.shape[1]]).to(half), p)


def layer(
    hidden: Tensor, own: list[Tensor] | Halved, heads: int, gelu: str, p: float, ranks: TensorGroup | None = None
) -> Tensor:
    """One layer: attention, then feed-forward. hidden is [B, S, H]; `own` are a block's parameters in their order."""
    parameters = used(own)
    return feed_forward(attention(hidden, parameters[:-6], heads, p, ranks), parameters[-6:], gelu, p, ranks)


def attention(hidden: Tensor, parameters: list[Tensor], heads: int, p: float, ranks: TensorGroup | None) -> Tensor:
    """Causal attention, added to the residual: every position sees itself and the positions before it."""
    norm, norm_bias, *projections, mix, mix_bias = parameters
    kind = hidden.dtype
    three = projected(entered(normed(hidden, norm, norm_bias, EPSILON), ranks), projections, heads)
    queries, keys, values = torch.unbind(three.permute(2, 0, 3, 1, 4))
    attend = partial(ranks.apart, attended) if ranks and p else attended
    mixed = attend(queries, keys, values, None, p, True).transpose(1, 2).flatten(-2)
    return hidden + dropped(linear_by_rows(mixed, mix.to(kind), mix_bias.to(kind), ranks), p)


def feed_forward(
    hidden: Tensor, parameters: list[Tensor], approximate: str, p: float, ranks: TensorGroup | None
) -> Tensor:
    norm, norm_bias, up, up_bias, down, down_bias = parameters
    kind = hidden.dtype
    wide = linear(entered(normed(hidden, norm, norm_bias, EPSILON), ranks), up.to(kind), up_bias.to(kind))
    wide = gelu(wide, approximate=approximate)
    return hidden + dropped(linear_by_rows(wide, down.to(kind), down_bias.to(kind), ranks), p)


def loss(
    hidden: Tensor, labels: Tensor, table: Tensor, norm: Tensor, norm_bias: Tensor, ranks: TensorGroup | None = None
) -> Tensor:
    """Return the mean cross entropy of the next tokens, labels [B, S], in the weights' type."""
    scores = linear(entered(normed(hidden, norm, norm_bias, EPSILON), ranks).flatten(0, 1), table)
    if ranks:
        return ranks.cross_entropy(scores, labels.flatten(), norm.dtype).mean()
    if hidden.device.type == "cpu" and not torch.compiler.is_compiling():
        return MEAN(scores, labels.flatten(), norm.new_ones(len(scores)))
    return cross_entropy(scores.to(norm.dtype), labels.flatten())


def ended(hidden: Tensor, norm: Tensor, norm_bias: Tensor) -> Tensor:
    """Return the states of all positions [B x S, H] after the last norm."""
    return normed(hidden, norm, norm_bias, EPSILON).flatten(0, 1)


class Gpt2InTorch(TorchForm[Parameters, Gpt2]):
    lacks = {"remove_padding": "GPT-2's samples have no padding that could be left out"}

    def build(self, spec: RunSpec[Parameters], facts: Values, at: torch.device | None = None) -> Gpt2:
        given, options = spec.parameters, spec.options
        recomputes = bool(options.activation_checkpointing)
        network = Gpt2(SHAPES[spec.model], facts["vocabulary"], given, options.dropout, recomputes)
        if at:
            shape = SHAPES[spec.model]
            sizes = shape.heads, shape.hidden // shape.heads, given.sequence_length
            network.attention = pin(at, Asked(spec.precision, *sizes, options.dropout))
        return network

    def blocks(self, network: Gpt2) -> list[nn.Module]:
        """A call of a layer reads its parameters. All other parameters belong to the network itself."""
        return list(network.layers.children())

    def halve(self, network: Gpt2, copy: HalfCopy) -> None:
        layers: Any = network.layers
        for block in layers:
            block.halve(copy)
        network.halved = copy.of([network.tokens.weight], ((0,),))

    def split(self, network: Gpt2, ranks: TensorGroup) -> None:
        """Every rank of the replica has built the whole network."""
        cut = {}
        for name, parameter in network.named_parameters():
            dimension = CUT.get(name.split(".")[-2])
            if dimension is not None and dimension < parameter.ndim:
                cut[name] = dimension
        ranks.cut(network, cut)
        network.ranks = ranks
        layers: Any = network.layers
        for block in layers:
            block.heads //= ranks.size

    def weights(self, network: Gpt2) -> Arrays:
        """If ranks share a replica, all of them have to call this together."""
        return network.ranks.whole_arrays(network) if network.ranks else super().weights(network)

    def load(self, network: Gpt2, weights: Arrays) -> None:
        super().load(network, network.ranks.own_arrays(weights) if network.ranks else weights)

    def settings(self, network: Gpt2) -> dict[str, Any]:
        parameters = sum(parameter.numel() for parameter in network.parameters())
        if ranks := network.ranks:  # together they hold one replica
            parameters += (ranks.size - 1) * sum(network.get_parameter(name).numel() for name in ranks.dimensions)
        apart = "" if network.keeps_scores() else f"; {ROWS:,} at a time, with their gradients, and no scores are kept"
        return {
            "parameters": parameters,
            "vocabulary_rows": network.tokens.num_embeddings,
            "vocabulary_head": "all positions, sharing the token embeddings" + apart,
            "gelu": network.gelu,
            "norm_epsilon": EPSILON,
            "attention": network.attention and network.attention.words,
            "dropout": [network.dropout] * 3,
            "loss": "mean over all tokens, of each replica",
        }

    @torch.no_grad()
    def sums(self, network: Gpt2, batch: dict[str, Tensor]) -> dict[str, float]:
        """Return the loss summed over the tokens of a batch.

        It uses the plain forward pass, in the weights' precision, which shares the weights with the training step, but
        no code. It computes one sample at a time: the scores of a whole batch would take more memory than training
        does.
        """
        ids, total = batch["tokens"].long(), 0.0
        for sample in torch.split(ids, 1):
            hidden = states(network, sample[:, :-1])
            scores = linear(hidden[0], network.tokens.weight)
            total += float(cross_entropy(scores, sample[0, 1:], reduction="sum").double())
        return {"loss": total, "tokens": float(ids[:, 1:].numel()), "samples": float(len(ids))}


FORM = Gpt2InTorch()
