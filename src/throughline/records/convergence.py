"""A long training run (curve.json), and the verdict whether it learns what was stated (convergence_<...>.json)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from throughline.records.entry import Data, Device, Entry, NonNegative
from throughline.study.runs import RunSpec


class Look(Entry):
    """What held-out data says after `step` steps: the figures of the workload's HELD_OUT, `loss` among them."""

    step: Annotated[int, Field(ge=0)]
    samples: Annotated[int, Field(ge=1)]
    figures: dict[str, float | None]

    @classmethod
    def flat(cls, value: Mapping[str, Any]) -> dict[str, Any]:
        """A look as a rank tells it, its figures beside step and samples -> as this entry has it."""
        figures = {name: one for name, one in value.items() if name not in ("step", "samples")}
        return {"step": value["step"], "samples": value["samples"], "figures": figures}


class Curve(Entry):
    """results/<benchmark>/convergence_<...>/curve.json: a long training run. `loss` is rank 0's at every step."""

    schema_: Literal[2] = Field(alias="schema")
    spec: RunSpec
    evaluate_every: Annotated[int, Field(ge=1)]
    status: Literal["ok", "oom", "unsupported"]
    reason: str | None
    warnings: list[str]
    curve: list[Look]
    loss: list[float | None]
    resumed_after_step: Annotated[int, Field(ge=1)] | None
    device: Device | None
    data: Data | None
    environment: dict[str, Any]
    started: str
    ended: str


class AgainstStated(Entry):
    """One look against the stated curve."""

    quantity: str
    step: Annotated[int, Field(ge=0)]
    value: float | None
    stated: float
    limit: float
    passes: bool


class ConvergenceVerdict(Entry):
    """results/<benchmark>/convergence_<...>.json: whether a long run learns what was stated."""

    schema_: Literal[2] = Field(alias="schema")
    spec: RunSpec
    verdict: Literal["pass", "fail", "not judged", "unsupported"]
    reason: str
    against: str | None
    against_sha256: str | None
    tolerance: NonNegative
    last: Look | None
    stated: dict[str, list[list[float]]]
    compared: list[AgainstStated]
