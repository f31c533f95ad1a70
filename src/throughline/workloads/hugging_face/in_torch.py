"""Decoders in PyTorch, as plain modules: Llama, Mistral, Qwen, Gemma, OLMo 2, Phi-3, and mixtures of experts.

A config.json says what a layer computes (`architecture.py`), and `in_torch_layer.py` computes it. Parameters have the
names and shapes that they have in transformers. A test compares losses and gradients with transformers' own models.

There is no pipeline parallelism and no context parallelism, so a sample has to fit one replica: 128k tokens do not. The
largest models, such as Llama 3.1 405B (6.5 TB for weights, gradients and states), can only be split by `sharding:
full_shard` and `tensor_parallel`: every device gathers its part of all layers in each pass, over the network.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from throughline.spec import RunSpec
from throughline.workloads import Unsupported, Values
from throughline.workloads.hugging_face import WORKLOAD, Parameters, in_torch_flex, in_torch_fp8, library
from throughline.workloads.hugging_face.architecture import Architecture, Layer
from throughline.workloads.hugging_face.in_torch_layer import Block, Norm
from throughline.workloads.in_torch_attention import HALF, Asked, Attention, pin
from throughline.workloads.in_torch_form import Network, TorchForm, put
from throughline.workloads.in_torch_head import HEAD_LOSS, ROWS, errors
from throughline.workloads.in_torch_operations import MEAN, SHARED
from throughline.workloads.in_torch_tensor_parallel import Sections, TensorGroup, gathered, scattered

GROUPED_KERNELS = ("flash", "cudnn")
"""The kernels of attention that take fewer heads of keys and values than of queries."""


class Decoder(Network):
    """A decoder with its head and its loss. `forward` takes the tensors of a batch; the mean is over all predicted
    tokens."""

    unused: str | None = None
    """What the training leaves out of config.json."""
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
        selective = activation_checkpointing == "selective"
        self.model.layers = nn.ModuleList(Block(layer, selective) for layer in made.layers)
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
                put(parameter, self.cut_by.part_of(name, drawn) if self.cut_by else drawn)

    @property
    def cut_by(self) -> TensorGroup | None:
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
        hidden, seen = self.begun(rows, table.dtype), self.seen(ids, self.documents(position_ids, bounds))
        kind = self.model.norm.weight.dtype
        angles = self.angles[:, :, : ids.shape[1]].to(torch.promote_types(kind, torch.float32))
        for block in self.model.layers:
            with self.autocast():  # for each layer anew, so that none keeps its cast weights longer than it has to
                hidden = self.call(block, hidden, angles[block.layer.rotary], seen[block.layer.window])
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

    def seen(self, ids: Tensor, documents: Tensor | None) -> dict[int | None, Any]:
        """Map the windows of layers to what tells a layer which tokens see each other (see `Block`)."""
        windows = dict.fromkeys(layer.window for layer in self.made.layers)
        if self.attention is not in_torch_flex.KERNEL:
            return dict.fromkeys(windows, documents)
        size = ids.shape[1], ids.device
        return {window: in_torch_flex.block_mask(window, documents, *size) for window in windows}

    def documents(self, position_ids: Tensor | None, bounds: Tensor | None) -> Tensor | None:
        """Return what tells a layer the documents apart (see `Block`)."""
        if bounds is not None and self.several_lengths:
            self.of_any_length(bounds)
            return bounds
        return None if position_ids is None else (position_ids == 0).cumsum(1)

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
        options, tokens = spec.options, spec.size.batch_per_replica * spec.parameters.sequence_length
        if tokens % (ranks := options.tensor_parallel):
            raise Unsupported(f"options.tensor_parallel: {ranks} ranks cannot have equal parts of {tokens} tokens")
        if options.expert_parallel > 1:
            _refuse_experts(made, options.expert_parallel)
        if spec.precision == "fp8":
            made = in_torch_fp8.with_products(made, tokens, options)
        entries = made.vocabulary if (facts.get("vocabulary") or 0) > made.vocabulary else None
        with torch.device("meta"):
            network = Decoder(made, spec.parameters.sequence_length, entries, options.activation_checkpointing)
        network.unused = library.unused(WORKLOAD.content(spec))
        if at is None or at.type != "meta":
            self.draw(network, spec, at)
        return network

    def draw(self, network: Decoder, spec: RunSpec[Parameters], at: torch.device | None) -> None:
        network.to_empty(device=at or "cpu")
        network.draw()
        if at:
            self.pin(network, spec, at)

    def pin(self, network: Decoder, spec: RunSpec[Parameters], at: torch.device) -> None:
        asked = _asked(spec, network.made)
        network.attention = pin(at, asked)
        if spec.parameters.attention_kernel == "flex":
            in_torch_flex.refuse(at, bool(spec.options.compile))
            network.attention = in_torch_flex.KERNEL
            return
        network.several_lengths = asked.several_lengths and at.type == "cuda" and network.attention.name == "flash"
        for block in network.model.layers:
            block.self_attn.grouped = network.attention.name in GROUPED_KERNELS

    def blocks(self, network: Decoder) -> list[nn.Module]:
        return list(network.model.layers)

    def split(self, network: Decoder, ranks: TensorGroup) -> None:
        cuts = tensor_cuts(network.made)
        dimensions = {name: dimension for name, (dimension, _) in cuts.items()}
        ranks.cut(network, dimensions, {name: sections for name, (_, sections) in cuts.items()})
        for module in network.modules():
            if hasattr(module, "ranks"):
                module.ranks = ranks  # type: ignore[assignment]

    def split_experts(self, network: Decoder, ranks: TensorGroup) -> frozenset[str]:
        ranks.cut(network, {name: 0 for name, _ in network.named_parameters() if ".mlp.experts." in name})
        for module in network.modules():
            if hasattr(module, "holders"):
                module.holders = ranks  # type: ignore[assignment]
        return frozenset(ranks.dimensions)

    def settings(self, network: Decoder) -> dict[str, Any]:
        made = network.made
        table = "sharing the token embeddings" if made.tied else "with a table of its own"
        in_parts = f"; {ROWS:,} at a time, with their gradients, and no scores are kept" * (not network.keeps_scores())
        settings = {
            "parameters": made.parameters,
            "architecture": f"{made.kind}, our own step",
            "vocabulary_rows": made.vocabulary,
            "vocabulary_head": f"all positions but the last, {table}{in_parts}",
            "norm_epsilon": made.epsilon,
            "attention": network.attention and _words(network.attention, made),
            "dropout": [],
            "loss": "mean over the predicted words, of each replica",
        }
        if holders := network.holders:
            words = f"each of {holders.size} ranks holds a part, and tokens travel by all-to-all; none is dropped"
            settings["experts"] = words
        if fp8 := made.layers[0].fp8:
            settings["products"] = in_torch_fp8.WORDS[fp8]
        if network.unused:
            settings["config_json"] = network.unused
        return settings


def tensor_cuts(made: Architecture) -> dict[str, tuple[int, Sections]]:
    """Map each parameter that ranks of a replica split to the dimension of the cut, and to the sizes of its sections
    there, each of which is cut; (): it is one matrix. All else is whole on every rank."""
    cuts: dict[str, tuple[int, Sections]] = {"model.embed_tokens.weight": (0, ()), "lm_head.weight": (0, ())}
    for number, layer in enumerate(made.layers):
        cuts |= {f"model.layers.{number}.{name}": how for name, how in _layer_cuts(layer).items()}
    return {name: cuts[name] for name in made.shapes() if name in cuts}


@cache
def _layer_cuts(layer: Layer) -> dict[str, tuple[int, Sections]]:
    """By heads, by columns of the feed-forward part, and by columns of every expert."""
    query, key, inner = layer.query_width, layer.key_width, layer.intermediate
    cuts: dict[str, tuple[int, Sections]] = {"self_attn.sinks": (0, ()), "self_attn.o_proj.weight": (1, ())}
    for name in ("self_attn.q", "self_attn.k", "self_attn.v", "mlp.gate", "mlp.up"):
        cuts |= {f"{name}_proj.weight": (0, ()), f"{name}_proj.bias": (0, ())}
    for name in ("mlp", "mlp.shared_expert"):
        cuts |= {f"{name}.gate_proj.weight": (0, ()), f"{name}.up_proj.weight": (0, ())}
        cuts[f"{name}.down_proj.weight"] = 1, ()
    if layer.packed:
        cuts["self_attn.qkv_proj.weight"], cuts["mlp.gate_up_proj.weight"] = (0, (query, key, key)), (0, (inner, inner))
    if layer.head_norms == "all":
        cuts["self_attn.q_norm.weight"] = cuts["self_attn.k_norm.weight"] = 0, ()
    if experts := layer.experts:
        in_turn, width = experts.limit is not None, experts.intermediate  # gpt_oss: [inputs, outputs], gate, up in turn
        cuts["mlp.experts.gate_up_proj"] = (2, ()) if in_turn else (1, (width, width))
        cuts["mlp.experts.gate_up_proj_bias"] = 1, ()
        cuts["mlp.experts.down_proj"] = (1 if in_turn else 2), ()
    return cuts


def _refuse_experts(made: Architecture, ranks: int) -> None:
    """Raise Unsupported if ranks cannot share a decoder's experts."""
    counts = {layer.experts.count for layer in made.layers if layer.experts}
    if not counts:
        raise Unsupported(f"options.expert_parallel: {made.kind} has no experts in its layers")
    for count in counts:
        if count % ranks:
            raise Unsupported(f"options.expert_parallel: {ranks} ranks cannot hold equal parts of {count} experts")


def _asked(spec: RunSpec[Parameters], made: Architecture) -> Asked:
    first = made.layers[0]
    precision = "bf16" if spec.precision == "fp8" else spec.precision
    within = spec.parameters.attention == "document"
    in_a_row = within and precision in HALF and first.softcap is None and not first.sinks
    masked = (within or any(layer.window is not None for layer in made.layers)) and not in_a_row
    return Asked(precision, first.heads, first.head_dim, spec.parameters.sequence_length, 0.0, masked, in_a_row)


def _words(attention: Attention, made: Architecture) -> str:
    """Return the words of a record for how attention is computed."""
    layers = [layer for layer in made.layers if layer.softcap is not None or layer.sinks]
    if not layers or attention is in_torch_flex.KERNEL:
        return attention.words
    what = "sinks" if layers[0].sinks else "a soft cap"
    return f"single products and a softmax, because no kernel here has {what}"


FORM = HuggingFaceInTorch()
