"""GPT-2 pre-training in PyTorch: the published architecture as plain modules.

A test compares it with Hugging Face's.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, linear

from throughline.spec import RunSpec
from throughline.workloads import Values
from throughline.workloads.gpt2 import DEVIATION, POSITIONS, SHAPES, Parameters, Shape, padded
from throughline.workloads.in_torch_attention import Asked, Attention, pin
from throughline.workloads.in_torch_form import Network, TorchForm
from throughline.workloads.in_torch_head import ERRORS, HEAD_LOSS, ROWS
from throughline.workloads.in_torch_operations import MEAN, SHARED, attended, dropped, projected
from throughline.workloads.in_torch_tensor_parallel import TensorGroup, copied, reduced, row_parallel_linear

EPSILON = 1e-5
"""Epsilon of the layer norms."""
APPROXIMATE = {"tanh": "tanh", "erf": "none"}
"""Map the values of the key `gelu` to PyTorch's names."""
CUT = {"tokens": 0, "query": 0, "key": 0, "value": 0, "mix": 1, "up": 0, "down": 1}
"""Map each module that ranks of a replica split to the dimension of the cut: 0 by vocabulary rows, heads or outputs, 1
by inputs."""


class Block(nn.Module):
    """One layer: attention, then feed-forward. Each follows a norm, and is added to the residual."""

    ranks: TensorGroup | None = None

    def __init__(self, shape: Shape, gelu: str, dropout: float) -> None:
        super().__init__()
        hidden = shape.hidden
        self.width, self.gelu, self.dropout = hidden // shape.heads, APPROXIMATE[gelu], dropout
        self.attention_norm = nn.LayerNorm(hidden, EPSILON)
        self.query, self.key, self.value, self.mix = (nn.Linear(hidden, hidden) for _ in range(4))
        self.feed_norm = nn.LayerNorm(hidden, EPSILON)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, hidden: Tensor) -> Tensor:
        """Map states [B, S, H] to states. Every position sees itself and the positions before it."""
        p, ranks, kind = self.dropout if self.training else 0.0, self.ranks, hidden.dtype
        normed = copied(self.attention_norm(hidden).to(kind), ranks)
        three = projected(normed, [self.query, self.key, self.value], self.width)
        query, key, value = torch.unbind(three.permute(2, 0, 3, 1, 4))
        attend = partial(ranks.with_own_seed, attended) if ranks and p else attended
        mixed = attend(query, key, value, None, p, True)
        mixed = row_parallel_linear(mixed.transpose(1, 2).flatten(-2), self.mix.weight, self.mix.bias, ranks)
        hidden = hidden + dropped(mixed, p)
        wide = gelu(self.up(copied(self.feed_norm(hidden).to(kind), ranks)), approximate=self.gelu)
        return hidden + dropped(row_parallel_linear(wide, self.down.weight, self.down.bias, ranks), p)


class Gpt2(Network):
    """GPT-2 with its head and its loss. `forward` takes the tensors of `gpt2.batch`; the mean is over all tokens."""

    attention: Attention | None = None
    """The kernel of attention to which this process is pinned. None: PyTorch chooses."""
    errors = staticmethod(ERRORS)

    def __init__(
        self, shape: Shape, vocabulary: int, given: Parameters, dropout: float, activation_checkpointing: bool
    ) -> None:
        super().__init__()
        self.gelu, self.dropout, self.activation_checkpointing = given.gelu, dropout, activation_checkpointing
        self.tokens = nn.Embedding(padded(vocabulary), shape.hidden)
        self.positions = nn.Embedding(max(POSITIONS, given.sequence_length), shape.hidden)
        self.layers = nn.ModuleList(Block(shape, given.gelu, dropout) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.hidden, EPSILON)
        residual = given.residual_deviation(shape.layers)
        deviations = {"positions": given.position_init, "mix": residual, "down": residual}
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=deviations.get(name.rpartition(".")[2], DEVIATION))
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    def parts(self) -> list[tuple[nn.Module, str]]:
        return [(self, "begun"), *((block, "forward") for block in self.layers), (self, "ended"), (self, "errors")]

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the loss. The last of the tokens [B, S + 1] is only a label."""
        ids = tokens.long()
        rows, table = self.embedded(ids[:, :-1])
        hidden, labels = self.begun(rows, table.dtype), ids[:, 1:].flatten()
        with self.autocast():
            for block in self.layers:
                hidden = self.call(block, hidden)
        last, kind = self.ended(hidden), self.norm.weight.dtype
        if self.ranks:
            return self.ranks.cross_entropy(linear(copied(last, self.ranks), table), labels, kind).mean()
        if last.device.type == "cpu":  # it works on the scores in parts that stay in its caches
            return MEAN(linear(last, table), labels, last.new_ones(len(last), dtype=kind))
        return HEAD_LOSS(last, table, labels, kind, self.errors)

    def embedded(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return the token embeddings [B, S, H], and the table (or this rank's part of it), which the head shares."""
        table: Tensor = self.tokens.weight
        kind = self.half_type or table.dtype
        if self.ranks is None:
            return SHARED(table, ids, kind)
        ids, others = self.ranks.local(ids, len(table))
        rows, table = SHARED(table, ids, kind)
        return reduced(rows.masked_fill(others[..., None], 0), self.ranks), table

    def begun(self, rows: Tensor, kind: torch.dtype) -> Tensor:
        """Return the sum of token embeddings (`rows`) and position embeddings [B, S, H]."""
        return dropped((rows + self.positions.weight[: rows.shape[1]]).to(kind), self.dropout if self.training else 0.0)

    def ended(self, hidden: Tensor) -> Tensor:
        """Return the states of all positions [B x S, H] after the last norm."""
        with self.autocast():
            last: Tensor = self.norm(hidden)
        return last.to(hidden.dtype).flatten(0, 1)


class Gpt2InTorch(TorchForm[Parameters, Gpt2]):
    def build(self, spec: RunSpec[Parameters], facts: Values, at: torch.device | None = None) -> Gpt2:
        given, options, shape = spec.parameters, spec.options, SHAPES[spec.model]
        network = Gpt2(shape, facts["vocabulary"], given, options.dropout, bool(options.activation_checkpointing))
        if at:
            sizes = shape.heads, shape.hidden // shape.heads, given.sequence_length
            network.attention = pin(at, Asked(spec.precision, *sizes, options.dropout))
        return network

    def blocks(self, network: Gpt2) -> list[nn.Module]:
        return list(network.layers)

    def split(self, network: Gpt2, ranks: TensorGroup) -> None:
        """Every rank of the replica has built the whole network."""
        cut = {}
        for name, parameter in network.named_parameters():
            dimension = CUT.get(name.split(".")[-2])
            if dimension is not None and dimension < parameter.ndim:  # the bias of a cut by inputs is whole
                cut[name] = dimension
        ranks.cut(network, cut)
        network.ranks = ranks
        layers: Any = network.layers
        for block in layers:
            block.ranks = ranks

    def settings(self, network: Gpt2) -> dict[str, Any]:
        keeps = network.ranks or network.norm.weight.device.type == "cpu"
        apart = "" if keeps else f"; {ROWS:,} at a time, with their gradients, and no scores are kept"
        return {
            "parameters": self.parameters(network),
            "vocabulary_rows": network.tokens.num_embeddings,
            "vocabulary_head": "all positions, sharing the token embeddings" + apart,
            "gelu": network.gelu,
            "norm_epsilon": EPSILON,
            "attention": network.attention and network.attention.words,
            "dropout": [network.dropout] * 3,
            "loss": "mean over all tokens, of each replica",
        }

    def predicted(self, network: Gpt2, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        return predicted(network, batch)


def predicted(network: nn.Module, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """Compute one sample at a time: the scores of a whole batch would take more memory than training does."""
    samples, length = torch.split(batch["tokens"], 1), batch["tokens"].shape[1] - 1
    losses = torch.stack([network(tokens=sample) for sample in samples])
    return {"loss": losses.double() * length, "tokens": torch.full_like(losses, length)}


FORM = Gpt2InTorch()
