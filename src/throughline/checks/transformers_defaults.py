"""Generate resources/transformers.json: what the configuration classes of transformers fill in where a config.json is
silent.

`python -m throughline.checks.transformers_defaults` writes it, in an environment with transformers. A test fails if it
is out of date. A language model has its `keys`, each with its type and its default (`int?` may be null as well), the
older names of keys (`aliases`), and the rotary positions of a file without any (`rotary`). Of a model with several
parts, `text` is the architecture of its language model.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from pathlib import Path
from typing import Any

from throughline.files import write_text

FILE = Path(__file__).parents[3] / "resources" / "transformers.json"
TYPES = {int: "int", float: "float", bool: "bool", str: "str"}


def architectures() -> dict[str, dict[str, Any]]:
    """Return what transformers says of each architecture that is a language model or has one."""
    from transformers.models.auto import modeling_auto
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING, CONFIG_MAPPING_NAMES

    trained = (modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING, modeling_auto.MODEL_FOR_MASKED_LM_MAPPING)
    made: dict[str, dict[str, Any]] = {}
    for kind in sorted(CONFIG_MAPPING_NAMES):
        try:
            config = CONFIG_MAPPING[kind]()
            text = config.get_text_config()
        except Exception:  # no defaults, or no single language model: classes say so in any way
            continue
        if text is not config:
            made[kind] = {"text": text.model_type}
            made.setdefault(text.model_type, _language_model(type(text), text))
        elif any(classes.get(type(config), None) for classes in trained):
            made[kind] = _language_model(type(config), config)
    return dict(sorted(made.items()))


def _language_model(kind: Any, config: Any) -> dict[str, Any]:
    import transformers

    general = {field.name for field in dataclasses.fields(transformers.PreTrainedConfig)} | {"use_cache"}
    keys = {
        field.name: [_type(field.type), field.default]
        for field in dataclasses.fields(kind)
        if field.name == "pad_token_id" or not (field.name in general or field.name.endswith("token_id"))
    }
    plain = (int, float, str, types.NoneType)
    made = {"keys": {name: pair for name, pair in keys.items() if isinstance(pair[1], plain) and pair != ["any", None]}}
    theta, rotary = kind.default_theta, getattr(config, "rope_parameters", None) or {}
    if isinstance(theta, (int, float)):
        made["keys"]["rope_theta"] = ["number", theta]
    if rotary.get("rope_type", "default") != "default":
        made["rotary"] = {name: value for name, value in rotary.items() if name != "rope_theta"}
    return made | ({"aliases": kind.attribute_map} if kind.attribute_map else {})


def _type(annotation: Any) -> str:
    """Return `int`, `float`, `number` (both), `bool` or `str`, with `?` if the value may be null; or `any`."""
    union = isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union
    parts = set(typing.get_args(annotation)) if union else {annotation}
    optional = "?" if types.NoneType in parts else ""
    parts -= {types.NoneType}
    plain = "number" if parts == {int, float} else TYPES.get(next(iter(parts))) if len(parts) == 1 else None
    return plain + optional if plain else "any"


def content() -> str:
    """Return the file: a line for each architecture."""
    import transformers

    lines = [f"{json.dumps(kind)}: {json.dumps(values)}" for kind, values in architectures().items()]
    version = json.dumps(transformers.__version__)
    return f'{{"version": {version}, "architectures": {{\n' + ",\n".join(lines) + "\n}}\n"


if __name__ == "__main__":
    write_text(FILE, content())
