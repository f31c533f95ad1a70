"""Parts of a specification: how a field says what it is (`key`), and how parts are written as JSON values and read."""

import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, field, fields, is_dataclass
from functools import cache
from typing import Any, ClassVar, TypeVar, cast

Value = int | float | str | bool | tuple[int, ...]
"""What a parameter of a workload can be."""


class Part:
    """The base of the parts of a specification, which are frozen dataclasses of `key` fields.

    Where pydantic validates a part, its types are strict and unknown keys are errors. This file does not need pydantic.
    """

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid", "strict": True, "allow_inf_nan": False}

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """Let pydantic read a map as this part. By default, a strict dataclass accepts its instances only."""
        schema = handler(source)
        handler.resolve_ref_schema(schema)["strict"] = False
        return schema


def key(
    description: str,
    *,
    default: Any = MISSING,
    least: float | None = None,
    most: float | None = None,
    above: float | None = None,
    below: float | None = None,
    choices: tuple[Any, ...] | None = None,
    strict: bool = True,
    asked: bool = True,
    stated: bool = False,
    whole: Any = MISSING,
    unit: str | None = None,
    titled: bool = False,
) -> Any:
    """Make a field that is a key of config.yaml, with its description and the values that are allowed.

    `least` and `most` belong to the allowed values; `above` and `below` do not. `strict=False`: a list becomes a tuple.
    The other arguments are for the parameters of a workload. `asked=False`: the workload's `complete` computes the
    field. `stated`: a specification contains the value even if it is the default. `whole`: the value of a key that
    splits the model over ranks with which each rank holds the whole model. `unit`: tables show it. `titled`: titles of
    tables show the value.
    """
    limits = {"ge": least, "le": most, "gt": above, "lt": below, "strict": None if strict else False}
    limits = {name: limit for name, limit in limits.items() if limit is not None}
    facts = {"choices": choices, "asked": asked, "stated": stated, "whole": whole, "unit": unit, "titled": titled}
    return field(default=default, metadata={"description": description, **limits, **facts})


def values(part: Any) -> dict[str, Any]:
    """Return a part as JSON values, with its defaults."""
    return {declared.name: _plain(getattr(part, declared.name), values) for declared in fields(part)}


def changed(part: Any) -> dict[str, Any]:
    """Return a part as JSON values, without those that equal their defaults, so that a new key changes nothing."""
    return {
        declared.name: _plain(getattr(part, declared.name), changed)
        for declared in fields(part)
        if is_stated(declared) or getattr(part, declared.name) != default_of(declared)
    }


def default_of(declared: Field[Any]) -> Any:
    """Return the default of a field, or MISSING."""
    return declared.default if declared.default_factory is MISSING else declared.default_factory()


def is_stated(declared: Field[Any]) -> bool:
    """True if a specification states this field even when its value is the default."""
    return default_of(declared) is MISSING or bool(declared.metadata.get("stated"))


def _plain(value: Any, of_part: Callable[[Any], Any]) -> Any:
    """Return a value as JSON. A dataclass with a text form of its own, such as a topology, is that text."""
    if is_dataclass(value):
        return of_part(value) if isinstance(value, Part) else str(value)
    return list(value) if isinstance(value, tuple) else value


Kind = TypeVar("Kind")


def read(kind: type[Kind], value: Any) -> Kind:
    """Return the dataclass from its JSON values. Raise ValueError if a key is missing or unknown, with its name.

    The types of single values are not checked: who wrote the values has validated them.
    """
    if not isinstance(value, Mapping):
        raise ValueError(f"{kind.__name__}: {value!r} is no object")
    declared = {each.name: each for each in fields(kind)}  # type: ignore[arg-type]
    missing = [name for name, each in declared.items() if name not in value and is_stated(each)]
    for what, keys in (("missing", missing), ("unknown", value.keys() - declared.keys())):
        if keys:
            raise ValueError(f"{kind.__name__}: {what} key {', '.join(sorted(keys))}")
    hints = _hints(cast(Any, kind))
    return kind(**{name: _typed(hints[name], content) for name, content in value.items()})


@cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _typed(hint: Any, value: Any) -> Any:
    """Return a JSON value as its type wants it: a dataclass, a list of dataclasses, a tuple, or the value itself."""
    if value is None or is_dataclass(value):
        return value
    for kind in (hint, *typing.get_args(hint)):  # D, D | None, list[D]
        if isinstance(kind, type) and is_dataclass(kind):
            return [read(kind, item) for item in value] if isinstance(value, list) else read(kind, value)
    is_tuple = tuple in (typing.get_origin(hint), *map(typing.get_origin, typing.get_args(hint)))
    return tuple(value) if is_tuple and isinstance(value, list) else value
