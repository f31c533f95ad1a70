"""Generate the keys on docs/reference/configuration.md, and the JSON schema, from the models of sections and workloads.

`python -m throughline.study.config_reference` writes both. A test fails if one of them is out of date.
"""

import itertools
import json
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

from throughline import workloads
from throughline.files import write_text
from throughline.frameworks.reference import filled
from throughline.spec import Part
from throughline.study.benchmark import Benchmark, Runs
from throughline.study.config import Config
from throughline.study.section import branches, fields_of, is_model, is_union, strip

ROOT = Path(__file__).parents[3]
REFERENCE = ROOT / "docs" / "reference" / "configuration.md"
SCHEMA = ROOT / "resources" / "config.schema.json"
BLOCK = "benchmarks.<name>."

PLAIN = {int: "integer", float: "number", str: "text"}
"""Map the types of single values to what the page calls them."""


def reference() -> str:
    """Return the keys of the page as Markdown, with a line per key."""
    sections = itertools.groupby(_keys(Config, "", {}), lambda row: re.findall(r"\w+", row)[0])
    return "\n".join(f"## {name}\n\n" + "\n".join(rows) + "\n" for name, rows in sections)


def schema() -> str:
    """Return the JSON schema of config.yaml."""
    value, blocks = Config.model_json_schema(), []
    for block in map(Benchmark.of, workloads.FOLDERS):
        keys = block.model_json_schema()
        value["$defs"] |= keys.pop("$defs", {})
        keys["properties"]["model"]["enum"] = list(block.models)
        if workloads.DEFAULT not in block.models:
            keys["required"] = [*keys.get("required", []), "model"]
        blocks.append(keys)
        if described := workloads.of_folder(block.folder).described:
            kind = {"type": "object", "properties": described, "required": list(described)}
            properties = {**keys["properties"], "model": {**kind, "additionalProperties": False}}
            required = sorted({*keys.get("required", []), "model"})
            blocks.append({**keys, "properties": properties, "required": required})
    value["$defs"]["Benchmark"] = {"anyOf": blocks} if len(blocks) > 1 else blocks[0]
    return json.dumps(value, indent=1, sort_keys=True) + "\n"


def of_workload(block: type[Benchmark]) -> str:
    """Return the list of a workload's own keys."""
    rows = [row for row in _keys(block, BLOCK, {}) if row.split("`")[1].removeprefix(BLOCK) in block.own_keys]
    return "\n".join(row.replace(BLOCK, "", 1) for row in rows) + "\n" if rows else "It takes no keys of its own.\n"


def _keys(model: Any, prefix: str, shown: dict[Any, str]) -> Iterator[str]:
    """Yield a line for each key of a section, each followed by the lines of the sections in it.

    shown: the sections whose keys the page has, with the first key of each. They are not listed again.
    """
    schemas = TypeAdapter(model).json_schema()["properties"]
    for name, field in fields_of(model).items():
        if prefix == BLOCK and name in Runs.model_fields:
            continue
        path, plain = f"{prefix}{name}", strip(field.annotation)
        is_dict, is_list = (typing.get_origin(plain) is kind for kind in (dict, list))
        values = typing.get_args(plain)[-1] if is_dict or is_list else plain
        inner = [option for option in branches(values) if is_model(option)]
        again = [f"the keys of `{shown[option]}`" for option in inner if option in shown]
        facts = "; ".join(filter(None, (_allowed(plain) + _range(schemas[name]), *again, _default(field, bool(inner)))))
        yield f"* `{path}` ({facts}): {field.description}"
        for section in (option for option in inner if option not in shown):
            shown[section] = path
            yield from _keys(section, f"{path}.<name>." if is_dict else f"{path}[]." if is_list else f"{path}.", shown)


def _allowed(annotation: Any, is_inner: bool = False) -> str:
    """Return in words which values a key may have. is_inner: of a map or a list, say only which it is."""
    plain = strip(annotation)
    origin, arguments = typing.get_origin(plain), typing.get_args(plain)
    if is_union(plain):
        return " or ".join(_allowed(option, True) for option in arguments if option is not type(None))
    if origin is typing.Literal:
        return ", ".join(map(str, arguments))
    if origin is dict:
        return f"map of {_allowed(arguments[0], True)}: {_inner(arguments[1])}"
    if origin in (list, tuple):
        inner = _inner(arguments[0])
        return "list" if is_inner else f"list of {inner}{'s' if inner in (*PLAIN.values(), 'map') else ''}"
    if is_model(plain):
        return "{" + ", ".join(fields_of(plain)) + "}" if is_inner else "map"
    return {bool: "true or false", **PLAIN}.get(plain, str(plain))


def _range(schema: dict[str, Any]) -> str:
    """Return in words the limits of a number, by its JSON schema; "" for those that the page states for all numbers."""
    words = {"minimum": "from", "maximum": "up to", "exclusiveMaximum": "below"}
    for option in (schema, *schema.get("anyOf", [])):
        if "minimum" in option and "maximum" in option:
            return f" {option['minimum']:,} to {option['maximum']:,}"
        usual = {"minimum": 1} if option.get("type") == "integer" else {}
        limits = {key: option[key] for key in words if key in option and usual.get(key) != option[key]}
        if limits:
            return "".join(f" {words[key]} {limit:,}" for key, limit in limits.items())
    return ""


def _inner(annotation: Any) -> str:
    """Return which values a map or a list has. The keys of a section have rows of their own."""
    return "map" if is_model(strip(annotation)) else _allowed(annotation, True)


def _default(field: FieldInfo, is_map: bool) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is None or isinstance(value, (BaseModel, Part)) or (is_map and value == {}):
        return ""
    is_json = isinstance(value, (bool, list, tuple, dict))
    return f"`{json.dumps(value) if is_json else value}`"


if __name__ == "__main__":
    write_text(REFERENCE, filled(REFERENCE, {"keys": reference()}))
    write_text(SCHEMA, schema())
