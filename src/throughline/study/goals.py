"""The sections `goals` and `prices`: the goals that results have to reach, and what devices cost."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, PositiveFloat, model_validator

from throughline.study.section import PositiveInt, Section


class EfficiencyGoal(Section):
    from_nodes: PositiveInt = Field(20, description="topologies of this many nodes or more are judged; 1: all of them")
    at_least: Annotated[float, Field(gt=0, le=1)] = Field(
        0.8, description="the lowest efficiency that passes: speedup divided by devices"
    )


class UtilizationGoal(Section):
    at_least: Annotated[float, Field(gt=0, le=1)] = Field(
        0.8, description="the lowest mean use of the devices (on a CPU: of the workers' threads) over the window"
    )


class Goals(Section):
    efficiency: EfficiencyGoal = Field(default_factory=EfficiencyGoal, description="how well a benchmark has to scale")
    utilization: UtilizationGoal = Field(default_factory=UtilizationGoal, description="how busy devices have to be")


class Price(Section):
    per_hour: PositiveFloat | None = Field(None, description="price of one device for an hour")
    per_month: PositiveFloat | None = Field(
        None, description="price of a node for a month of 720 hours; instead of per_hour"
    )
    devices: PositiveInt | None = Field(None, description="devices of that node; with per_month")
    currency: Annotated[str, Field(pattern=r"^[A-Z]{3}$")] = Field(description="three capital letters, such as EUR")

    @model_validator(mode="after")
    def _one_way(self) -> Price:
        if (self.per_hour is None) == (self.per_month is None):
            raise ValueError("one of per_hour and per_month is needed, and only one")
        if (self.per_month is None) != (self.devices is None):
            raise ValueError("devices goes with per_month: the devices of that node")
        return self
