"""Error messages for mistakes in the configuration: the key, its value, the allowed values and the closest of them.

pydantic finds the mistakes and says what is wrong. This file adds where the mistake is, in the keys that the user
wrote, and what was probably meant. config_checks.py finds the mistakes that involve several keys.
"""

import re
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from throughline import spelling
from throughline.study import renamed
from throughline.study.section import PATTERNS, Section, branches, fields_of, is_model

NAMED_AT_MOST = 10
"""Largest number of choices that are named if one of them was probably meant."""
UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")


def explain(raw: Mapping[str, Any], error: ValidationError, root: type[Section]) -> list[str]:
    """Return one line per mistake.

    If a value may be a text, a list or one of several maps, pydantic reports the mistakes of all of them. Those of a
    map that lacks a key which another one has are not shown, and of a map or list only the mistakes inside it. A map
    with an unknown key is not said to lack another one.
    """
    problems = [(_keys(problem, raw), problem) for problem in error.errors()]
    is_unknown = {keys for keys, problem in problems if problem["type"] in UNKNOWN}
    is_unknown = {keys for keys in is_unknown if keys[-1] not in _names_at(root, keys[:-1], raw)}
    others = {
        problem["loc"][:-1] for keys, problem in problems if problem["type"] in UNKNOWN and keys not in is_unknown
    }
    places: dict[tuple[Any, ...], list[Any]] = {}
    for keys, problem in problems:
        if problem["loc"][:-1] not in others:
            places.setdefault(keys, []).append(problem)
    lines = []
    for keys, found in places.items():
        path, types = ".".join(map(str, keys)), {problem["type"] for problem in found}
        has_inner = any(other[: len(keys)] == keys != other for other in places)
        if keys in is_unknown:
            lines.append(f"{path}: {_unknown(keys, raw, root)}")
        elif "missing" in types:
            has_unknown = any(other[:-1] == keys[:-1] for other in is_unknown)
            lines += [] if has_unknown else [f"{path}: missing; it has to be given"]
        elif found[0]["loc"][-1] == "[key]":
            lines.append(f"{path}: {_wrong(keys, keys[-1], found)}")
        elif not has_inner or "value_error" in types:
            value = _value(raw, keys)
            lines.append(f"{path} = {shown(value)}: {_wrong(keys, value, found)}")
    return lines


def _keys(problem: Any, raw: Any) -> tuple[Any, ...]:
    """Return the keys of a mistake. pydantic's location also names the types that it tried, which are no keys."""
    keys: list[Any] = []
    for part in problem["loc"]:
        value = _value(raw, keys)
        if part in value if isinstance(value, Mapping) else isinstance(value, list) and isinstance(part, int):
            keys.append(part)
    return (*keys, problem["loc"][-1]) if problem["type"] == "missing" else tuple(keys)


def _value(raw: Any, keys: Sequence[Any]) -> Any:
    for key in keys:
        raw = raw[key]
    return raw


def _names_at(annotation: Any, keys: Sequence[Any], value: Any) -> list[str]:
    """Return all keys that the map at the end of `keys` may have. value: what the user wrote for the outermost map."""
    names: list[str] = []
    for option in branches(annotation):
        if is_model(option):
            is_section = issubclass(option, Section) and isinstance(value, Mapping)
            fields = fields_of(option.variant(value) if is_section else option)
            inner = fields[keys[0]].annotation if keys and keys[0] in fields else None
            names += _names_at(inner, keys[1:], value[keys[0]]) if inner else [] if keys else fields
        elif keys and (arguments := typing.get_args(option)):
            inner = arguments[0 if isinstance(keys[0], int) else -1]
            names += _names_at(inner, keys[1:], value[keys[0]])
    return names


def _unknown(keys: Sequence[Any], raw: Any, root: type[Section]) -> str:
    if new := renamed.of_key(keys):
        return f"since 0.4 this key is {new} (docs/reference/from-0.3-to-0.4.md)"
    return root.hint(keys, raw) or f"unknown key; {allowed(keys[-1], _names_at(root, keys[:-1], raw))}"


def _wrong(keys: Sequence[Any], value: Any, problems: Sequence[Any]) -> str:
    """Return what is wrong with a value, in pydantic's words if it allows no choice."""
    if new := renamed.of_value(keys, value):
        return f"since 0.4 this value is {new} (docs/reference/from-0.3-to-0.4.md)"
    choices: list[str] = []
    for problem in problems:
        message = re.sub("a (valid )?dictionary.*", "a map of keys, such as {key: value}", problem["msg"])
        message = re.sub("a valid (list|tuple)", "a list, such as [a, b]", message)
        expected = problem.get("ctx", {})
        if problem["type"] == "value_error":
            return str(expected["error"])
        if problem["type"] == "string_pattern_mismatch":
            return PATTERNS.get(expected["pattern"], message)
        if problem["type"] == "literal_error":
            choices += [word.strip("'") for word in re.split(", | or ", expected["expected"])]
        else:
            is_truth = problem["type"] == "bool_type"
            choices += ["true", "false"] if is_truth else [message.removeprefix("Input should be ")]
    return allowed(value, list(dict.fromkeys(choices))) if len(choices) > 1 else message


def allowed(value: Any, choices: Sequence[Any], page: str = "docs/reference/configuration.md") -> str:
    """Return a text with the allowed choices and, if some are similar to `value`, a suggestion.

    Of many choices, it names the similar ones and `page`, which lists the others.
    """
    names, word = list(map(str, choices)), str(value).lower()
    truth = {"on": "true", "yes": "true", "off": "false", "no": "false"}.get(word)
    near = [truth] if truth in names else spelling.similar(word, names)
    if near and len(names) > NAMED_AT_MOST:
        return f"did you mean {spelling.listed(near)}? {page} lists all {len(names)}"
    return f"allowed: {', '.join(names)}" + (f"; did you mean {near[0]}?" if near else "")


def shown(value: Any) -> str:
    """Return `value` as YAML shows it, shortened to 60 characters."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
