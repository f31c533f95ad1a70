"""What every entry of a record is, and the parts that several kinds of files share."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from throughline.study.runs import RunSpec, parameter_fields
from throughline.study.section import Value

SCHEMA: Final = 2
"""Schema number of every file that is written; raised when a key changes its meaning or goes."""

NonNegative = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
Whole = Annotated[int, Field(ge=0)]


class Entry(BaseModel):
    """A part of a record: types are strict, unknown keys are errors, numbers are finite."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False, populate_by_name=True)


class OfWorkload(Entry):
    """A file about a benchmark's model. In JSON the workload's parameters stand flat beside the other keys."""

    model: str
    parameters: dict[str, Value]
    schema_: Literal[2] = Field(alias="schema")
    benchmark: str

    @model_validator(mode="before")
    @classmethod
    def _gather(cls, value: Any) -> Any:
        if not isinstance(value, Mapping) or "parameters" in value or not isinstance(value.get("model"), str):
            return value
        names = parameter_fields(value["model"])
        others = {key: entry for key, entry in value.items() if key not in names}
        return {**others, "parameters": {key: value[key] for key in names if key in value}}

    @model_serializer(mode="wrap")
    def _flat(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        value: dict[str, Any] = handler(self)
        return {**value.pop("parameters"), **value}


class Figure(Entry):
    """A figure beside throughput that a workload declares: its value, and at which size (`at`) it was measured."""

    name: str
    unit: str
    better: Literal["more", "less"]
    at: int | float | str | None
    value: float | None


class Device(Entry):
    kind: Literal["cpu", "cuda"]
    name: str
    count: Count
    fp16_native: bool | None


class Data(Entry):
    content_digest: str
    rows: Whole


class OfTraining(Entry):
    """A file about one training run: what ran, what became of it, on what, with which data, where and when."""

    schema_: Literal[2] = Field(alias="schema")
    spec: RunSpec
    reason: str | None
    warnings: list[str]
    device: Device | None
    data: Data | None
    environment: dict[str, Any]
    started: str
    ended: str
