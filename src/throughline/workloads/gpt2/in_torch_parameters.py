"""GPT-2's parameters in PyTorch, and a plain forward pass through them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import gelu

from throughline.workloads.gpt2 import POSITIONS, Parameters, Shape
from throughline.workloads.in_torch_half import HalfCopy, Halved
from throughline.workloads.in_torch_operations import plain_attention

EPSILON = 1e-5
"""Epsilon of the layer norms."""
DEVIATION = 0.02
"""Standard deviation of the initial weights."""
APPROXIMATE = {"tanh": "tanh", "erf": "none"}
"""Map the values of the key `gelu` to PyTorch's names."""


class Block(nn.Module):
    """The parameters of one layer. The caller passes the function that computes it: it may be compiled or checkpointed.

    A call reads the parameters, so ranks that shard the network block by block can gather them just before the call.
    """

    halved: Halved | None = None
    """The parameters with their copies in a 16-bit type, if there are such copies."""

    def __init__(self, hidden: int, heads: int, gelu: str) -> None:
        super().__init__()
        self.heads, self.gelu = heads, APPROXIMATE[gelu]
        self.attention_norm = nn.LayerNorm(hidden, eps=EPSILON)
        self.query, self.key, self.value, self.mix = (nn.Linear(hidden, hidden) for _ in range(4))
        self.feed_norm = nn.LayerNorm(hidden, eps=EPSILON)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, hidden: Tensor, layer: Callable[..., Tensor], p: float) -> Tensor:
        """Return layer(hidden, own, heads, gelu, p); `own` are the parameters in their order."""
        return layer(hidden, self.halved or list(self.parameters()), self.heads, self.gelu, p)

    def halve(self, copy: HalfCopy) -> None:
        """Keep copies of what the matrix products take: three projections in one, and what follows them."""
        places = ((2, 4, 6), (3, 5, 7), (8,), (9,), (12,), (13,), (14,), (15,))
        self.halved = copy.of(list(self.parameters()), places)


def parts(shape: Shape, rows: int, given: Parameters) -> dict[str, nn.Module]:
    """Make embeddings, layers and last norm, with random weights. The table of `rows` tokens is also the head's."""
    modules = {
        "tokens": nn.Embedding(rows, shape.hidden),
        "positions": nn.Embedding(max(POSITIONS, given.sequence_length), shape.hidden),
        "layers": nn.ModuleList(Block(shape.hidden, shape.heads, given.gelu) for _ in range(shape.layers)),
        "norm": nn.LayerNorm(shape.hidden, eps=EPSILON),
    }
    residual = DEVIATION / math.sqrt(2 * shape.layers) if given.residual_init == "scaled" else DEVIATION
    deviations = {"positions": given.position_init, "mix": residual, "down": residual}
    for name, module in nn.ModuleDict(modules).named_modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=deviations.get(name.rpartition(".")[2], DEVIATION))
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)
    return modules


def states(gpt2: Any, ids: Tensor) -> Tensor:
    """Return the hidden states [B, S, H] after the last norm, of ids [B, S].

    There is no dropout, and the weights' type is used. This pass calls one module after the other and shares no code
    with the training step.
    """
    hidden = gpt2.tokens(ids) + gpt2.positions.weight[: ids.shape[1]]
    for block in gpt2.layers:
        projections = block.query, block.key, block.value
        mixed = plain_attention(projections, block.attention_norm(hidden), block.heads, is_causal=True)
        hidden = hidden + block.mix(mixed)
        hidden = hidden + block.down(gelu(block.up(block.feed_norm(hidden)), approximate=block.gelu))
    last: Tensor = gpt2.norm(hidden)
    return last
