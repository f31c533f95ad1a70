"""Decoders in PyTorch, as plain modules: Llama, Mistral, Qwen, Gemma, OLMo 2, Phi-3, and mixtures of experts.

A config.json says what a layer computes (`architecture.py`), and `in_torch_layer.py` computes it. Parameters have the
names and shapes that they have in transformers. A test compares losses and gradients with transformers' own models.

There is no pipeline parallelism (each device has some of the layers) and no context parallelism (each device has some
of a sample's tokens). So the largest models can be measured in a worse layout than the one they are trained in. Llama
3.1 405B needs 16 bytes a parameter, 6.5 TB, for weights, gradients and states alone: 82 GPUs of 80 GB. Here it can only
be split by `sharding: full_shard` and by `tensor_parallel` within a node, so every device gathers its part of all
layers in each pass, over the network. Programs that split it into stages send the states of a few layers' borders
instead. And a sample has to fit one replica: 128k tokens do not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from throughline.spec import RunSpec
from throughline.workloads import Arrays, Unsupported, Values
from throughline.workloads.hugging_face import WORKLOAD, Parameters, cut, in_torch_fp8
from throughline.workloads.hugging_face.architecture import Architecture
from throughline.workloads.hugging_face.in_torch_layer import Block, Norm
from throughline.workloads.in_torch_attention import HALF, Asked, Attention, pin
from throughline.workloads.in_torch_form import Network, TorchForm, put
from throughline.workloads.in_torch_head import HEAD_LOSS, ROWS, errors
from throughline.workloads.in_torch_operations import MEAN, SHARED
from throughline.workloads.in_torch_tensor_parallel import TensorGroup, gathered, scattered

GROUPED_KERNELS = ("flash", "cudnn")
"""The kernels of attention that take fewer heads of keys and values than of queries."""


class Decoder(Network):
    """A decoder with its head and its loss. `forward` takes the tensors of a batch; the mean is over all predicted
    tokens."""

    holders: TensorGroup | None = None
    """The ranks that share the experts, if each holds a part of them."""
    attention: Attention | None = None
    """The kernel of attention to which this process is pinned. None: PyTorch chooses."""

    def __init__(
        self, made: Architecture, sequence_length: int, entries: int | None, activation_checkpointing: bool | str
    ) -> None:
        """entries: the size of the model's vocabulary if that of the data is larger, otherwise None."""
        super().__init__()
        self.made, self.entries, self.activation_checkpointing = made, entries, activation_checkpointing is True
        self.model: Any = nn.Module()
        self.model.embed_tokens = nn.Embedding(made.vocabulary, made.hidden)
        self.model.norm = Norm(made.hidden, made.layers[0])
        self.model.layers = nn.ModuleList(
            Block(layer, activation_checkpointing == "selective") for layer in made.layers
        )
        self.lm_head = None if made.tied else nn.Linear(made.hidden, made.vocabulary, bias=False)
        shape = len(made.tables), 2, sequence_length, len(made.tables[0].values)
        self.angles = nn.Buffer(torch.empty(shape, dtype=torch.float64), persistent=False)
        self.errors: Callable[..., Any] = errors if made.softcap is None else partial(capped_errors, made.softcap)

    @torch.no_grad()
    def draw(self) -> None:
        """Draw the initial weights: norms do nothing, biases are zero, and all else is normally distributed.

        Ranks that have split a tensor all draw the whole of it, one tensor after the other.
        """
        for table, angles in zip(self.made.tables, self.angles, strict=True):
            positions = torch.arange(self.angles.shape[2], dtype=torch.float64, device="cpu")
            turns = torch.outer(positions, torch.tensor(table.values, dtype=torch.float64, device="cpu"))
            angles.copy_(torch.stack([turns.cos(), turns.sin()]) * table.scale)
        shapes = self.made.shapes()
        for name, parameter in self.named_parameters():
            if name.endswith("norm.weight"):
                parameter.fill_(0.0 if self.made.unit_offset else 1.0)
            elif name.endswith("bias"):
                parameter.zero_()
            else:
                drawn = torch.empty(shapes[name], dtype=parameter.dtype, device=parameter.device)
                drawn.normal_(std=self.made.deviation)
                put(parameter, self.cut_by.own(name, drawn) if self.cut_by else drawn)

    @property
    def cut_by(self) -> TensorGroup | None:
        """The ranks that each hold parts of some parameters; None if this rank holds whole ones."""
        return self.ranks or self.holders

    def parts(self) -> list[tuple[nn.Module, str]]:
        layers = [(block, "forward") for block in self.model.layers]
        return [(self, "begun"), *layers, (self, "ended"), (self, "errors")]

    def forward(self, input_ids: Tensor, position_ids: Tensor | None = None, bounds: Tensor | None = None) -> Tensor:
        """Return the loss of input_ids [B, S]. Each token is the label of the position before it.

        position_ids [B, S] begin anew with each document, and bounds [documents + 1] are those of documents in a row,
        if documents do not see each other. Rotary positions need not begin anew, because only their differences count.
        """
        ids = input_ids.long()
        ids = ids if self.entries is None else ids % self.entries
        rows, table = self.embedded(ids)
        hidden, documents = self.begun(rows, table.dtype), self.documents(position_ids, bounds)
        kind = self.model.norm.weight.dtype
        angles = self.angles[:, :, : ids.shape[1]].to(torch.promote_types(kind, torch.float32))
        for block in self.model.layers:
            with self.autocast():  # for each layer anew, so that none keeps its cast weights longer than it has to
                hidden = self.call(block, hidden, angles[block.layer.rotary], documents)
        last, labels = self.ended(hidden, ids.shape[1]), ids[:, 1:].flatten()
        if self.lm_head is not None:
            table = self.lm_head.weight.to(last.dtype)
        if not self.keeps_scores():
            return HEAD_LOSS(last, table, labels, kind, self.errors)
        scores = linear(last, table)
        if (cap := self.made.softcap) is not None:
            scores = cap * torch.tanh(scores / cap)
        if self.ranks:
            return self.ranks.cross_entropy(scores, labels, kind).mean()
        return MEAN(scores, labels, last.new_ones(len(scores), dtype=kind))

    def documents(self, position_ids: Tensor | None, bounds: Tensor | None) -> Tensor | None:
        """Return what tells a layer the documents apart (see `Block`)."""
        if position_ids is None:
            return None
        if bounds is None or not self.several_lengths:
            return (position_ids == 0).cumsum(1)
        self.of_any_length(bounds)
        return bounds

    def keeps_scores(self) -> bool:
        """True if the loss is computed from the scores of all positions at once: on a CPU, and where ranks share a
        replica."""
        return self.ranks is not None or self.model.norm.weight.device.type == "cpu"

    def embedded(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return the embeddings [B, S, H] or this rank's rows [B x S / ranks, H] of them, and the table (or this rank's
        part of it), which a tied head shares."""
        table: Tensor = self.model.embed_tokens.weight
        kind, padding = self.half_type or table.dtype, self.made.padding
        local, others = (ids, None) if self.ranks is None else self.ranks.local(ids, len(table))
        if self.made.tied:
            rows, table = SHARED(table, local, kind)
        else:
            rows, table = nn.functional.embedding(local, table), table.new_empty(0, dtype=kind)
        if padding is not None:  # as in transformers, look-ups of this row leave no gradient
            rows = rows.detach().where((ids == padding)[..., None], rows)
        if self.ranks and others is not None:
            rows = scattered(rows.masked_fill(others[..., None], 0).flatten(0, 1), self.ranks)
        return rows, table

    def begun(self, rows: Tensor, kind: torch.dtype) -> Tensor:
        """Return the states before the first layer."""
        return (rows if self.made.scale == 1.0 else rows * self.made.scale).to(kind)

    def ended(self, hidden: Tensor, sequence_length: int) -> Tensor:
        """Return the states [B x (S - 1), H] after the last norm, of the positions that have a next token."""
        if self.ranks is None:
            last: Tensor = self.model.norm(hidden[:, :-1])
            return last.flatten(0, 1)
        states = gathered(self.model.norm(hidden), self.ranks)
        return states.view(-1, sequence_length, self.made.hidden)[:, :-1].flatten(0, 1)


def capped_errors(cap: float, scores: Tensor, labels: Tensor, kind: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return what `errors` returns, of scores with a soft cap."""
    shares = torch.tanh(scores.to(kind) / cap)
    each, gradients = errors(shares * cap, labels, kind)
    return each, (gradients * (1 - shares * shares)).to(scores.dtype)


class HuggingFaceInTorch(TorchForm[Parameters, Decoder]):
    lacks = {"remove_padding": "a decoder's samples have no padding that could be left out"}
    draws_on_device = True
    draws_in_parts = True

    def build(self, spec: RunSpec[Parameters], facts: Values, at: torch.device | None = None) -> Decoder:
        if reason := WORKLOAD.lacks_form(spec, "torch"):
            raise Unsupported(reason)
        made = WORKLOAD.architecture(spec)
        positions = spec.size.batch_per_replica * spec.parameters.sequence_length
        if positions % spec.options.tensor_parallel:
            ranks = spec.options.tensor_parallel
            raise Unsupported(f"options.tensor_parallel: {ranks} ranks cannot have equal parts of {positions} tokens")
        if spec.options.expert_parallel > 1 and (reason := _unspreadable(made, spec.options.expert_parallel)):
            raise Unsupported(reason)
        if spec.precision == "fp8":
            made = _in_fp8(made, spec)
        entries = made.vocabulary if (facts.get("vocabulary") or 0) > made.vocabulary else None
        with torch.device("meta"):
            network = Decoder(made, spec.parameters.sequence_length, entries, spec.options.activation_checkpointing)
        if at is None or at.type != "meta":
            self.draw(network, spec, at)
        return network

    def draw(self, network: Decoder, spec: RunSpec[Parameters], at: torch.device | None) -> None:
        network.to_empty(device=at or "cpu")
        network.draw()
        if at:
            self._pin(network, spec, at)

    def _pin(self, network: Decoder, spec: RunSpec[Parameters], at: torch.device) -> None:
        asked = _asked(spec, network.made)
        network.attention = pin(at, asked)
        network.several_lengths = asked.several_lengths and at.type == "cuda" and network.attention.name == "flash"
        for block in network.model.layers:
            block.self_attn.grouped = network.attention.name in GROUPED_KERNELS

    def blocks(self, network: Decoder) -> list[nn.Module]:
        return list(network.model.layers)

    def split(self, network: Decoder, ranks: TensorGroup) -> None:
        cuts = cut.of(network.made)
        ranks.cut(
            network, {name: axis for name, (axis, _) in cuts.items()}, {name: of for name, (_, of) in cuts.items()}
        )
        for module in network.modules():
            if hasattr(module, "ranks"):
                module.ranks = ranks  # type: ignore[assignment]

    def deal(self, network: Decoder, ranks: TensorGroup) -> frozenset[str]:
        ranks.cut(network, {name: 0 for name, _ in network.named_parameters() if ".mlp.experts." in name})
        for module in network.modules():
            if hasattr(module, "holders"):
                module.holders = ranks  # type: ignore[assignment]
        return frozenset(ranks.dimensions)

    def weights(self, network: Decoder) -> Arrays:
        """If each rank holds a part of some parameters, all of them have to call this together."""
        return network.cut_by.whole_arrays(network) if network.cut_by else super().weights(network)

    def load(self, network: Decoder, weights: Arrays) -> None:
        super().load(network, network.holders.own_arrays(weights) if network.holders else weights)

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
            **({"experts": _travel(network.holders)} if network.holders else {}),
            "dropout": [],
            "loss": "mean over the predicted words, of each replica",
        } | ({"products": in_torch_fp8.WORDS[fp8] + in_torch_fp8.REST} if (fp8 := made.layers[0].fp8) else {})


def _in_fp8(made: Architecture, spec: RunSpec[Parameters]) -> Architecture:
    """Return the architecture with its layers' products in fp8; Unsupported if they cannot be."""
    tokens = spec.size.batch_per_replica * spec.parameters.sequence_length
    if reason := in_torch_fp8.refused(made, tokens, spec.options.tensor_parallel):
        raise Unsupported(reason)
    in_fp8 = {layer: replace(layer, fp8=spec.options.fp8_scaling) for layer in made.layers}  # equal layers stay one
    return replace(made, layers=tuple(in_fp8[layer] for layer in made.layers))


def _unspreadable(made: Architecture, ranks: int) -> str | None:
    """Return why ranks cannot share a decoder's experts; None if they can."""
    counts = {shape.experts.count for shape in made.layers if shape.experts}
    if not counts:
        return f"options.expert_parallel: {made.kind} has no experts in its layers"
    uneven = [count for count in counts if count % ranks]
    return f"options.expert_parallel: {ranks} ranks cannot hold equal parts of {uneven[0]} experts" if uneven else None


def _asked(spec: RunSpec[Parameters], made: Architecture) -> Asked:
    first = made.layers[0]
    precision = "bf16" if spec.precision == "fp8" else spec.precision
    apart = spec.parameters.attention == "document"
    in_a_row = apart and precision in HALF and first.softcap is None and not first.sinks
    masked = (apart or any(shape.window is not None for shape in made.layers)) and not in_a_row
    return Asked(precision, first.heads, first.head_dim, spec.parameters.sequence_length, 0.0, masked, in_a_row)


def _travel(ranks: TensorGroup) -> str:
    return f"each of {ranks.size} ranks holds a part, and tokens travel by all-to-all; none is dropped"


def _words(attention: Attention, made: Architecture) -> str:
    """Return the words of a record for how attention is computed."""
    apart = [shape for shape in made.layers if shape.softcap is not None or shape.sinks]
    if not apart:
        return attention.words
    what = "sinks" if apart[0].sinks else "a soft cap"
    return f"single products and a softmax, because no kernel here has {what}"


FORM = HuggingFaceInTorch()
