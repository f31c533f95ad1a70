"""FLOPs of a Transformer, computed from its config.json: matrix products only, a multiply-add is 2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from throughline.workloads.hugging_face import architecture
from throughline.workloads.hugging_face.architecture import causal_pairs
from throughline.workloads.hugging_face.configuration import NotOurs, NotStated
from throughline.workloads.workload import Decoder

Content = Mapping[str, Any]
GATED = {"llama", "mistral", "qwen2", "qwen3", "gemma", "gemma3_text", "phi3", "olmo2", "smollm3", "modernbert"}
"""Architectures whose feed-forward part has three matrices."""
PLAIN = {"gpt2", "bert", "roberta", "deberta-v2"}
"""Architectures whose feed-forward part has two matrices."""


class NotCounted(ValueError):
    """The FLOPs of a model are not known. The text says why."""


def trained(content: Content, task: str, length: int, batch: int, *, causal: bool = False) -> float | str:
    """Return the FLOPs to train on a sample of `length` tokens, 3 x forward; or why they are not known.

    Attention counts all pairs of positions; with `causal`, only the pairs that the mask of a decoder lets through.
    `batch` is needed for DeBERTa, which projects its table of relative positions once for a whole batch.
    """
    try:
        parts = forward(content, task, length, batch)
    except NotCounted as reason:
        return str(reason)
    return 3.0 * (parts.layers + (parts.seen if causal else parts.attention) + parts.head)


def decoder(content: Content, length: int) -> Decoder | None:
    """Return the FLOPs of a decoder by parts; None if they are not known."""
    try:
        return forward(content, "clm", length, 1)
    except NotCounted:
        return None


def forward(content: Content, task: str, length: int, batch: int) -> Decoder:
    """Return the FLOPs of the forward pass on one sample, by parts. Raise NotCounted if they are not known."""
    kind, types, layers = content["model_type"], content.get("layer_types"), content.get("num_hidden_layers", 0)
    if types and len(types) < layers:
        raise NotCounted(f"config.json states the types of {len(types)} layers (layer_types), and has {layers} layers")
    if isinstance(content.get("intermediate_size"), list):
        raise NotCounted("the FLOPs of layers with several widths (intermediate_size) are not known here")
    try:
        if task == "clm":
            return of_parts(architecture.from_config(content, length), length)
    except NotStated as name:
        raise NotCounted(f"config.json does not state {name}") from None
    except NotOurs:
        pass  # the numbers of config.json can be enough
    if kind not in GATED | PLAIN:
        raise NotCounted(f"the FLOPs of the architecture {kind} are not known here")
    try:
        return _from_numbers(content, task, length, batch)
    except KeyError as error:
        raise NotCounted(f"config.json does not state {error.args[0]}") from None


def of_parts(made: architecture.Architecture, length: int) -> Decoder:
    """Return the FLOPs of a decoder whose architecture our own step knows. Of a mixture, each token is multiplied with
    the experts that it takes."""
    matrices = sum(layer.multiplied() for layer in made.layers)
    tables = made.vocabulary * made.hidden * (1 if made.tied else 2)
    return Decoder(
        layers=2.0 * length * matrices,
        attention=attention(made, [float(length**2)] * len(made.layers)),
        seen=attention(made, [float(layer.pairs(length)) for layer in made.layers]),
        head=2.0 * length * made.hidden * made.vocabulary,
        parameters=float(matrices + tables),
    )


def attention(made: architecture.Architecture, pairs: list[float]) -> float:
    """Return the FLOPs of attention, forward, in which each layer has so many pairs of positions."""
    return sum(4.0 * layer.query_width * count for layer, count in zip(made.layers, pairs, strict=True))


def _from_numbers(content: Content, task: str, length: int, batch: int) -> Decoder:
    hidden = _stated(content, "hidden_size", "n_embd")
    layers = _stated(content, "num_hidden_layers", "n_layer")
    heads = _stated(content, "num_attention_heads", "n_head")
    head_dim = int(content.get("head_dim") or hidden // heads)
    queries, keys = heads * head_dim, (content.get("num_key_value_heads") or heads) * head_dim
    inner = content.get("intermediate_size") or content.get("n_inner") or 4 * hidden
    matrices = layers * hidden * (2 * queries + 2 * keys + inner * (3 if content["model_type"] in GATED else 2))
    products: float = 2 * length * matrices
    if content["model_type"] == "deberta-v2" and content.get("relative_attention"):
        sizes = (content.get("position_buckets", -1), content.get("max_relative_positions", -1))
        table = 2 * next((size for size in sizes if size > 0), content["max_position_embeddings"])
        kinds = content["pos_att_type"]  # a list, or as published `p2c|c2p`
        count = len(kinds.split("|")) if isinstance(kinds, str) else len(kinds)
        products += layers * count * 2 * table * hidden * (length + hidden / batch)
    vocabulary = hidden * int(content["vocab_size"])
    return Decoder(
        layers=products,
        attention=4.0 * layers * length**2 * queries,
        seen=4.0 * queries * sum(causal_pairs(length, window(content, layer)) for layer in range(layers)),
        head=2.0 * length * (vocabulary + (hidden * hidden if task == "mlm" else 0)),
        parameters=float(matrices + vocabulary * (1 if content.get("tie_word_embeddings", True) else 2)),
    )


def window(content: Content, layer: int) -> int | None:
    """Return how many positions a position of this layer sees, including itself; None for all."""
    width = content.get("sliding_window")
    if not width or content.get("use_sliding_window") is False:
        return None
    if types := content.get("layer_types"):
        return int(width) if types[layer] == "sliding_attention" else None
    pattern = content.get("sliding_window_pattern")
    return None if pattern and (layer + 1) % pattern == 0 else int(width)


def _stated(content: Content, *names: str) -> int:
    """Return the value of the first of these names that a config.json has; KeyError if it has none."""
    return int(next((content[name] for name in names if name in content), None) or content[names[0]])
