"""Error messages for mistakes in the configuration: the key, its value, the allowed values and the closest of them."""

import dataclasses
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from throughline import spelling
from throughline.spec import Part
from throughline.study import renamed
from throughline.study.section import PATTERNS, Section

Model = type[Section] | type[Part]
"""A map of keys: a section of the configuration, or a part of a specification."""
NAMED_AT_MOST = 10
"""Largest number of choices that are named if one of them was probably meant."""


def explain(raw: Any, error: ValidationError, root: Model) -> list[str]:
    """Return one line per mistake."""
    places = [(problem, _resolve(problem["loc"], root, raw)) for problem in error.errors()]
    under_old_name = [[*place.keys[:-1], renamed.of_key(place.keys)] for _, place in places]
    lines = (
        _line(problem, place)
        for problem, place in places
        if place.is_meant and not (problem["type"] == "missing" and place.keys in under_old_name)
    )
    return list(dict.fromkeys(lines))


def allowed(value: Any, choices: Sequence[Any], page: str = "docs/configuration.md") -> str:
    """Return a text with the allowed choices and, if some are similar to `value`, a suggestion.

    Of many choices, it names the similar ones and `page`, which lists the others.
    """
    names = [shown(choice) if isinstance(choice, bool) else str(choice) for choice in choices]
    word = str(value).lower()
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


@dataclasses.dataclass
class _Place:
    """A place in the configuration.

    `keys` is the path of keys that the user wrote, and `value` the value at its end. `model` is the innermost section
    on this path. `annotation` is the type that the value should have. If the type is a union, pydantic reports the
    mistakes of every branch. `is_meant` is False in a branch that the user did not mean; its mistakes are not shown.
    """

    keys: list[int | str]
    value: Any
    model: Model
    annotation: Any
    is_meant: bool = True


def _resolve(loc: Sequence[int | str], root: Model, raw: Any) -> _Place:
    """Follow the location that pydantic reports through the models, and return the place that it means."""
    place = _Place([], raw, root, root)
    is_key = loc[-1] == "[key]"
    for part in loc[:-2] if is_key else loc:
        options = branches(strip(place.annotation))
        section = _meant(list(filter(is_model, options)), place.value)
        if len(options) > 1:  # here pydantic's location names a branch of the union, and not a key
            lists = [option for option in options if typing.get_origin(option) is list]
            if lists and isinstance(place.value, list):
                place.is_meant, place.annotation = str(part).startswith("list["), lists[0]
            elif section is not None:
                is_map = part == section.__name__
                place.is_meant = is_map == isinstance(place.value, dict)
                place.annotation = section if is_map else place.annotation
            if not place.is_meant:
                break
            continue
        if section is not None:
            place.model = section
            if issubclass(section, Section):
                place.model = section.variant(place.value if isinstance(place.value, Mapping) else {})
            field = fields_of(place.model).get(str(part))
            place.annotation = field.annotation if field else None
        else:
            of = typing.get_args(options[0])
            place.annotation = of[0] if of[-1] is Ellipsis else of[-1]
        place.keys.append(part)
        try:
            place.value = place.value[part]
        except (KeyError, IndexError, TypeError):
            place.value = None
    if is_key:
        place.annotation, place.value = typing.get_args(strip(place.annotation))[0], loc[-2]
    return place


def _meant(models: Sequence[Model], value: Any) -> Model | None:
    """Return the section that has a key of `value`, otherwise the first section, or None if there are no sections."""
    keys = set(value) if isinstance(value, Mapping) else set()
    return next((model for model in models if keys & fields_of(model).keys()), next(iter(models), None))


def _line(problem: Any, place: _Place) -> str:
    path = ".".join(map(str, place.keys))
    if problem["loc"][-1] == "[key]":
        return f"{path}: key {shown(place.value)}: {_wording(problem, place)}"
    if problem["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        if new := renamed.of_key(place.keys):
            return f"{path}: since 0.4 this key is {new} (docs/from-0.3-to-0.4.md)"
        key = str(place.keys[-1])
        known = place.model.unknown(key) if issubclass(place.model, Section) else None
        return f"{path}: {known or f'unknown key; {allowed(key, list(fields_of(place.model)))}'}"
    if problem["type"] == "missing":
        return f"{path}: missing; it has to be given"
    return f"{path} = {shown(place.value)}: {_wording(problem, place)}"


_MESSAGES = {
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "a whole number is needed"),
    "float_type": "a number is needed",
    "string_type": "a text is needed",
    **dict.fromkeys(("list_type", "tuple_type"), "a list is needed, such as [a, b]"),
    "dict_type": "a map is needed, such as {key: value}",
    **dict.fromkeys(("model_type", "dataclass_type"), "a map of keys is needed, such as {key: value}"),
    "finite_number": "a finite number is needed",
    "too_short": "at least one entry is needed",
    "string_too_short": "the text is empty",
}


def _wording(problem: Any, place: _Place) -> str:
    mistake, plain = problem["type"], strip(place.annotation)
    if new := renamed.of_value(place.keys, place.value):
        return f"since 0.4 this value is {new} (docs/from-0.3-to-0.4.md)"
    if typing.get_origin(plain) is Literal:
        return allowed(place.value, typing.get_args(plain))
    if plain is bool:
        return allowed(place.value, [True, False])
    if mistake == "value_error":
        return str(problem["ctx"]["error"])
    pattern = problem["ctx"]["pattern"] if mistake == "string_pattern_mismatch" else None
    if pattern in PATTERNS:
        return PATTERNS[pattern]
    if _is_union(plain):
        return f"allowed: {kind(plain)}"
    if pattern:
        return f"it has to look like {pattern}"
    return _MESSAGES.get(mistake) or problem["msg"].replace("Input should be", "it has to be")


def kind(annotation: Any) -> str:
    """Return in words which values an annotation allows."""
    plain = strip(annotation)
    if _is_union(plain):
        return " or ".join(map(kind, typing.get_args(plain)))
    if typing.get_origin(plain) is Literal:
        return " or ".join(map(str, typing.get_args(plain)))
    if typing.get_origin(plain) in (list, tuple):
        return "a list"
    if is_model(plain):
        return "{" + ", ".join(fields_of(plain)) + "}"
    names = {type(None): "null", bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
    return names.get(plain, str(plain))


def branches(annotation: Any) -> list[Any]:
    """Return the branches of a union without null. Pydantic does not name null in a location."""
    if not _is_union(annotation):
        return [annotation]
    return [strip(option) for option in typing.get_args(annotation) if option is not type(None)]


def _is_union(annotation: Any) -> bool:
    return typing.get_origin(annotation) in (typing.Union, types.UnionType)


def is_model(annotation: Any) -> bool:
    """True if the annotation is a map with keys of its own."""
    return isinstance(annotation, type) and issubclass(annotation, (Section, Part))


def fields_of(model: type[BaseModel] | type[Part]) -> dict[str, FieldInfo]:
    """Return the keys of a section or a part, with their types, descriptions and defaults."""
    if issubclass(model, BaseModel):
        return model.model_fields
    types = typing.get_type_hints(model, include_extras=True)
    fields = dataclasses.fields(typing.cast(Any, model))
    return {field.name: FieldInfo.from_annotated_attribute(types[field.name], field) for field in fields}


def strip(annotation: Any) -> Any:
    """Return the annotation without its constraints."""
    while typing.get_origin(annotation) is Annotated:
        annotation = typing.get_args(annotation)[0]
    return annotation
