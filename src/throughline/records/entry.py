"""The base class of all parts of a record, and the parts that several kinds of files share."""

from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from throughline import frameworks, workloads
from throughline.study.runs import Specification
from throughline.study.section import Value

SCHEMA: Final = 3
"""The schema number in every file that we write. We increase it when a key changes its name or meaning or is removed.

A version reads files of its own schema, and no others.
"""
Schema = Annotated[Literal[3], Field(alias="schema")]

NonNegative = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
Whole = Annotated[int, Field(ge=0)]
BatchSize = Count | Literal["program"]
"""`program`: the program that was measured decides its batch size."""
if TYPE_CHECKING:
    DeviceKind = str
else:
    DeviceKind = Literal[("cpu", "declared", *frameworks.accelerators())]


class Entry(BaseModel):
    """A part of a record. Types are strict, unknown keys are errors, and numbers are finite."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, allow_inf_nan=False, populate_by_name=True, defer_build=True
    )


class WorkloadFile(Entry):
    """A file about a benchmark's model. In JSON, the workload's parameters are on one level with the other keys."""

    model: str
    parameters: dict[str, Value]
    schema_: Schema
    benchmark: str

    @model_validator(mode="before")
    @classmethod
    def _gather(cls, value: Any) -> Any:
        if not isinstance(value, Mapping) or "parameters" in value or not isinstance(value.get("model"), str):
            return value
        names = [field.name for field in fields(workloads.of(value["model"]).parameters)]
        others = {key: entry for key, entry in value.items() if key not in names}
        return {**others, "parameters": {key: value[key] for key in names if key in value}}

    @model_serializer(mode="wrap")
    def _flat(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        value: dict[str, Any] = handler(self)
        return {**value.pop("parameters"), **value}


class Figure(Entry):
    """A figure beside throughput that a workload declares. `at` is the size (or percentile) that the value is for."""

    name: str
    unit: str
    better: Literal["more", "less"]
    at: int | float | str | None
    value: float | None


class Device(Entry):
    kind: DeviceKind
    name: str
    count: Count
    fp16_native: bool | None


class Data(Entry):
    """What a run read. `dumps`: the dump behind each name without a date, such as enwiki-latest; None without one."""

    content_digest: str
    rows: Whole
    dumps: dict[str, str] | None = Field(None, exclude_if=lambda value: value is None)


class TrainingFile(Entry):
    """A file about one training run.

    `environment` has software, hardware and its limits, allow-listed variables, our `commit`, the `packages` that the
    rank had loaded, and `code`, a digest of our code that this framework runs on this model. Its `digest` leaves out
    the commit and assigned device numbers, which may differ between repeats.
    """

    schema_: Schema
    spec: Specification
    reason: str | None
    warnings: list[str]
    device: Device | None
    data: Data | None
    environment: dict[str, Any]
    started: str
    ended: str

    @property
    def times(self) -> tuple[datetime, datetime] | None:
        """The start and the end of the whole run, in UTC; None if they are not known."""
        try:
            start, end = (datetime.fromisoformat(text).astimezone(UTC) for text in (self.started, self.ended))
        except ValueError:
            return None
        return start, end

    @property
    def seconds(self) -> float | None:
        """How long the whole run took; None if it is not known, or if the clock was set back in between."""
        taken = (self.times[1] - self.times[0]).total_seconds() if self.times else -1.0
        return taken if taken >= 0 else None
