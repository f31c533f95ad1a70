"""How ranks that share a replica cut a decoder (`options.tensor_parallel`): heads, columns of feed-forward parts and of
experts, and rows of the vocabulary. All else is whole on every rank."""

from __future__ import annotations

from throughline.workloads.hugging_face.architecture import Architecture, Layer

Cut = tuple[int, tuple[int, ...]]
"""The dimension along which a parameter is cut, and the sizes of its sections there, each of which is cut; none if it
is one matrix."""


def of(made: Architecture) -> dict[str, Cut]:
    """Map each parameter that is cut, by its name in transformers, to how it is cut."""
    outside: dict[str, Cut] = {"model.embed_tokens.weight": (0, ())}
    if not made.tied:
        outside["lm_head.weight"] = (0, ())
    each = {layer: of_layer(layer) for layer in set(made.layers)}
    inside = {
        f"model.layers.{number}.{name}": how
        for number, layer in enumerate(made.layers)
        for name, how in each[layer].items()
    }
    return outside | inside


def of_layer(layer: Layer) -> dict[str, Cut]:
    query, key = layer.heads * layer.head_dim, layer.kv_heads * layer.head_dim
    cuts: dict[str, Cut] = {"self_attn.sinks": (0, ()), "self_attn.qkv_proj.weight": (0, (query, key, key))}
    if layer.head_norms == "all":
        cuts |= {f"self_attn.{name}_norm.weight": (0, ()) for name in "qk"}
    for name in ("self_attn.q", "self_attn.k", "self_attn.v", *_dense("gate"), *_dense("up")):
        cuts |= {f"{name}_proj.weight": (0, ()), f"{name}_proj.bias": (0, ())}
    cuts |= {f"{name}_proj.weight": (1, ()) for name in ("self_attn.o", *_dense("down"))}
    cuts["mlp.gate_up_proj.weight"] = 0, (layer.intermediate, layer.intermediate)
    if experts := layer.experts:
        in_turn = experts.limit is not None  # gpt_oss: [inputs, outputs], gate and up in turn
        both: Cut = (2, ()) if in_turn else (1, (experts.intermediate, experts.intermediate))
        cuts |= {"mlp.experts.gate_up_proj": both, "mlp.experts.gate_up_proj_bias": (1, ())}
        cuts["mlp.experts.down_proj"] = (1 if in_turn else 2), ()
    return {name: how for name, how in cuts.items() if name in layer.shapes()}


def _dense(matrix: str) -> tuple[str, str]:
    return f"mlp.{matrix}", f"mlp.shared_expert.{matrix}"
