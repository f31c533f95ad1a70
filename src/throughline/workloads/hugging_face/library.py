"""What transformers makes of a config.json: the part of the language model, with the library's defaults, and whether
its values are of the types that the library takes.

Planning does so without the library, from `resources/transformers.json`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from throughline.files import resource

Content = Mapping[str, Any]
FILE = "transformers.json"
COUNTS = (
    "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size",
    "max_position_embeddings", "n_embd", "n_layer", "n_head", "n_inner", "n_positions", "vocab_size",
)  # fmt: skip
UNUSED = ("auto_map", "quantization_config")
"""Keys that change nothing in a training from random weights by the library's own code."""
TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    "int": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
    "number": ((int, float), "a number"),
    "bool": ((bool,), "true or false"),
    "str": ((str,), "a text"),
}


@cache
def _file() -> dict[str, Any]:
    return dict(json.loads(resource(FILE).read_text(encoding="utf-8")))


def version() -> str:
    return str(_file()["version"])


def architecture(kind: str) -> dict[str, Any] | None:
    """Return what `checks/transformers_defaults.py` says of an architecture; None if the library has no such one."""
    return _file()["architectures"].get(kind)  # type: ignore[no-any-return]


def part(content: Content) -> Content:
    """Return the part of a config.json that describes the language model, or all of it, with its own model_type."""
    kind, inner = content["model_type"], content.get("text_config")
    of_text = (architecture(kind) or {}).get("text")
    if isinstance(inner, dict):
        return {"model_type": of_text or kind, **inner}
    return {**content, "model_type": of_text} if of_text else content


def language_model(content: Content) -> dict[str, Any]:
    """Return the part of the language model with the library's names of keys, and its defaults."""
    stated = part(content)
    described = architecture(stated["model_type"]) or {}
    aliases = described.get("aliases", {})
    given = {aliases.get(key, key): default for key, (_, default) in described.get("keys", {}).items()}
    given |= {aliases.get(key, key): value for key, value in stated.items()}
    return {"rotary_default": described["rotary"], **given} if "rotary" in described else given


def readable(content: Content) -> dict[str, Any]:
    """Return a config.json as the library takes it: without UNUSED, and with whole numbers as floats where its classes
    refuse them, as published files have them."""
    made = {key: value for key, value in content.items() if key not in UNUSED}
    if isinstance(content.get("text_config"), dict):
        made["text_config"] = readable(part(content))
    types = (architecture(part(content)["model_type"]) or {}).get("keys", {})
    floats = {key for key, (kind, _) in types.items() if kind.rstrip("?") == "float"}
    return {key: float(value) if key in floats and type(value) is int else value for key, value in made.items()}


def unused(content: Content) -> str | None:
    """Say which parts of a config.json the training leaves out; None if it uses all."""
    stated = part(content)
    said = [f"the text part ({stated['model_type']}) of {content['model_type']}"] if stated is not content else []
    keys = [key for key in UNUSED if key in content or key in stated]
    return "; ".join(said + ([f"without {', '.join(keys)}"] if keys else [])) or None


def mistake(content: Content) -> str | None:
    """Return which value of the language model has another type than the library takes, or does not fit another."""
    stated = part(content)
    keys = (architecture(stated["model_type"]) or {}).get("keys", {})
    for key, value in stated.items():
        if needed := _wrong(key, value, keys.get(key, ("any", None))[0]):
            return f"{key} = {_short(value)}, and {needed} is needed"
    return _misfit(stated, language_model(content))


def _wrong(key: str, value: Any, kind: str) -> str | None:
    """Return what is needed in place of a value; None if it has the type that is named, such as `int?`."""
    counts = key in COUNTS and not isinstance(value, list) and value is not None
    optional, kind = kind.endswith("?"), kind.removesuffix("?")
    if counts and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        return "a whole number above 0"
    if kind not in TYPES or (value is None and optional):
        return None
    allowed, words = TYPES[kind]
    right = isinstance(value, allowed) and (kind == "bool" or not isinstance(value, bool))
    return None if right else words + (" or null" if optional else "")


def _misfit(stated: Content, given: Content) -> str | None:
    def named(*keys: str) -> tuple[str, Any]:
        key = next((key for key in keys if isinstance(given.get(key), int)), keys[0])
        return f"{key} = {given.get(key)}" + ("" if key in stated else " (the library's default)"), given.get(key)

    (width, columns), (query, heads) = named("hidden_size", "n_embd"), named("num_attention_heads", "n_head")
    (key_value, groups), (depth, layers) = named("num_key_value_heads"), named("num_hidden_layers", "n_layer")
    if heads and columns and not given.get("head_dim") and "qk_rope_head_dim" not in given and columns % heads:
        return f"{width} is no multiple of {query}"
    if isinstance(heads, int) and isinstance(groups, int) and heads % groups:
        return f"{query} is no multiple of {key_value}"
    types = given.get("layer_types")
    if types is not None and isinstance(layers, int):
        if not isinstance(types, list) or not all(isinstance(name, str) for name in types):
            return f"layer_types = {_short(types)}, and a list with the type of each layer is needed"
        if len(types) != layers:
            return f"layer_types has {len(types)} entries, and {depth}"
    return None


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
