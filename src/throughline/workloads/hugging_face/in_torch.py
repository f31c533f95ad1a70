"""Decoders in PyTorch, with our own operations: Llama, Mistral, Qwen, Gemma, OLMo 2, Phi-3, and mixtures of experts.

A config.json says what a layer computes (`architecture.py`), and `in_torch_layer.py` computes it. Parameters have the
names and shapes that they have in transformers. A test compares losses and gradients with transformers' own models.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear
from torch.utils.checkpoint import checkpoint

from throughline.spec import RunSpec
from throughline.workloads import Unsupported, Values
from throughline.workloads.hugging_face import WORKLOAD, Parameters, architecture
from throughline.workloads.hugging_face.architecture import Architecture, Layer
from throughline.workloads.hugging_face.in_torch_layer import layer, normed
from throughline.workloads.in_torch_attention import Asked, Attention, pin
from throughline.workloads.in_torch_form import InParts, TorchForm
from throughline.workloads.in_torch_head import HEAD_LOSS, ROWS, errors
from throughline.workloads.in_torch_operations import MEAN, SHARED
from throughline.workloads.in_torch_tensor_parallel import TensorGroup, entered, left

GAINS = "norm.weight"
"""The last part of the names of norms' weights."""
GROUPED_KERNELS = ("flash", "cudnn")
"""The kernels of attention that take fewer heads of keys and values than of queries."""


class Block(nn.Module):
    """The parameters of one layer. A call reads them, so ranks that shard the network can gather them before it."""

    def __init__(self, shape: Layer) -> None:
        super().__init__()
        self.shape = shape
        declare(self, shape.shapes())

    def forward(self, hidden: Tensor, angles: Tensor, one_layer: Callable[..., Tensor]) -> Tensor:
        return one_layer(hidden, dict(self.named_parameters()), angles, self.shape)


def declare(module: nn.Module, shapes: architecture.Shapes) -> None:
    """Register parameters of these names, dots included, without values."""
    for name, shape in shapes.items():
        *path, last = name.split(".")
        home = module
        for part in path:
            if not hasattr(home, part):
                home.add_module(part, nn.Module())
            home = getattr(home, part)
        home.register_parameter(last, nn.Parameter(torch.empty(shape)))


class Decoder(InParts):
    """A decoder with its head and its loss. `forward` takes the tensors of a batch and returns the mean over all
    predicted tokens.

    With `half_type`, matrix products, attention and the states between them have the half type.
    """

    ranks: TensorGroup | None = None
    """The ranks that share this replica, if each holds a part of it."""
    attention: Attention | None = None
    """The kernel of attention to which this process is pinned. None: PyTorch chooses."""
    model: Any
    lm_head: Any

    def __init__(self, made: Architecture, sequence: int, entries: int | None, checkpointing: bool) -> None:
        """entries: the size of the model's vocabulary if that of the data is larger, otherwise None."""
        super().__init__()
        self.made, self.entries, self.checkpointing = made, entries, checkpointing
        outside = {name: shape for name, shape in made.shapes().items() if ".layers." not in name}
        declare(self, outside)
        self.model.layers = nn.ModuleList(Block(shape) for shape in made.layers)
        angles = torch.stack([_angles(table.values, table.scale, sequence) for table in made.tables])
        self.angles = nn.Buffer(angles.to(self.model.norm.weight.device), persistent=False)
        head: Any = errors if made.cap is None else partial(capped_errors, made.cap)
        self.parts = (embedded, layer, loss, ended, head)
        self.draw()

    @torch.no_grad()
    def draw(self) -> None:
        """Draw the initial weights: norms do nothing, biases are zero, and all else is normally distributed."""
        for name, parameter in self.named_parameters():
            if name.endswith(GAINS):
                parameter.fill_(0.0 if self.made.plus_one else 1.0)
            elif name.endswith("bias"):
                parameter.zero_()
            else:
                parameter.normal_(std=self.made.deviation)

    def forward(self, input_ids: Tensor) -> Tensor:
        """Return the loss of input_ids [B, S]. Each token is the label of the position before it."""
        ids = input_ids.long()
        ids = ids if self.entries is None else ids % self.entries
        rows, table = self.embed(ids)
        hidden = self.parts[0](rows, self.made.scale, table.dtype)
        one_layer: Callable[..., Tensor] = partial(self.parts[1], grouped=self.grouped(), ranks=self.ranks)
        if self.checkpointing:  # the backward pass computes a layer's activations again
            one_layer = partial(checkpoint, one_layer, use_reentrant=False)
        gain = self.model.norm.weight
        tables = self.angles[:, :, : ids.shape[1]].to(torch.promote_types(gain.dtype, torch.float32))
        for block in self.model.layers:
            hidden = block(hidden, tables[block.shape.table], one_layer)
        last, labels = self.parts[3](hidden, gain, self.made), ids[:, 1:].flatten()
        if not self.made.tied:
            table = self.lm_head.weight.to(last.dtype)
        if self.keeps_scores():
            return self.parts[2](last, labels, table, gain, self.made.cap, self.ranks)
        part: Any = self.parts[4]
        return HEAD_LOSS(last, table, labels, gain.dtype, part)

    def grouped(self) -> bool:
        return self.attention is None or self.attention.name in GROUPED_KERNELS

    def keeps_scores(self) -> bool:
        """True if the loss is computed from the scores of all positions at once: on a CPU, and where ranks share a
        replica."""
        return self.ranks is not None or self.model.norm.weight.device.type == "cpu"

    def embed(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return the embeddings [B, S, H], and the table (or this rank's part of it), which a tied head shares."""
        table: Tensor = self.model.embed_tokens.weight
        kind, padding = self.half_type or table.dtype, self.made.padding
        local, others = (ids, None) if self.ranks is None else self.ranks.local(ids, len(table))
        if self.made.tied:
            rows, table = SHARED(table, local, kind)
        else:
            rows, table = nn.functional.embedding(local, table), table.new_empty(0, dtype=kind)
        if padding is not None:  # as in transformers, look-ups of this row leave no gradient
            rows = rows.detach().where((ids == padding)[..., None], rows)
        return (rows if others is None else left(rows.masked_fill(others[..., None], 0), self.ranks)), table


def _angles(frequencies: tuple[float, ...], scale: float, sequence: int) -> Tensor:
    """Return cosines and sines [2, S, pairs] in double precision."""
    turns = torch.outer(
        torch.arange(sequence, dtype=torch.float64, device="cpu"),
        torch.tensor(frequencies, dtype=torch.float64, device="cpu"),
    )
    return torch.stack([turns.cos(), turns.sin()]) * scale


def embedded(rows: Tensor, scale: float, half: torch.dtype) -> Tensor:
    return (rows if scale == 1.0 else rows * scale).to(half)


def ended(hidden: Tensor, gain: Tensor, made: Architecture) -> Tensor:
    """Return the states [B x (S - 1), H] after the last norm, of the positions that have a next token."""
    return normed(hidden[:, :-1], gain, made.epsilon, made.plus_one).flatten(0, 1)


def loss(
    last: Tensor, labels: Tensor, table: Tensor, gain: Tensor, cap: float | None, ranks: TensorGroup | None = None
) -> Tensor:
    """Return the mean cross entropy of labels [N], in the type of the weights."""
    scores = linear(entered(last, ranks), table)
    if cap is not None:
        scores = cap * torch.tanh(scores / cap)
    if ranks:
        return ranks.cross_entropy(scores, labels, gain.dtype).mean()
    if last.device.type == "cpu" and not torch.compiler.is_compiling():
        return MEAN(scores, labels, gain.new_ones(len(scores)))
    return cross_entropy(scores.to(gain.dtype), labels)


def capped_errors(cap: float, scores: Tensor, labels: Tensor, kind: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return what `errors` returns, of scores with a soft cap."""
    shares = torch.tanh(scores.to(kind) / cap)
    each, gradients = errors(shares * cap, labels, kind)
    return each, (gradients * (1 - shares * shares)).to(scores.dtype)


class HuggingFaceInTorch(TorchForm[Parameters, Decoder]):
    lacks = {
        "unpadded": "a decoder's samples have no padding that could be left out",
    }

    def build(self, spec: RunSpec[Parameters], facts: Values, at: torch.device | None = None) -> Decoder:
        if reason := WORKLOAD.lacks_form(spec, "torch"):
            raise Unsupported(reason)
        made = WORKLOAD.architecture(spec)
        entries = made.vocabulary if (facts.get("vocabulary") or 0) > made.vocabulary else None
        network = Decoder(made, spec.parameters.sequence, entries, spec.options.checkpointing)
        if at:
            network.attention = pin(at, _asked(spec, made))
        return network

    def blocks(self, network: Decoder) -> list[nn.Module]:
        return list(network.model.layers)

    def settings(self, network: Decoder) -> dict[str, Any]:
        made, tied = network.made, network.made.tied
        apart = "" if network.keeps_scores() else f"; {ROWS:,} at a time, with their gradients, and no scores are kept"
        return {
            "parameters": made.parameters,
            "architecture": f"{made.kind}, our own step",
            "vocabulary_rows": made.vocabulary,
            "vocabulary_head": "all positions but the last, "
            + ("sharing the token embeddings" if tied else "with a table of its own")
            + apart,
            "norm_epsilon": made.epsilon,
            "attention": network.attention and _words(network.attention, made),
            "dropout": [],
            "loss": "mean over the predicted words, of each replica",
        }


def _asked(spec: RunSpec[Parameters], made: Architecture) -> Asked:
    first = made.layers[0]
    masked = any(shape.window is not None for shape in made.layers)
    return Asked(spec.precision, first.heads, first.width, spec.parameters.sequence, 0.0, masked)


def _words(attention: Attention, made: Architecture) -> str:
    """Return the words of a record for how attention is computed."""
    apart = [shape for shape in made.layers if shape.cap is not None or shape.sinks]
    if not apart:
        return attention.words
    what = "sinks" if apart[0].sinks else "a soft cap"
    return f"single products and a softmax, because no kernel here has {what}"


FORM = HuggingFaceInTorch()
