"""A workload's parameters (the fields of its `Parameters`) as keys of a benchmark's block and of a specification."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal

from pydantic import Field
from pydantic.fields import FieldInfo

from throughline import workloads

Value = int | float | str | bool


@cache
def fields(model: str) -> dict[str, dataclasses.Field[Any]]:
    """The fields of a model's Parameters by their names."""
    return {field.name: field for field in dataclasses.fields(workloads.of(model).Parameters)}


def keys(model: str) -> dict[str, tuple[Any, FieldInfo]]:
    """What a block takes for this model beside the keys of every block: key -> its type and pydantic's field."""
    types = typing.get_type_hints(workloads.of(model).Parameters)
    return {
        name: (_type(types[name], field.metadata), _field(field))
        for name, field in fields(model).items()
        if field.metadata["asked"]
    }


def _type(plain: Any, metadata: Mapping[str, Any]) -> Any:
    return Literal[tuple(metadata["choices"])] if metadata["choices"] else plain


def _field(field: dataclasses.Field[Any]) -> FieldInfo:
    default = ... if field.default is dataclasses.MISSING else field.default
    limits = {"ge": field.metadata["least"], "le": field.metadata["most"]}
    made: FieldInfo = Field(default, description=field.metadata["description"], **limits)
    return made


def complete(model: str, asked: Mapping[str, Value], section: Any) -> dict[str, Value]:
    """All parameters of a run, from a block's own keys and the section of its data."""
    workload = workloads.of(model)
    return dataclasses.asdict(workload.Parameters(**asked, **workload.complete(asked, section)))


def gathered(values: Mapping[str, Any]) -> dict[str, Any]:
    """A specification's values with its flat parameters as a map of their own. ValueError where one is missing."""
    own = fields(values["model"])
    missing = [name for name, field in own.items() if name not in values and _is_needed(field)]
    if missing:
        raise ValueError(f"missing: {', '.join(missing)}")
    parameters = {name: values.get(name, field.default) for name, field in own.items()}
    return {**{key: value for key, value in values.items() if key not in own}, "parameters": parameters}


def flat(values: Mapping[str, Any], without_defaults: bool) -> dict[str, Any]:
    """The inverse: the parameters in the place of their map, without those that go without saying if so wanted."""
    own, result = fields(values["model"]), {}
    for key, value in values.items():
        if key != "parameters":
            result[key] = value
            continue
        for name, parameter in value.items():
            if not without_defaults or _is_needed(own[name]) or parameter != own[name].default:
                result[name] = parameter
    return result


def _is_needed(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING or field.metadata["stated"]
