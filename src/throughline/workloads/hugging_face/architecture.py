"""The architecture of a decoder, from its config.json: what each layer computes, and the names and shapes of its
parameters, which are those of transformers.

Where a file leaves out a number, `library.py` knows the default of transformers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from throughline.workloads.hugging_face import library, rotary
from throughline.workloads.hugging_face.configuration import NotOurs

Content = Mapping[str, Any]
Shapes = dict[str, tuple[int, ...]]
Norms = Literal["before", "after", "both"]
HeadNorms = Literal["none", "each", "all"]

KINDS = (
    "llama", "mistral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "mixtral", "gemma2", "gemma3_text", "olmo2", "phi3",
    "gpt_oss",
)  # fmt: skip
"""The architectures (`model_type`) that our own step trains."""
SLIDES_EVERYWHERE = {"mistral", "mixtral", "phi3", "qwen3_moe"}
"""Architectures whose layers all have a sliding window, if the file states its width."""
SLIDES: dict[str, Callable[[Content, int], bool]] = {
    "gemma2": lambda given, number: number % 2 == 0,
    "gpt_oss": lambda given, number: number % 2 == 0,
    "gemma3_text": lambda given, number: bool((number + 1) % given.get("sliding_window_pattern", 6)),
    "qwen2": lambda given, number: number >= given["max_window_layers"],
    "qwen3": lambda given, number: number >= given["max_window_layers"],
    "qwen2_moe": lambda given, number: number % 2 == 0 and number < given["max_window_layers"],
    "smollm3": lambda given, number: not _rotates(given, number),
}
"""Map an architecture to the rule by which a layer of this number has a sliding window, where `layer_types` does not
say it. A test holds the rules against transformers."""
NORMS_AT: dict[str, Norms] = {"gemma2": "both", "gemma3_text": "both", "olmo2": "after"}
HEAD_NORMS: dict[str, HeadNorms] = {"qwen3": "each", "qwen3_moe": "each", "gemma3_text": "each", "olmo2": "all"}
ACTIVATIONS = {
    "silu": "silu", "swish": "silu", "gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}  # fmt: skip
"""Map transformers' names of activations to ours."""
NORMS: dict[Norms, tuple[str | None, ...]] = {
    "before": ("input_layernorm", None, "post_attention_layernorm", None),
    "after": (None, "post_attention_layernorm", None, "post_feedforward_layernorm"),
    "both": (
        "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm",
    ),
}  # fmt: skip
"""Transformers' names of the norms before and after attention, and before and after the feed-forward part."""


@dataclass(frozen=True)
class Experts:
    """A mixture: each token takes `top_k` of `count` experts, each with a width of `intermediate`.

    renormalised: the weights of a token's experts add up to 1. shared: the width of an expert that all tokens take;
    0: there is none. `limit` and `alpha`: those of gpt_oss's gated activation.
    """

    count: int
    top_k: int
    intermediate: int
    renormalised: bool
    shared: int = 0
    limit: float | None = None
    alpha: float = 0.0

    def shapes(self, hidden: int) -> Shapes:
        count, inner = self.count, self.intermediate
        if self.limit is not None:  # gpt_oss keeps [inputs, outputs], and has biases
            return {
                "router.weight": (count, hidden),
                "router.bias": (count,),
                "experts.gate_up_proj": (count, hidden, 2 * inner),
                "experts.gate_up_proj_bias": (count, 2 * inner),
                "experts.down_proj": (count, inner, hidden),
                "experts.down_proj_bias": (count, hidden),
            }
        shapes: Shapes = {
            "gate.weight": (count, hidden),
            "experts.gate_up_proj": (count, 2 * inner, hidden),
            "experts.down_proj": (count, hidden, inner),
        }
        if self.shared:
            wide, narrow = (self.shared, hidden), (hidden, self.shared)
            matrices = {"gate": wide, "up": wide, "down": narrow}
            shapes["shared_expert_gate.weight"] = (1, hidden)
            shapes |= {f"shared_expert.{name}_proj.weight": shape for name, shape in matrices.items()}
        return shapes


@dataclass(frozen=True)
class Layer:
    """What one layer computes. Layers with equal values share one compiled function.

    window: how many positions a position sees, itself included; None: all before it. softcap: the soft cap of scores.
    sinks: every head has a score that goes to no position. unit_offset: a norm multiplies by 1 + its weight. norms:
    where they stand in the residual branches. head_norms: the norms of queries and keys, of each head or of all heads
    together. packed: query, key and value are one matrix, and so are gate and up. biased: the projections that have a
    bias. rotary: the number of its table of rotary positions. fp8: how products in fp8 are scaled
    (`options.fp8_scaling`); None: they have the type of the hidden states.
    """

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    scale: float
    epsilon: float
    activation: str
    window: int | None = None
    softcap: float | None = None
    sinks: bool = False
    unit_offset: bool = False
    norms: Norms = "before"
    head_norms: HeadNorms = "none"
    packed: bool = False
    biased: tuple[str, ...] = ()
    experts: Experts | None = None
    rotary: int = 0
    fp8: str | None = None

    @property
    def query_width(self) -> int:
        return self.heads * self.head_dim

    @property
    def key_width(self) -> int:
        return self.kv_heads * self.head_dim

    def shapes(self) -> Shapes:
        """Return the shapes of the layer's parameters by their names in transformers."""
        hidden, query, key, inner = self.hidden, self.query_width, self.key_width, self.intermediate
        attention = {"q": (query, hidden), "k": (key, hidden), "v": (key, hidden)}
        feed = {"gate": (inner, hidden), "up": (inner, hidden)}
        if self.packed:
            attention, feed = {"qkv": (query + 2 * key, hidden)}, {"gate_up": (2 * inner, hidden)}
        matrices = {f"self_attn.{name}": shape for name, shape in (attention | {"o": (hidden, query)}).items()}
        if not self.experts:
            matrices |= {f"mlp.{name}": shape for name, shape in (feed | {"down": (hidden, inner)}).items()}
        shapes: Shapes = {f"{name}_proj.weight": shape for name, shape in matrices.items()}
        biased = {name: shape for name, shape in matrices.items() if name.rpartition(".")[2] in self.biased}
        shapes |= {f"{name}_proj.bias": shape[:1] for name, shape in biased.items()}
        if self.sinks:
            shapes["self_attn.sinks"] = (self.heads,)
        if self.head_norms != "none":
            widths = (self.head_dim, self.head_dim) if self.head_norms == "each" else (query, key)
            shapes["self_attn.q_norm.weight"], shapes["self_attn.k_norm.weight"] = ((width,) for width in widths)
        if self.experts:
            shapes |= {f"mlp.{name}": shape for name, shape in self.experts.shapes(hidden).items()}
        return shapes | {f"{name}.weight": (hidden,) for name in NORMS[self.norms] if name}

    def multiplied(self) -> int:
        """Return how many elements of the layer's matrices a token is multiplied with: of a mixture, those of the
        experts that it takes."""
        shapes, experts = self.shapes(), self.experts
        total = sum(math.prod(shape) for name, shape in shapes.items() if len(shape) > 1 and "bias" not in name)
        idle = experts.count - experts.top_k if experts else 0
        return total - 3 * idle * self.hidden * experts.intermediate if experts else total

    def pairs(self, sequence_length: int) -> int:
        return causal_pairs(sequence_length, self.window)


def causal_pairs(sequence_length: int, window: int | None) -> int:
    """Return the number of pairs in a causal mask. Each position sees itself and those before it, at most `window`."""
    near = min(window or sequence_length, sequence_length)
    return near * (near + 1) // 2 + (sequence_length - near) * near


@dataclass(frozen=True)
class Architecture:
    """A decoder. `padding`: the row of the embeddings that gets no gradient from look-ups. `softcap`: the soft cap of
    the vocabulary's scores. `scale`: embeddings are multiplied by it. `tables`: the rotary positions that layers use.
    """

    kind: str
    vocabulary: int
    hidden: int
    layers: tuple[Layer, ...]
    tables: tuple[rotary.Frequencies, ...]
    epsilon: float
    deviation: float
    tied: bool
    unit_offset: bool
    scale: float = 1.0
    softcap: float | None = None
    padding: int | None = None

    def shapes(self) -> Shapes:
        """Return the shapes of all parameters by their names in transformers."""
        shapes: Shapes = {"model.embed_tokens.weight": (self.vocabulary, self.hidden)}
        for number, layer in enumerate(self.layers):
            shapes |= {f"model.layers.{number}.{name}": shape for name, shape in layer.shapes().items()}
        shapes["model.norm.weight"] = (self.hidden,)
        return shapes if self.tied else shapes | {"lm_head.weight": (self.vocabulary, self.hidden)}

    @property
    def parameters(self) -> int:
        return sum(map(math.prod, self.shapes().values()))

    def splits(self) -> dict[str, int]:
        """Map what tensor parallelism splits to how many of it the model has. The number of ranks has to divide all."""
        sizes = {"vocabulary rows": self.vocabulary}
        for layer in self.layers:
            sizes["heads of keys and values"] = layer.kv_heads
            if layer.experts:
                sizes["columns of an expert"] = layer.experts.intermediate
                sizes |= {"columns of the shared expert": layer.experts.shared} if layer.experts.shared else {}
            else:
                sizes["columns of the feed-forward part"] = layer.intermediate
        return sizes


def from_config(content: Content, sequence_length: int) -> Architecture:
    """Return the architecture for samples of this length. Raise NotOurs if our own step does not train it."""
    given = library.language_model(content)
    kind = given["model_type"]
    if kind not in KINDS:
        raise NotOurs(f"the architecture {kind!r}")
    _refuse(given)
    layers = [_layer(given, number, sequence_length) for number in range(given["num_hidden_layers"])]
    equal = {layer: layer for layer in layers}  # equal layers are one object
    gemma = kind.startswith("gemma")
    return Architecture(
        kind=kind,
        vocabulary=given["vocab_size"],
        hidden=given["hidden_size"],
        layers=tuple(equal[layer] for layer in layers),
        tables=rotary.tables(given, sequence_length, head_dim(given)),
        epsilon=given["rms_norm_eps"],
        deviation=given["initializer_range"],
        tied=given["tie_word_embeddings"],
        unit_offset=gemma,
        scale=given["hidden_size"] ** 0.5 if gemma else 1.0,
        softcap=given.get("final_logit_softcapping"),
        padding=given.get("pad_token_id"),
    )


def _rotates(given: Content, number: int) -> bool:
    """Return whether a layer of SmolLM3 has rotary positions."""
    listed = given.get("no_rope_layers")  # 1 for a layer that has them, in spite of the name
    return bool(listed[number] if listed else (number + 1) % given["no_rope_layer_interval"])


def head_dim(given: Content) -> int:
    return int(given.get("head_dim") or given["hidden_size"] // given["num_attention_heads"])


def _refuse(given: Content) -> None:
    """Raise NotOurs if the file asks for something that our own step does not compute."""
    activation = _activation(given)
    other_types = set(given.get("layer_types") or ()) - {"full_attention", "sliding_attention"}
    reasons = {
        f"the activation {activation!r}": activation not in ACTIVATIONS,
        "attention in both directions": given.get("use_bidirectional_attention"),
        "a loss that balances experts (output_router_logits)": given.get("output_router_logits"),
        "noise in its router (router_jitter_noise)": given.get("router_jitter_noise"),
        "layers of another type than full or sliding attention (layer_types)": other_types,
    }
    for what, holds in reasons.items():
        if holds:
            raise NotOurs(what)


def _activation(given: Content) -> str:
    return str(given.get("hidden_activation") or given["hidden_act"])


def slides(given: Content, number: int) -> bool:
    """Return whether a layer has a sliding window."""
    kind, types = given["model_type"], given.get("layer_types")
    switched = kind.startswith(("qwen", "smollm3"))
    used = bool(given.get("sliding_window")) and bool(given.get("use_sliding_window") or not switched)
    if kind not in SLIDES:
        return used and kind in SLIDES_EVERYWHERE
    if used:
        return types[number] == "sliding_attention" if types else SLIDES[kind](given, number)
    if "sliding_attention" in (types or ()):
        raise NotOurs("layers with a sliding window (layer_types) whose width it does not state (sliding_window)")
    return False


def _layer(given: Content, number: int, sequence_length: int) -> Layer:
    kind, heads, width = given["model_type"], given["num_attention_heads"], head_dim(given)
    gemma, window = kind.startswith("gemma"), given["sliding_window"] if slides(given, number) else None
    return Layer(
        hidden=given["hidden_size"],
        heads=heads,
        kv_heads=given["num_key_value_heads"] or heads,
        head_dim=width,
        intermediate=given["intermediate_size"],
        scale=(given["query_pre_attn_scalar"] if gemma else width) ** -0.5,
        epsilon=given["rms_norm_eps"],
        activation=ACTIVATIONS[_activation(given)],
        window=window if window and window < sequence_length else None,
        softcap=given.get("attn_logit_softcapping") if kind == "gemma2" else None,
        sinks=kind == "gpt_oss",
        unit_offset=gemma,
        norms=NORMS_AT.get(kind, "before"),
        head_norms=HEAD_NORMS.get(kind, "none"),
        packed=kind == "phi3",
        biased=_biased(given),
        experts=_experts(given, number),
        rotary=int(window is not None and kind == "gemma3_text"),
    )


def _biased(given: Content) -> tuple[str, ...]:
    """Return the names of the projections that have a bias."""
    kind = given["model_type"]
    if kind in ("mistral", "mixtral", "phi3"):
        return ()
    if kind in ("qwen2", "qwen2_moe"):
        return ("q", "k", "v") if given.get("qkv_bias", True) else ()
    attention = ("q", "k", "v", "o") if given["attention_bias"] else ()
    return attention + (("gate", "up", "down") if kind == "llama" and given["mlp_bias"] else ())


def _experts(given: Content, number: int) -> Experts | None:
    """Return the mixture of a layer; None if its feed-forward part is dense."""
    kind = given["model_type"]
    count = int(given.get("num_local_experts") or given.get("num_experts") or 0)
    if kind == "mixtral":
        return Experts(count, given["num_experts_per_tok"], given["intermediate_size"], True)
    if kind == "gpt_oss":
        limit, alpha = given["swiglu_limit"], given["swiglu_alpha"]
        return Experts(count, given["num_experts_per_tok"], given["intermediate_size"], False, limit=limit, alpha=alpha)
    if kind not in ("qwen2_moe", "qwen3_moe") or not count:
        return None
    if number in (given.get("mlp_only_layers") or ()) or (number + 1) % given["decoder_sparse_step"]:
        return None
    shared = given["shared_expert_intermediate_size"] if kind == "qwen2_moe" else 0
    top_k, intermediate = given["num_experts_per_tok"], given["moe_intermediate_size"]
    return Experts(count, top_k, intermediate, bool(given["norm_topk_prob"]), shared)
