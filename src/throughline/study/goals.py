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
        0.8,
        description="the lowest mean utilization of the devices (on a CPU: of the workers' threads) over the window",
    )


UtilizationShare = Annotated[float | None, Field(gt=0, le=1)]


class MeanUtilizationGoal(Section):
    from_nodes: PositiveInt = Field(1, description="topologies of this many nodes or more count; 1: all of them")
    gpu: UtilizationShare = Field(None, description="the lowest mean share of time in which the GPUs were busy")
    cpu: UtilizationShare = Field(None, description="the lowest mean utilization of all processors of the nodes")
    memory: UtilizationShare = Field(None, description="the lowest mean share of the nodes' memory in use")
    disk: UtilizationShare = Field(
        None, description="the lowest mean share of time in which a node's busiest disk worked"
    )
    network: UtilizationShare = Field(
        None, description="the lowest mean share of its full speed at which a node's busiest network link carried data"
    )

    @property
    def shares(self) -> dict[str, float]:
        """The goal of each part of the hardware that has one."""
        every: dict[str, float | None] = self.model_dump(exclude={"from_nodes"})
        return {part: share for part, share in every.items() if share is not None}


class Goals(Section):
    efficiency: EfficiencyGoal = Field(default_factory=EfficiencyGoal, description="how well a benchmark has to scale")
    utilization: UtilizationGoal = Field(default_factory=UtilizationGoal, description="how busy devices have to be")
    mean_utilization: MeanUtilizationGoal | None = Field(
        None,
        description="how much of the hardware has to be used, as means over the window and over all cells of a "
        "benchmark; a part without a number has no goal",
        exclude_if=lambda value: value is None,  # a parameter that changes makes finished summaries again
    )


HOURS_A_YEAR = 8760
"""The hours of use in a year of a device that is never idle: 365 days."""


class Price(Section):
    per_hour: PositiveFloat | None = Field(None, description="price of one device for an hour")
    per_month: PositiveFloat | None = Field(
        None, description="price of a node for a month of 720 hours; instead of per_hour"
    )
    devices: PositiveInt | None = Field(None, description="devices of that node; with per_month, or with purchase")
    purchase: PositiveFloat | None = Field(
        None,
        description="price of one device to buy, or with `devices` of a node; instead of per_hour. It is spread over "
        "the hours of use",
        exclude_if=lambda value: value is None,
    )
    years: PositiveFloat | None = Field(
        None, description="years of use; with purchase", exclude_if=lambda value: value is None
    )
    hours_a_year: Annotated[float, Field(gt=0, le=8784)] | None = Field(
        None,
        description=f"hours of use in a year; with purchase. Without the key, {HOURS_A_YEAR}: the device is never idle",
        exclude_if=lambda value: value is None,
    )
    currency: Annotated[str, Field(pattern=r"^[A-Z]{3}$")] = Field(description="three capital letters, such as EUR")

    @model_validator(mode="after")
    def _one_way(self) -> Price:
        if [self.per_hour, self.per_month, self.purchase].count(None) != 2:
            raise ValueError("one of per_hour, per_month and purchase is needed, and only one")
        if self.per_month is not None and self.devices is None:
            raise ValueError("devices goes with per_month: the devices of that node")
        if self.per_hour is not None and self.devices is not None:
            raise ValueError("devices goes with per_month or purchase: the devices of that node")
        if (self.purchase is None) != (self.years is None):
            raise ValueError("purchase and years go together: the price is spread over the years of use")
        if self.hours_a_year is not None and self.purchase is None:
            raise ValueError("hours_a_year goes with purchase: the hours of use in each of the years")
        return self
