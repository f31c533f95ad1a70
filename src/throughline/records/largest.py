"""max_batch_<precision>.json: a search for the largest batch that fits."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from throughline.records.entry import Bytes, Device, Entry, OfWorkload
from throughline.study.section import Precision


class Try(Entry):
    """One batch size of a search for the largest; `fits` says nothing of speed."""

    batch_per_device: Annotated[int, Field(ge=1)]
    status: Literal["fits", "oom"]
    reason: str | None
    peak_memory_bytes: Bytes | None


class Largest(Entry):
    """One framework's largest batch per device, and the tries behind it in their order.

    `smallest_out_of_memory` is None where nothing that was tried was refused.
    """

    status: Literal["ok", "oom", "unsupported"]
    reason: str | None
    largest_batch_per_device: Annotated[int, Field(ge=1)] | None
    smallest_out_of_memory: Annotated[int, Field(ge=1)] | None
    peak_memory_bytes: Bytes | None
    device: Device | None
    tries: list[Try]


class MaxBatch(OfWorkload):
    """results/<benchmark>/max_batch_<precision>.json: the largest batch per device that fits, by framework."""

    schema_: Literal[2] = Field(alias="schema")
    benchmark: str
    precision: Precision
    topology: str
    steps: Annotated[int, Field(ge=1)]
    memory_limit_mb: Annotated[int, Field(ge=1)] | None
    tried_at_most: Annotated[int, Field(ge=1)]
    frameworks: dict[str, Largest]
    started: str
    ended: str
