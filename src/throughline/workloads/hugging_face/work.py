"""FLOPs of a Transformer, computed from its config.json: matrix products only, a multiply-add is 2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from throughline.workloads.hugging_face import architecture, library
from throughline.workloads.hugging_face.architecture import causal_pairs
from throughline.workloads.hugging_face.configuration import NotOurs
from throughline.workloads.workload import Decoder

Content = Mapping[str, Any]
GATED = {"llama", "mistral", "qwen2", "qwen3", "gemma", "gemma3_text", "phi3", "olmo2", "smollm3", "modernbert"}
"""Architectures whose feed-forward part has three matrices."""
PLAIN = {"gpt2", "bert", "roberta", "deberta-v2"}
"""Architectures whose feed-forward part has two matrices."""
TRANSFORMED = {"bert", "roberta", "deberta-v2", "modernbert"}
"""Architectures whose head has a square matrix before the vocabulary, as a decoder too."""


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
    given = library.language_model(content)
    kind = given["model_type"]
    if kind not in GATED | PLAIN and kind not in architecture.KINDS:
        raise NotCounted(f"the FLOPs of the architecture {kind} are not known here")
    try:
        if task == "clm":
            return of_parts(architecture.from_config(given, length), length)
    except NotOurs as reason:
        if kind not in GATED | PLAIN:
            raise NotCounted(f"the FLOPs of {kind} are not known here with {reason}") from None
    if task == "clm" and given.get("use_bidirectional_attention"):
        raise NotCounted("the FLOPs of attention in both directions are not known here for a task of the next word")
    return _from_numbers(given, task, length, batch)


def of_parts(made: architecture.Architecture, length: int) -> Decoder:
    """Return the FLOPs of an architecture. Of a mixture, each token is multiplied with the experts that it takes."""
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


def _from_numbers(given: Content, task: str, length: int, batch: int) -> Decoder:
    """Return the FLOPs by the numbers of a file, with the library's defaults."""
    kind, hidden = given["model_type"], _first(given, "hidden_size", "n_embd")
    layers, heads = _first(given, "num_hidden_layers", "n_layer"), _first(given, "num_attention_heads", "n_head")
    head_dim = int(given.get("head_dim") or hidden // heads)
    queries, keys = heads * head_dim, (given.get("num_key_value_heads") or heads) * head_dim
    inner = _first(given, "intermediate_size", "n_inner") or 4 * hidden
    matrices = layers * hidden * (2 * queries + 2 * keys + inner * (3 if kind in GATED else 2))
    before = 0.0  # what a sample needs beside the layers' matrices
    wide = hidden  # the width of the tokens' table
    if kind == "deberta-v2":
        wide = given.get("embedding_size") or hidden
        before = _deberta(given, length, batch) + (2 * length * hidden * wide if wide != hidden else 0)
    vocabulary = wide * int(given["vocab_size"])
    windows = [given["sliding_window"] if architecture.slides(given, layer) else None for layer in range(layers)]
    return Decoder(
        layers=2.0 * length * matrices + before,
        attention=4.0 * layers * length**2 * queries,
        seen=4.0 * queries * sum(causal_pairs(length, window) for window in windows),
        head=2.0 * length * (vocabulary + (hidden * wide if kind in TRANSFORMED else 0)),
        parameters=float(matrices + vocabulary * (1 if given.get("tie_word_embeddings", True) else 2)),
    )


def _deberta(given: Content, length: int, batch: int) -> float:
    """Return the FLOPs of DeBERTa's convolution and relative positions, forward (He et al. 2021).

    A batch projects its table of positions once. The library projects it for both kinds of relative attention, also if
    the model has only one: then the other is computed forward alone, a third of 3 x forward.
    """
    hidden, layers = given["hidden_size"], given["num_hidden_layers"]
    kernel = given.get("conv_kernel_size") or 0
    convolution: float = 2.0 * length * hidden * hidden * kernel / (given.get("conv_groups") or 1)
    if not given["relative_attention"]:
        return convolution
    sizes = (given.get("position_buckets", -1), given["max_relative_positions"])
    table = 2 * next((size for size in sizes if size > 0), given["max_position_embeddings"])
    kinds = given.get("pos_att_type") or []  # a list, or as published `p2c|c2p`
    count = len({"c2p", "p2c"} & set(kinds.split("|") if isinstance(kinds, str) else kinds))
    projected = count + ((2 - count) / 3 if given.get("share_att_key") else 0)
    return convolution + float(layers * 2 * table * hidden * (count * length + projected * hidden / batch))


def _first(given: Content, *names: str) -> int:
    """Return the value of the first of these keys that is stated, or 0."""
    return int(next((given[name] for name in names if given.get(name)), 0))
