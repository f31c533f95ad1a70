"""FLOPs of a Transformer, computed from its config.json: matrix products only, a multiply-add is 2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from throughline.workloads.decoder import Decoder
from throughline.workloads.hugging_face import architecture
from throughline.workloads.hugging_face.configuration import NotOurs

GATED = {"llama", "mistral", "qwen2", "qwen3", "gemma", "gemma3_text", "phi3", "olmo2", "smollm3", "modernbert"}
"""Architectures whose feed-forward part has three matrices."""
PLAIN = {"gpt2", "bert", "roberta", "deberta-v2"}
"""Architectures whose feed-forward part has two matrices."""
HIDDEN = ("hidden_size", "n_embd")
LAYERS = ("num_hidden_layers", "n_layer")
HEADS = ("num_attention_heads", "n_head")


def trained(content: Mapping[str, Any], task: str, length: int, batch: int, *, causal: bool = False) -> float | str:
    """Return the FLOPs to train on a sample of `length` tokens, 3 x forward; or why they are not known.

    Attention counts all pairs of positions; with `causal`, only the pairs that the mask of a decoder lets through.
    `batch` is needed for DeBERTa, which projects its table of relative positions once for a whole batch.
    """
    kind = content["model_type"]
    try:
        if reason := _contradiction(content):
            return reason
        if task == "clm" and (made := _ours(content, length)):
            parts = of_parts(made, length)
            return 3.0 * (parts.layers + (parts.seen if causal else parts.attention) + parts.head)
        if kind not in GATED | PLAIN:
            return f"the FLOPs of the architecture {kind} are not known here"
        return 3.0 * _forward(content, task, length, batch, causal)
    except KeyError as error:
        return f"config.json does not state {error.args[0]}"


def _contradiction(content: Mapping[str, Any]) -> str | None:
    """Return why nobody can count the FLOPs of a config.json's layers; None if they can be counted."""
    kinds, layers = content.get("layer_types"), content.get("num_hidden_layers", 0)
    if kinds and len(kinds) < layers:
        return f"config.json states the types of {len(kinds)} layers (layer_types), and has {layers} layers"
    if isinstance(content.get("intermediate_size"), list):
        return "the FLOPs of layers with several widths (intermediate_size) are not known here"
    return None


def _forward(content: Mapping[str, Any], task: str, length: int, batch: int, causal: bool) -> float:
    hidden, layers, heads = (_stated(content, *names) for names in (HIDDEN, LAYERS, HEADS))
    head = int(content.get("head_dim") or hidden // heads)
    queries, keys = heads * head, (content.get("num_key_value_heads") or heads) * head
    inner = content.get("intermediate_size") or content.get("n_inner") or 4 * hidden
    matrices = hidden * (2 * queries + 2 * keys + inner * (3 if content["model_type"] in GATED else 2))
    pairs = sum(seen(length, window(content, layer)) for layer in range(layers)) if causal else layers * length**2
    flops: float = layers * 2 * length * matrices + 4 * pairs * queries
    if content["model_type"] == "deberta-v2" and content.get("relative_attention"):
        buckets = content.get("position_buckets", -1)
        table = 2 * (buckets if buckets > 0 else content["max_position_embeddings"])
        flops += layers * len(content["pos_att_type"]) * 2 * table * hidden * (length + hidden / batch)
    transform = hidden * hidden if task == "mlm" else 0
    return flops + 2 * length * (transform + hidden * int(content["vocab_size"]))


def decoder(content: Mapping[str, Any], length: int) -> Decoder | None:
    """Return the FLOPs of a decoder by parts; None if they are not known."""
    full, causal = (trained(content, "clm", length, 1, causal=causal) for causal in (False, True))
    if isinstance(full, str) or isinstance(causal, str):
        return None
    if made := _ours(content, length):
        return of_parts(made, length)
    hidden, layers, heads = (_stated(content, *names) for names in (HIDDEN, LAYERS, HEADS))
    queries = heads * int(content.get("head_dim") or hidden // heads)
    attention, head = 4.0 * layers * length**2 * queries, 2.0 * length * hidden * int(content["vocab_size"])
    products = full / 3 - attention
    tables = 0 if content.get("tie_word_embeddings", True) else hidden * int(content["vocab_size"])
    return Decoder(
        layers=products - head,
        attention=attention,
        seen=attention - (full - causal) / 3,
        head=head,
        parameters=products / (2 * length) + tables,
    )


def _ours(content: Mapping[str, Any], length: int) -> architecture.Architecture | None:
    try:
        return architecture.of(content, length)
    except NotOurs:
        return None


def of_parts(made: architecture.Architecture, length: int) -> Decoder:
    """Return the FLOPs of a decoder whose architecture our own step knows. Of a mixture, each token is multiplied with
    the experts that it chooses."""
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
    return sum(4.0 * layer.heads * layer.width * each for layer, each in zip(made.layers, pairs, strict=True))


def window(content: Mapping[str, Any], layer: int) -> int | None:
    """Return how many positions a position of this layer sees, including itself; None for all."""
    width = content.get("sliding_window")
    if not width or content.get("use_sliding_window") is False:
        return None
    if kinds := content.get("layer_types"):
        return int(width) if kinds[layer] == "sliding_attention" else None
    every = content.get("sliding_window_pattern")
    return None if every and (layer + 1) % every == 0 else int(width)


def seen(length: int, width: int | None) -> int:
    """Return the number of pairs in a causal mask. Each position sees itself and those before it, at most `width`."""
    near = min(width or length, length)
    return near * (near + 1) // 2 + (length - near) * near


def _stated(content: Mapping[str, Any], *names: str) -> int:
    """Return the value of the first of these names that a config.json has; KeyError if it has none."""
    return int(next((content[name] for name in names if name in content), None) or content[names[0]])
