"""What a mistake in the configuration is called: where it is, what stands there, what is allowed, what is near."""

from __future__ import annotations

import difflib
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import ValidationError

from throughline.study.section import Section

Model = type[Section]


def explain(raw: Any, error: ValidationError, root: Model, patterns: dict[str, str]) -> list[str]:
    """One line per mistake. `patterns` says in words what each regular expression of the models asks for."""
    lines: dict[str, None] = {}
    for problem in error.errors():
        place = _resolve(problem["loc"], root, raw)
        value = _at(raw, place.keys)
        parent = _at(raw, place.keys[: place.union_depth])
        if place.is_map is not None and place.is_map != isinstance(parent, dict):
            continue  # the value is meant for the union's other branch, whose own mistakes are listed
        lines[_line(problem, place, value, patterns)] = None
    return list(lines)


def allowed(value: Any, choices: Sequence[Any]) -> str:
    """The choices, and the one that `value` was probably meant to be."""
    names = [shown(choice) if isinstance(choice, bool) else str(choice) for choice in choices]
    word = str(value).lower()
    truth = {"on": "true", "yes": "true", "off": "false", "no": "false"}.get(word)
    near = [truth] if truth in names else difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    return f"allowed: {', '.join(names)}" + (f"; did you mean {near[0]}?" if near else "")


def shown(value: Any) -> str:
    """`value` as it could stand in the YAML file, shortened."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


@dataclass
class _Place:
    keys: list[int | str]
    model: Model
    annotation: Any
    is_key: bool = False
    is_map: bool | None = None  # which branch of a union of a map and something else
    union_depth: int = 0


def _resolve(loc: Sequence[int | str], root: Model, raw: Any) -> _Place:
    """Follow pydantic's location through the models to the user's keys, the innermost model and its annotation."""
    place = _Place([], root, root)
    before: Any = root
    for part in loc:
        annotation = strip(place.annotation)
        options = branches(annotation)
        if part == "[key]":
            place.is_key = True
            place.annotation = typing.get_args(strip(before))[0]
            break
        before = place.annotation
        if len(options) > 1:  # pydantic names the branch of the union here, which is no key
            section = next((option for option in options if is_model(option)), None)
            if section is not None:
                place.is_map = part == section.__name__
                place.union_depth = len(place.keys)
                place.annotation = section if place.is_map else place.annotation
            continue
        annotation = options[0]
        if is_model(annotation):
            values = _at(raw, place.keys)
            place.model = annotation.variant(values if isinstance(values, Mapping) else {})
            field = place.model.model_fields.get(str(part))
            place.annotation = field.rebuild_annotation() if field else None
        else:
            place.annotation = typing.get_args(annotation)[-1]
        place.keys.append(part)
    return place


def _line(problem: Any, place: _Place, value: Any, patterns: dict[str, str]) -> str:
    if place.is_key:
        *outer, key = place.keys
        return f"{_dotted(outer)}: key {shown(key)}: {_wording(problem, place.annotation, key, patterns)}"
    path = _dotted(place.keys)
    if problem["type"] == "extra_forbidden":
        key = str(place.keys[-1])
        return f"{path}: {place.model.unknown(key) or f'unknown key; {allowed(key, list(place.model.model_fields))}'}"
    if problem["type"] == "missing":
        return f"{path}: missing; it has to be given"
    return f"{path} = {shown(value)}: {_wording(problem, place.annotation, value, patterns)}"


_MESSAGES = {
    "int_type": "a whole number is needed",
    "int_parsing": "a whole number is needed",
    "int_from_float": "a whole number is needed",
    "float_type": "a number is needed",
    "string_type": "a text is needed",
    "list_type": "a list is needed, such as [a, b]",
    "dict_type": "a map is needed, such as {key: value}",
    "model_type": "a map of keys is needed, such as {key: value}",
    "finite_number": "a finite number is needed",
    "too_short": "at least one entry is needed",
    "string_too_short": "the text is empty",
}


def _wording(problem: Any, annotation: Any, value: Any, patterns: dict[str, str]) -> str:
    mistake, plain = problem["type"], strip(annotation)
    choices = _choices(plain)
    if choices:
        return allowed(value, choices)
    if mistake == "value_error":
        return str(problem["ctx"]["error"])
    if mistake == "string_pattern_mismatch" and problem["ctx"]["pattern"] in patterns:
        return patterns[problem["ctx"]["pattern"]]
    if _is_union(plain):
        return f"allowed: {kind(plain)}"
    if mistake == "string_pattern_mismatch":
        return f"it has to look like {problem['ctx']['pattern']}"
    return _MESSAGES.get(mistake) or problem["msg"].replace("Input should be", "it has to be")


def kind(annotation: Any) -> str:
    """What values an annotation takes, in words."""
    plain = strip(annotation)
    if _is_union(plain):
        return " or ".join(kind(option) for option in typing.get_args(plain))
    if typing.get_origin(plain) is Literal:
        return " or ".join(map(str, typing.get_args(plain)))
    if typing.get_origin(plain) is list:
        return "a list"
    if is_model(plain):
        return "{" + ", ".join(plain.model_fields) + "}"
    names = {type(None): "null", bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
    return names.get(plain, str(plain))


def _choices(plain: Any) -> list[Any]:
    if typing.get_origin(plain) is Literal:
        return list(typing.get_args(plain))
    return [True, False] if plain is bool else []


def branches(annotation: Any) -> list[Any]:
    """The branches of a union but for null, which pydantic does not name in a location."""
    if not _is_union(annotation):
        return [annotation]
    return [strip(option) for option in typing.get_args(annotation) if option is not type(None)]


def _is_union(annotation: Any) -> bool:
    return typing.get_origin(annotation) in (typing.Union, types.UnionType)


def is_model(annotation: Any) -> bool:
    """Whether the annotation is a section with keys of its own."""
    return isinstance(annotation, type) and issubclass(annotation, Section)


def strip(annotation: Any) -> Any:
    """The annotation without its constraints."""
    while typing.get_origin(annotation) is Annotated:
        annotation = typing.get_args(annotation)[0]
    return annotation


def _dotted(keys: Sequence[int | str]) -> str:
    return ".".join(str(key) for key in keys)


def _at(raw: Any, keys: Sequence[int | str]) -> Any:
    for key in keys:
        try:
            raw = raw[key]
        except (KeyError, IndexError, TypeError):
            return None
    return raw
