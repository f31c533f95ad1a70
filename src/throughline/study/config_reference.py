"""Generate docs/reference/configuration.md and the JSON schema from the sections' models and the workloads' parameters.

`python -m throughline.study.config_reference` writes both. A test fails if one of them is out of date.
"""

import itertools
import json
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from throughline import workloads
from throughline.files import write_text
from throughline.spec import Part
from throughline.study.benchmark import Benchmark, Runs
from throughline.study.config import Config
from throughline.study.section import branches, fields_of, is_model, is_union, strip

ROOT = Path(__file__).parents[3]
REFERENCE = ROOT / "docs" / "reference" / "configuration.md"
SCHEMA = ROOT / "resources" / "config.schema.json"
BLOCK = "benchmarks.<name>."

HEADER = """# Configuration

For everybody who measures: every key of `config.yaml`, the one file that you edit. Every key that
you leave out has a default. Editors that know JSON schemas check and complete `config.yaml` with
`resources/config.schema.json`.

* `snakemake --configfile X` reads X instead of `config.yaml`. Several files are merged in their
  order: maps merge, lists are replaced, and `key: null` takes the key of an earlier file out, with
  everything below it. So `bert: null` under `benchmarks` leaves that block out. Write targets
  before `--configfile`, because this option takes every word that follows it.
* `snakemake --config 'runs={repeats: 7}'` sets nested values on top, as YAML.
* Values are read as YAML 1.2: `on` and `yes` are texts, `12:30` is a text, `1e-3` is a number. A
  key that stands twice is an error, and so is an unknown key.
* You can set any key of `runs` again inside a benchmark.

This page is generated from the models of the sections in `src/throughline/study/`
(`python -m throughline.study.config_reference`).
"""
TABLE = """| key | what it is | allowed | default |
|---|---|---|---|
"""
PLAIN = {int: "integer", float: "number", str: "text"}
"""Map the types of single values to what the page calls them."""
OWN_KEYS = """
## Keys of a model

The block of a benchmark also takes the keys of its model, which [workloads.md](workloads.md) lists.
A key of another model is an error.
"""


def reference() -> str:
    """Return the page as Markdown, with one row per key."""
    sections = itertools.groupby(_rows(Config, ""), lambda row: re.findall(r"\w+", row)[0])
    tables = (f"\n## {name}\n\n{TABLE}" + "\n".join(rows) + "\n" for name, rows in sections)
    return "".join([HEADER, *tables, OWN_KEYS])


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
    """Return the table of a workload's own keys."""
    rows = [row for row in _rows(block, BLOCK) if row.split("`")[1].removeprefix(BLOCK) in block.own_keys]
    return TABLE + "\n".join(rows) + "\n" if rows else "It takes no keys of its own.\n"


def _rows(model: Any, prefix: str) -> Iterator[str]:
    """Yield a row for each key of a section, each followed by the rows of the sections in it."""
    for name, field in fields_of(model).items():
        if prefix == BLOCK and name in Runs.model_fields:
            continue
        path, plain = f"{prefix}{name}", strip(field.annotation)
        is_dict, is_list = (typing.get_origin(plain) is kind for kind in (dict, list))
        values = typing.get_args(plain)[-1] if is_dict or is_list else plain
        inner = [option for option in branches(values) if is_model(option)]
        cells = (path, field.description, _allowed(plain), _default(field, bool(inner)))
        yield "| `{}` | {} | {} | {} |".format(*cells[:2], *(cell.replace("|", r"\|") for cell in cells[2:]))
        for section in inner:
            yield from _rows(section, f"{path}.<name>." if is_dict else f"{path}[]." if is_list else f"{path}.")


def _allowed(annotation: Any, is_inner: bool = False) -> str:
    """Return in words which values a key may have. is_inner: of a map or a list, say only which it is."""
    plain = strip(annotation)
    origin, arguments = typing.get_origin(plain), typing.get_args(plain)
    if is_union(plain):
        return " or ".join(_allowed(option, True) for option in arguments)
    if origin is typing.Literal:
        return " or ".join(map(str, arguments))
    if origin is dict:
        return f"map of {_allowed(arguments[0], True)}: {_inner(arguments[1])}"
    if origin in (list, tuple):
        inner = _inner(arguments[0])
        return "list" if is_inner else f"list of {inner}{'s' if inner in (*PLAIN.values(), 'map') else ''}"
    if is_model(plain):
        return "{" + ", ".join(fields_of(plain)) + "}" if is_inner else "map"
    return {type(None): "null", bool: "true or false", **PLAIN}.get(plain, str(plain))


def _inner(annotation: Any) -> str:
    """Return which values a map or a list has. The keys of a section have rows of their own."""
    return "map" if is_model(strip(annotation)) else _allowed(annotation, True)


def _default(field: FieldInfo, is_map: bool) -> str:
    if field.is_required():
        return "(required)"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, (BaseModel, Part)) or (is_map and value == {}):
        return ""
    is_json = value is None or isinstance(value, (bool, list, tuple, dict))
    return f"`{json.dumps(value) if is_json else value}`"


if __name__ == "__main__":
    write_text(REFERENCE, reference())
    write_text(SCHEMA, schema())
