"""bz<b>_<precision>.json: the repeats of every framework and topology, for one batch size and precision."""

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field

from throughline.records.checks import EquivalenceVerdict
from throughline.records.entry import (
    BatchSize,
    Count,
    Data,
    Device,
    Entry,
    Figure,
    NonNegative,
    Positive,
    Whole,
    WorkloadFile,
)
from throughline.records.run import Checkpoints, Memory, Network, Series, StartUp, Utilization, Work
from throughline.spec import EpochsJob, Optimizer, Precision, Scaling, Steps
from throughline.study.benchmark import Options
from throughline.study.section import Share


class LeftOut(Entry):
    """Successful repeats that the figures leave out, because they ran in another environment than the others."""

    repeats: list[Count]
    values: list[Positive]
    environment: str | None
    differs: list[str]


class Use(Entry):
    """The telemetry of a cell: means over nodes, devices and repeats, and the lowest and highest values.

    `devices` has the keys of `DeviceTelemetry`.
    """

    machine: dict[str, Series | None]
    processes: dict[str, Series | None]
    devices: dict[str, Series | None]
    throttle_reasons: list[str] | None
    samples: Whole
    cost_cpu_share: NonNegative | None
    reasons: dict[str, str]


class Cost(Entry):
    """The cost of a cell's throughput, from the price and the number of devices.

    monthly_price_per_device_hour: of a node that is paid by the month and never idle.
    """

    price_per_device_hour: Positive | None
    currency: str | None
    price_source: str | None
    monthly_price_per_device_hour: Positive | None = Field(None, exclude_if=lambda value: value is None)
    per_million_samples: Positive | None
    samples_per_currency_unit: Positive | None
    total_samples: Count | None
    task_hours: Positive | None
    task_price: Positive | None
    reasons: dict[str, str]


class Goal(Entry):
    """One goal of the configuration and its verdict. `where` names the cell with the worst value, `worst`.

    A goal of `mean_utilization` is judged by `mean` over all cells; `part` is the hardware.
    """

    name: Literal["efficiency", "utilization", "mean_utilization"]
    part: Literal["gpu", "cpu", "memory", "disk", "network"] | None = Field(
        None, exclude_if=lambda value: value is None
    )
    verdict: Literal["pass", "fail", "not measured"]
    at_least: Positive
    from_nodes: Count | None
    worst: NonNegative | None
    mean: NonNegative | None = Field(None, exclude_if=lambda value: value is None)
    where: str | None
    why: str


class RankFigures(Entry):
    """One rank of a cell in each repeat, in the order of the cell's `values`; None where a repeat has no such figure.

    device: its number among the ranks of its node. solo_step_s: the seconds of a step without any exchange, which only
    runs of the extra `no_gradient_sync` tell. matmul_flops_per_s: its own matrix product.
    """

    rank: Whole
    node: Whole
    device: Whole
    solo_step_s: list[Positive | None] | None
    matmul_flops_per_s: list[Positive | None] | None


class CellRecord(Entry):
    """All repeats of one framework on one topology, and the figures from them.

    values, starts, steps_timed, start_up, checkpoints: of each repeat; a value is None if its repeat is not ok, is left
    out, or has no record. n, n_ok: repeats asked for, and in the figures. range_coverage: the probability that `min` to
    `max` contains the true median. speedup_range: from `min` over the baseline's `max` to `max` over its `min`; it
    covers the true ratio with at least `speedup_coverage`. efficiency: the speedup over the devices, counted in those
    of the baseline. energy_j_per_sample: of all devices. other_units: medians such as tokens/s. figures: medians.
    ran_in: what differs from the summary's device, environment and data. started, ended: of the repeats behind the
    figures. ranks: what each of several ranks did by itself.
    """

    values: list[Positive | None]
    steps_timed: list[Count | None]
    n: Count
    n_ok: Whole
    median_speed: Positive | None
    average_speed: Positive | None
    min: Positive | None
    max: Positive | None
    speedup: Positive | None
    efficiency: Positive | None
    batch_size_per_device: Count | None
    replicas: Count
    global_batch: Count
    world_size: Count
    statuses: dict[str, int]
    reasons: list[str]
    warnings: list[str]
    peak_memory_bytes: Whole | None
    loader_stall_share: NonNegative | None
    simulated: bool
    logs: list[str]
    median_absolute_deviation: NonNegative | None
    coefficient_of_variation: NonNegative | None
    range_coverage: NonNegative | None
    speedup_range: list[Positive] | None
    speedup_coverage: NonNegative | None
    efficiency_range: list[Positive] | None
    left_out: list[LeftOut]
    utilization: Utilization | None
    memory: Memory | None
    use: Use | None
    work: Work | None
    network: Network | None
    energy_j_per_sample: Positive | None
    other_units: dict[str, Positive]
    figures: list[Figure]
    cost: Cost
    ran_in: dict[str, Any] | None
    started: str | None
    ended: str | None
    starts: list[str | None]
    ranks: list[RankFigures] | None = Field(None, exclude_if=lambda value: value is None)
    start_up: list[StartUp | None] | None = Field(None, exclude_if=lambda value: value is None)
    checkpoints: list[Checkpoints | None] | None = Field(None, exclude_if=lambda value: value is None)


class Summary(WorkloadFile):
    """results/<benchmark>/bz<b>_<precision>.json: every framework and topology of one batch size and precision.

    `batch` is the batch of each replica or, if `scaling` is strong, of all replicas. `batch_size_per_device`, DLPerf's
    key, is None if that is not the batch of a device. If the block states `global_batch`, the accumulation of each cell
    follows from it, and `options` states none. `baselines` has each framework's topology that its speedups are relative
    to.
    """

    batch: BatchSize
    batch_size_per_device: Count | None
    precision: Precision
    scaling: Scaling
    global_batch: Count | None = Field(None, exclude_if=lambda value: value is None)
    unit: str
    device: Device | None
    environment: dict[str, Any]
    optimizer: Optimizer
    options: Options
    steps: Steps
    job: EpochsJob | None = Field(None, exclude_if=lambda value: value is None)
    data: Data | None
    remarks: str | None
    equivalence: dict[str, EquivalenceVerdict] | None
    settings: dict[str, dict[str, Any] | None] | None
    goals: list[Goal] | None
    reasons: dict[str, str]
    baselines: dict[str, str]
    margin: Share
    mtbf_hours: Positive | None = Field(None, exclude_if=lambda value: value is None)
    frameworks: dict[str, dict[str, CellRecord]]

    def cells(self) -> Iterator[tuple[str, str, CellRecord]]:
        """Yield framework, topology and cell, in the order of the file."""
        for framework, topologies in self.frameworks.items():
            for topology, cell in topologies.items():
                yield framework, topology, cell
