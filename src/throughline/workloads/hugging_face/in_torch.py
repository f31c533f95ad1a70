"""Decoders in PyTorch, with our own operations: Llama, Mistral, Qwen, Gemma, OLMo 2, Phi-3, and mixtures of experts.

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
from torch.nn.functional import cross_entropy, linear
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from throughline.spec import RunSpec
from throughline.workloads import Arrays, Unsupported, Values
from throughline.workloads.hugging_face import WORKLOAD, Parameters, architecture, cut, in_torch_fp8
from throughline.workloads.hugging_face.architecture import Architecture, Layer
from throughline.workloads.hugging_face.in_torch_layer import SIDE_BY_SIDE, layer, normed
from throughline.workloads.in_torch_attention import HALF, Asked, Attention, pin
from throughline.workloads.in_torch_form import InParts, TorchForm, put
from throughline.workloads.in_torch_half import HalfCopy, Halved, Named, used
from throughline.workloads.in_torch_head import HEAD_LOSS, ROWS, errors
from throughline.workloads.in_torch_operations import MEAN, SHARED
from throughline.workloads.in_torch_tensor_parallel import TensorGroup, entered, gathered, scattered

GAINS = "norm.weight"
"""The last part of the names of norms' weights."""
GROUPED_KERNELS = ("flash", "cudnn")
"""The kernels of attention that take fewer heads of keys and values than of queries."""

ATEN = torch.ops.aten
KEPT = [
    ATEN.mm.default, ATEN.addmm.default, ATEN._scaled_mm.default, ATEN._grouped_mm.default,
    torch.ops.throughline.grouped.default,
    ATEN._scaled_dot_product_flash_attention.default,
    ATEN._scaled_dot_product_efficient_attention.default, ATEN._scaled_dot_product_cudnn_attention.default,
    ATEN._scaled_dot_product_flash_attention_for_cpu.default, torch.ops.torch_attn._varlen_attn.default,
]  # fmt: skip
"""What `activation_checkpointing: selective` keeps of a layer: products with weights, and attention."""


class Block(nn.Module):
    """The parameters of one layer. A call reads them, so ranks that shard the network can gather them before it."""

    halved: Named | None = None
    """The parameters with their copies in a 16-bit type, if there are such copies."""

    def __init__(self, shape: Layer) -> None:
        super().__init__()
        self.shape = shape
        declare(self, shape.shapes())

    def forward(self, hidden: Tensor, angles: Tensor, one_layer: Callable[..., Tensor]) -> Tensor:
        return one_layer(hidden, self.halved or dict(self.named_parameters()), angles, self.shape)

    def halve(self, copy: HalfCopy) -> None:
        """Keep copies of what a step casts: all but the gains of norms and the sinks. Projections that one product
        computes have one copy."""
        names, parameters = map(list, zip(*self.named_parameters(), strict=True))
        cast = [name for name in names if not name.endswith((GAINS, "sinks"))]
        packs = [[f"{part}_proj.{last}" for part in parts] for parts in SIDE_BY_SIDE for last in ("weight", "bias")]
        packs = [pack for pack in packs if pack[0] in cast]
        groups = packs + [[name] for name in cast if not any(name in pack for pack in packs)]
        places = tuple(tuple(names.index(name) for name in group) for group in groups)
        self.halved = Named(names, copy.of(parameters, places))


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

    With `half_type`, matrix products, attention and the states between them have the 16-bit type.
    """

    ranks: TensorGroup | None = None
    """The ranks that share this replica, if each holds a part of it."""
    holders: TensorGroup | None = None
    """The ranks that share the experts, if each holds a part of them."""
    halved: Halved | None = None
    """The head's table with its copy in a 16-bit type, if there is such a copy. A tied head shares the embeddings."""
    attention: Attention | None = None
    """The kernel of attention to which this process is pinned. None: PyTorch chooses."""
    model: Any
    lm_head: Any

    def __init__(
        self, made: Architecture, sequence_length: int, entries: int | None, activation_checkpointing: bool | str
    ) -> None:
        """entries: the size of the model's vocabulary if that of the data is larger, otherwise None."""
        super().__init__()
        self.made, self.entries, self.activation_checkpointing = made, entries, activation_checkpointing
        outside = {name: shape for name, shape in made.shapes().items() if ".layers." not in name}
        declare(self, outside)
        self.model.layers = nn.ModuleList(Block(shape) for shape in made.layers)
        shape = len(made.tables), 2, sequence_length, len(made.tables[0].values)
        self.angles = nn.Buffer(torch.empty(shape, dtype=torch.float64), persistent=False)
        head: Any = errors if made.softcap is None else partial(capped_errors, made.softcap)
        one_layer = kept if activation_checkpointing == "selective" else layer
        self.parts = (embedded, one_layer, loss, ended, head)

    @torch.no_grad()
    def draw(self) -> None:
        """Draw the initial weights: norms do nothing, biases are zero, and all else is normally distributed.

        Ranks that have split a tensor all draw the whole of it, one tensor after the other.
        """
        for table, angles in zip(self.made.tables, self.angles, strict=True):
            angles.copy_(_angles(table.values, table.scale, self.angles.shape[2]))
        shapes = self.made.shapes()
        for name, parameter in self.named_parameters():
            if name.endswith(GAINS):
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

    def forward(self, input_ids: Tensor, position_ids: Tensor | None = None, bounds: Tensor | None = None) -> Tensor:
        """Return the loss of input_ids [B, S]. Each token is the label of the position before it.

        position_ids [B, S] begin anew with each document, and bounds [documents + 1] are those of documents in a row,
        if documents do not see each other. Rotary positions need not begin anew, because only their differences count.
        """
        ids = input_ids.long()
        ids = ids if self.entries is None else ids % self.entries
        rows, table = self.embed(ids)
        hidden = self.parts[0](rows, self.made.scale, table.dtype)
        apart = {} if position_ids is None else {"documents": self.documents(position_ids, bounds)}
        one_layer: Callable[..., Tensor] = partial(
            self.parts[1], grouped=self.grouped(), ranks=self.ranks, holders=self.holders, **apart
        )
        if self.activation_checkpointing is True:  # the backward pass computes a layer's activations again
            one_layer = partial(checkpoint, one_layer, use_reentrant=False)
        gain = self.model.norm.weight
        tables = self.angles[:, :, : ids.shape[1]].to(torch.promote_types(gain.dtype, torch.float32))
        for block in self.model.layers:
            hidden = block(hidden, tables[block.shape.rotary], one_layer)
        last, labels = self.parts[3](hidden, gain, self.made, ids.shape[1], self.ranks), ids[:, 1:].flatten()
        if not self.made.tied:
            table = used(self.halved)[0] if self.halved else self.lm_head.weight.to(last.dtype)
        if self.keeps_scores():
            return self.parts[2](last, labels, table, gain, self.made.softcap, self.ranks)
        part: Any = self.parts[4]
        return HEAD_LOSS(last, table, labels, gain.dtype, part)

    def documents(self, position_ids: Tensor, bounds: Tensor | None) -> Tensor:
        """Return what tells a layer the documents apart (see `layer`)."""
        if bounds is None or not self.several_lengths:
            return (position_ids == 0).cumsum(1)
        self.of_any_length(bounds)
        return bounds

    def grouped(self) -> bool:
        return self.attention is None or self.attention.name in GROUPED_KERNELS

    def keeps_scores(self) -> bool:
        """True if the loss is computed from the scores of all positions at once: on a CPU, and where ranks share a
        replica."""
        return self.ranks is not None or self.model.norm.weight.device.type == "cpu"

    def embed(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return the embeddings [B, S, H] or this rank's rows [B x S / ranks, H] of them, and the table (or this rank's
        part of it), which a tied head shares."""
        table: Tensor = self.model.embed_tokens.weight
        kind, padding = self.half_type or table.dtype, self.made.padding
        local, others = (ids, None) if self.ranks is None else self.ranks.local(ids, len(table))
        if self.made.tied:
            rows, table = SHARED(table, local, kind, self.halved.copies[0] if self.halved else None)
        else:
            rows, table = nn.functional.embedding(local, table), table.new_empty(0, dtype=kind)
        if padding is not None:  # as in transformers, look-ups of this row leave no gradient
            rows = rows.detach().where((ids == padding)[..., None], rows)
        if self.ranks and others is not None:
            rows = scattered(rows.masked_fill(others[..., None], 0).flatten(0, 1), self.ranks)
        return rows, table


def _angles(frequencies: tuple[float, ...], scale: float, sequence_length: int) -> Tensor:
    """Return cosines and sines [2, S, pairs] in double precision."""
    turns = torch.outer(
        torch.arange(sequence_length, dtype=torch.float64, device="cpu"),
        torch.tensor(frequencies, dtype=torch.float64, device="cpu"),
    )
    return torch.stack([turns.cos(), turns.sin()]) * scale


def kept(hidden: Tensor, *given: Any, **more: Any) -> Tensor:
    """One layer whose products and attention are kept for the backward pass. It computes all else again."""
    result: Tensor = checkpoint(layer, hidden, *given, use_reentrant=False, context_fn=_contexts, **more)
    return result


def _contexts() -> Any:
    made: Any = create_selective_checkpoint_contexts  # it has no types
    return made(KEPT)


def embedded(rows: Tensor, scale: float, half: torch.dtype) -> Tensor:
    return (rows if scale == 1.0 else rows * scale).to(half)


def ended(hidden: Tensor, gain: Tensor, made: Architecture, sequence_length: int, ranks: TensorGroup | None) -> Tensor:
    """Return the states [B x (S - 1), H] after the last norm, of the positions that have a next token."""
    if ranks is None:
        return normed(hidden[:, :-1], gain, made.epsilon, made.unit_offset).flatten(0, 1)
    states = gathered(normed(hidden, entered(gain, ranks), made.epsilon, made.unit_offset), ranks)
    return states.view(-1, sequence_length, made.hidden)[:, :-1].flatten(0, 1)


def loss(
    last: Tensor, labels: Tensor, table: Tensor, gain: Tensor, cap: float | None, ranks: TensorGroup | None = None
) -> Tensor:
    """Return the mean cross entropy of labels [N], in the type of the weights."""
    scores = linear(last, table)
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
        with at or torch.device("cpu"):
            network = Decoder(made, spec.parameters.sequence_length, entries, spec.options.activation_checkpointing)
        if at is None or at.type != "meta":
            network.draw()
        if at and at.type != "meta":
            self._pin(network, spec, at)
        return network

    def draw(self, network: Decoder, spec: RunSpec[Parameters], at: torch.device) -> None:
        network.to_empty(device=at)
        network.draw()
        self._pin(network, spec, at)

    def _pin(self, network: Decoder, spec: RunSpec[Parameters], at: torch.device) -> None:
        asked = _asked(spec, network.made)
        network.attention = pin(at, asked)
        network.several_lengths = asked.several_lengths and at.type == "cuda" and network.attention.name == "flash"

    def blocks(self, network: Decoder) -> list[nn.Module]:
        return list(network.model.layers)

    def halve(self, network: Decoder, copy: HalfCopy) -> None:
        """Products in fp8 take the weights themselves, and so does what ranks do with the weights that they share. With
        checkpointing a layer's casts would be gone after its passes, and a copy would stay: 2 bytes a parameter."""
        if network.cut_by or network.activation_checkpointing or network.made.layers[0].fp8:
            return
        for block in network.model.layers:
            block.halve(copy)
        head = network.model.embed_tokens if network.made.tied else network.lm_head
        network.halved = copy.of([head.weight], ((0,),))

    def split(self, network: Decoder, ranks: TensorGroup) -> None:
        network.ranks, cuts = ranks, cut.of(network.made)
        ranks.cut(
            network, {name: axis for name, (axis, _) in cuts.items()}, {name: of for name, (_, of) in cuts.items()}
        )
        for block in self.blocks(network):
            layer_block: Any = block
            layer_block.shape = cut.part(layer_block.shape, ranks.size)

    def deal(self, network: Decoder, ranks: TensorGroup) -> frozenset[str]:
        network.holders = ranks
        ranks.cut(network, {name: 0 for name, _ in network.named_parameters() if ".mlp.experts." in name})
        return frozenset(ranks.dimensions)

    def weights(self, network: Decoder) -> Arrays:
        """If each rank holds a part of some parameters, all of them have to call this together."""
        return network.cut_by.whole_arrays(network) if network.cut_by else super().weights(network)

    def load(self, network: Decoder, weights: Arrays) -> None:
        super().load(network, network.cut_by.own_arrays(weights) if network.cut_by else weights)

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
            **({"experts": network.holders and _travel(network.holders)} if network.holders else {}),
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
