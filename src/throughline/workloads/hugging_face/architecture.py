"""The architecture of a decoder, from its config.json: what each layer computes, and the names and shapes of its
parameters, which are those of transformers.

Where a file leaves out a number, transformers has a default for it. The defaults here are the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from throughline.workloads.hugging_face import rotary
from throughline.workloads.hugging_face.configuration import NotOurs

Content = Mapping[str, Any]
Shapes = dict[str, tuple[int, ...]]

COMMON: dict[str, Any] = {
    "hidden_act": "silu", "rms_norm_eps": 1e-6, "initializer_range": 0.02, "tie_word_embeddings": False,
    "attention_bias": False, "mlp_bias": False, "num_key_value_heads": None, "head_dim": None, "sliding_window": None,
}  # fmt: skip
GEMMA = {
    "hidden_act": "gelu_pytorch_tanh", "tie_word_embeddings": True, "head_dim": 256, "num_key_value_heads": 4,
    "query_pre_attn_scalar": 256, "sliding_window": 4096, "pad_token_id": 0,
}  # fmt: skip
QWEN = {"num_key_value_heads": 32, "sliding_window": 4096, "max_window_layers": 28}
MIXTURE = {"decoder_sparse_step": 1, "norm_topk_prob": False}
OSS = {
    "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
    "original_max_position_embeddings": 4096,
}  # fmt: skip
KINDS: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {"num_key_value_heads": 8, "sliding_window": 4096},
    "qwen2": QWEN,
    "qwen2_moe": QWEN
    | MIXTURE
    | {"num_key_value_heads": 16, "qkv_bias": True, "num_experts": 60, "num_experts_per_tok": 4}
    | {"moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632},
    "qwen3": {**QWEN, "head_dim": 128},
    "qwen3_moe": QWEN
    | MIXTURE
    | {"num_key_value_heads": 4, "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768},
    "mixtral": {"rms_norm_eps": 1e-5, "num_key_value_heads": 8, "num_experts": 8, "num_experts_per_tok": 2}
    | {"rope_theta": 1e6},
    "gemma2": {**GEMMA, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
    "gemma3_text": {**GEMMA, "sliding_window_pattern": 6},
    "olmo2": {"rms_norm_eps": 1e-5, "pad_token_id": 1},
    "phi3": {"rms_norm_eps": 1e-5, "pad_token_id": 32000},
    "gpt_oss": {"rms_norm_eps": 1e-5, "num_key_value_heads": 8, "head_dim": 64, "attention_bias": True}
    | {"sliding_window": 128, "num_experts": 128, "num_experts_per_tok": 4, "rope_theta": 150000.0}
    | {"swiglu_alpha": 1.702, "swiglu_limit": 7.0, "rope_default": OSS},
}
"""Map each architecture (`model_type`) that our own step trains to those defaults that are not COMMON's."""
ALTERNATING = {"gemma2", "gpt_oss"}
"""Architectures whose first layer, third layer and so on have a sliding window, unless `layer_types` says otherwise."""
ACTIVATIONS = {
    "silu": "silu", "swish": "silu", "gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}  # fmt: skip
"""Map transformers' names of activations to ours."""


@dataclass(frozen=True)
class Experts:
    """A mixture: each token takes `chosen` of `count` experts, each with a width of `inner`.

    renormalised: the weights of the chosen experts add up to 1. shared: the width of an expert that all tokens take;
    0: there is none. `limit` and `alpha`: those of gpt_oss's gated activation.
    """

    count: int
    chosen: int
    inner: int
    renormalised: bool
    shared: int = 0
    limit: float | None = None
    alpha: float = 0.0


@dataclass(frozen=True)
class Layer:
    """What one layer computes. Layers with equal values share one compiled function.

    groups: the heads of keys and values. width: of a head. window: how many positions a position sees, itself included;
    None: all before it. cap: the soft cap of scores. sinks: every head has a score that goes to no position. plus_one:
    a norm multiplies by 1 + its weight. norms: where they stand in the residual branches. head_norms: the norms of
    queries and keys, of each head or of all heads together. packed: query, key and value are one matrix, and so are
    gate and up. table: which table of rotary positions it has. fp8: how products in fp8 are scaled
    (`options.fp8_scaling`); None: they have the type of the hidden states.
    """

    hidden: int
    heads: int
    groups: int
    width: int
    inner: int
    scale: float
    epsilon: float
    activation: str
    window: int | None = None
    cap: float | None = None
    sinks: bool = False
    plus_one: bool = False
    norms: Literal["before", "after", "both"] = "before"
    head_norms: Literal["none", "each", "all"] = "none"
    packed: bool = False
    biased: tuple[str, ...] = ()
    experts: Experts | None = None
    table: int = 0
    fp8: str | None = None

    def shapes(self) -> Shapes:
        """Return the shapes of the layer's parameters by their names in transformers."""
        query, key = self.heads * self.width, self.groups * self.width
        matrices: Shapes = {"q": (query, self.hidden), "k": (key, self.hidden), "v": (key, self.hidden)}
        if self.packed:
            matrices = {"qkv": (query + 2 * key, self.hidden)}
        shapes: Shapes = {}
        for name, shape in {**matrices, "o": (self.hidden, query)}.items():
            shapes[f"self_attn.{name}_proj.weight"] = shape
            if name in self.biased:
                shapes[f"self_attn.{name}_proj.bias"] = shape[:1]
        if self.sinks:
            shapes["self_attn.sinks"] = (self.heads,)
        if self.head_norms != "none":
            each = self.head_norms == "each"
            shapes["self_attn.q_norm.weight"] = (self.width if each else query,)
            shapes["self_attn.k_norm.weight"] = (self.width if each else key,)
        shapes |= _mixture(self, self.experts) if self.experts else _dense("mlp", self)
        return shapes | {f"{name}.weight": (self.hidden,) for name in NORMS[self.norms] if name}

    def multiplied(self) -> int:
        """Return how many elements of the layer's matrices a token is multiplied with: of a mixture, those of the
        experts that it chooses."""
        shapes, experts = self.shapes(), self.experts
        every = sum(math.prod(shape) for name, shape in shapes.items() if len(shape) > 1 and "bias" not in name)
        return every - 3 * (experts.count - experts.chosen) * self.hidden * experts.inner if experts else every

    def pairs(self, sequence_length: int) -> int:
        """Return how many pairs of positions the causal mask and the window let through."""
        near = min(self.window or sequence_length, sequence_length)
        return near * (near + 1) // 2 + (sequence_length - near) * near


NORMS = {
    "before": ("input_layernorm", None, "post_attention_layernorm", None),
    "after": (None, "post_attention_layernorm", None, "post_feedforward_layernorm"),
    "both": (
        "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm",
    ),
}  # fmt: skip
"""Transformers' names of the norms before and after attention, and before and after the feed-forward part."""


def _dense(name: str, layer: Layer, inner: int | None = None) -> Shapes:
    width = inner or layer.inner
    matrices: Shapes = {"gate": (width, layer.hidden), "up": (width, layer.hidden)}
    if layer.packed:
        matrices = {"gate_up": (2 * width, layer.hidden)}
    shapes: Shapes = {}
    for part, shape in {**matrices, "down": (layer.hidden, width)}.items():
        shapes[f"{name}.{part}_proj.weight"] = shape
        if part in layer.biased:
            shapes[f"{name}.{part}_proj.bias"] = shape[:1]
    return shapes


def _mixture(layer: Layer, experts: Experts) -> Shapes:
    count, inner, hidden = experts.count, experts.inner, layer.hidden
    if experts.limit is not None:  # gpt_oss keeps [inputs, outputs], and has biases
        return {
            "mlp.router.weight": (count, hidden),
            "mlp.router.bias": (count,),
            "mlp.experts.gate_up_proj": (count, hidden, 2 * inner),
            "mlp.experts.gate_up_proj_bias": (count, 2 * inner),
            "mlp.experts.down_proj": (count, inner, hidden),
            "mlp.experts.down_proj_bias": (count, hidden),
        }
    shapes: Shapes = {
        "mlp.gate.weight": (count, hidden),
        "mlp.experts.gate_up_proj": (count, 2 * inner, hidden),
        "mlp.experts.down_proj": (count, hidden, inner),
    }
    if experts.shared:
        shapes |= {"mlp.shared_expert_gate.weight": (1, hidden)} | _dense("mlp.shared_expert", layer, experts.shared)
    return shapes


@dataclass(frozen=True)
class Architecture:
    """A decoder. `padding`: the row of the embeddings that gets no gradient from look-ups. `cap`: the soft cap of the
    vocabulary's scores. `scale`: embeddings are multiplied by it. `tables`: the rotary positions that layers use."""

    kind: str
    vocabulary: int
    hidden: int
    layers: tuple[Layer, ...]
    tables: tuple[rotary.Frequencies, ...]
    epsilon: float
    deviation: float
    tied: bool
    plus_one: bool
    scale: float = 1.0
    cap: float | None = None
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


def of(content: Content, sequence_length: int) -> Architecture:
    """Return the architecture for samples of this length. Raise NotOurs if our own step does not train it, and KeyError
    if the file lacks a number."""
    kind = content["model_type"]
    if kind not in KINDS:
        raise NotOurs(f"the architecture {kind!r}")
    given = {**COMMON, **KINDS[kind], **content}
    _refuse(given, content)
    types = _types(given)
    tables = rotary.tables(given, sequence_length, _width(given))
    made: dict[tuple[Any, ...], Layer] = {}  # equal layers are one object
    layers = []
    for number in range(given["num_hidden_layers"]):
        layer = _layer(given, number, types[number], sequence_length)
        layers.append(made.setdefault(tuple(getattr(layer, field.name) for field in fields(layer)), layer))
    gemma = kind.startswith("gemma")
    return Architecture(
        kind=kind,
        vocabulary=given["vocab_size"],
        hidden=given["hidden_size"],
        layers=tuple(layers),
        tables=tables,
        epsilon=given["rms_norm_eps"],
        deviation=given["initializer_range"],
        tied=bool(given["tie_word_embeddings"]),
        plus_one=gemma,
        scale=given["hidden_size"] ** 0.5 if gemma else 1.0,
        cap=given.get("final_logit_softcapping"),
        padding=given.get("pad_token_id"),
    )


def _refuse(given: Content, content: Content) -> None:
    """Raise NotOurs if the file asks for something that our own step does not compute."""
    activation = _activation(given)
    reasons = {
        f"the activation {activation!r}": activation not in ACTIVATIONS,
        "attention in both directions": bool(given.get("use_bidirectional_attention")),
        "a loss that balances experts (output_router_logits)": bool(given.get("output_router_logits")),
        "noise in its router (router_jitter_noise)": bool(given.get("router_jitter_noise")),
        "layers of another type than full or sliding attention (layer_types)": bool(
            set(content.get("layer_types") or ()) - {"full_attention", "sliding_attention"}
        ),
        "fewer types of layers (layer_types) than layers": 0
        < len(content.get("layer_types") or ())
        < given["num_hidden_layers"],
        "layers of several widths (intermediate_size)": isinstance(given.get("intermediate_size"), list),
        "quantized weights (quantization_config)": "quantization_config" in content
        and given["model_type"] != "gpt_oss",
    }
    for what, holds in reasons.items():
        if holds:
            raise NotOurs(what)


def _activation(given: Content) -> str:
    return str(given.get("hidden_activation") or given["hidden_act"])


def _width(given: Content) -> int:
    return int(given["head_dim"] or given["hidden_size"] // given["num_attention_heads"])


def _types(given: Content) -> list[str]:
    """Return for each layer whether it has a sliding window."""
    kind, count, stated = given["model_type"], given["num_hidden_layers"], given.get("layer_types")
    chosen = bool(given["sliding_window"]) and (bool(given.get("use_sliding_window")) or not kind.startswith("qwen"))
    by_list = kind in ALTERNATING or kind in ("qwen2", "qwen2_moe", "qwen3", "gemma3_text")
    if by_list and not chosen and "sliding_attention" in (stated or ()):
        raise NotOurs("layers with a sliding window (layer_types) whose width it does not state (sliding_window)")
    if not chosen or kind in ("llama", "olmo2"):
        slides = [False] * count
    elif kind in ("mistral", "mixtral", "phi3", "qwen3_moe"):
        slides = [True] * count
    elif stated:
        slides = [name == "sliding_attention" for name in stated[:count]]
    elif kind in ALTERNATING:
        slides = [number % 2 == 0 for number in range(count)]
    elif kind == "gemma3_text":
        slides = [bool((number + 1) % given["sliding_window_pattern"]) for number in range(count)]
    elif kind == "qwen2_moe":
        slides = [number % 2 == 0 and number < given["max_window_layers"] for number in range(count)]
    else:
        slides = [number >= given["max_window_layers"] for number in range(count)]
    return ["sliding_attention" if slide else "full_attention" for slide in slides]


def _layer(given: Content, number: int, attention: str, sequence_length: int) -> Layer:
    kind, heads, width = given["model_type"], given["num_attention_heads"], _width(given)
    window = given["sliding_window"] if attention == "sliding_attention" else None
    local = attention == "sliding_attention" and kind == "gemma3_text"
    gemma = kind.startswith("gemma")
    norms: Literal["before", "after", "both"] = "both" if gemma else "after" if kind == "olmo2" else "before"
    head_norms: Literal["none", "each", "all"] = "none"
    if kind in ("qwen3", "qwen3_moe", "gemma3_text"):
        head_norms = "each"
    elif kind == "olmo2":
        head_norms = "all"
    return Layer(
        hidden=given["hidden_size"],
        heads=heads,
        groups=given["num_key_value_heads"] or heads,
        width=width,
        inner=given["intermediate_size"],
        scale=(given["query_pre_attn_scalar"] if gemma else width) ** -0.5,
        epsilon=given["rms_norm_eps"],
        activation=ACTIVATIONS[_activation(given)],
        window=window if window and window < sequence_length else None,
        cap=given.get("attn_logit_softcapping") if kind == "gemma2" else None,
        sinks=kind == "gpt_oss",
        plus_one=gemma,
        norms=norms,
        head_norms=head_norms,
        packed=kind == "phi3",
        biased=_biased(given),
        experts=_experts(given, number),
        table=int(local),
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
    if kind in ("mixtral", "gpt_oss"):
        oss = kind == "gpt_oss"
        limit, alpha = (given["swiglu_limit"], given["swiglu_alpha"]) if oss else (None, 0.0)
        return Experts(count, given["num_experts_per_tok"], given["intermediate_size"], not oss, 0, limit, alpha)
    if kind not in ("qwen2_moe", "qwen3_moe"):
        return None
    dense = number in (given.get("mlp_only_layers") or ()) or (number + 1) % given["decoder_sparse_step"] != 0
    if dense or not count:
        return None
    shared = given["shared_expert_intermediate_size"] if kind == "qwen2_moe" else 0
    chosen, inner = given["num_experts_per_tok"], given["moe_intermediate_size"]
    return Experts(count, chosen, inner, bool(given["norm_topk_prob"]), shared)
