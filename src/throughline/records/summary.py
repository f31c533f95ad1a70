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
    """The telemetry of a cell: means over nodes, devices and repeats, and the lowest and highest values of all.

    `devices` has the keys of `DeviceTelemetry`. `reasons` says for every figure that is None why it is unknown.
    """

    machine: dict[str, Series | None]
    processes: dict[str, Series | None]
    devices: dict[str, Series | None]
    throttle_reasons: list[str] | None
    samples: Whole
    cost_cpu_share: NonNegative | None
    reasons: dict[str, str]


class Cost(Entry):
    """The cost of a cell's throughput, from `price_per_device_hour` and the number of devices.

    monthly_price_per_device_hour: of a node that is paid by the month and never idle, if the configuration has both
    prices. `reasons` says why a figure is None.
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
    """One goal of the configuration and its verdict. `worst` is the worst cell's value, and `where` names this cell.

    A goal of `mean_utilization` has the part of the hardware as `part`, and is judged by `mean`, over all cells.
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

    values: the throughput of each repeat, None if it is not ok, is left out, or has no record. n, n_ok: repeats asked
    for, and in the figures. range_coverage: the probability that `min` to `max` contains the true median.
    speedup_range: from `min` over the baseline's `max` to `max` over its `min`, which covers the true ratio with at
    least `speedup_coverage`. efficiency: the speedup over the devices, counted in those of the baseline. utilization,
    loader_stall_share: shares of the window. energy_j_per_sample: of all devices; None if one did not tell.
    other_units: the median throughput in other units (tokens/s); figures: medians of the repeats; ran_in: those parts
    of device, environment and data that differ from the summary's; started, ended: the first start and the last end of
    the repeats behind the figures. These three are None without such a repeat, as are utilization, memory, use and
    work. starts, steps_timed, start_up: of each repeat in `values` the start, the timed steps, and the seconds to its
    first step; checkpoints: what checkpoints cost in each. ranks: what each of several ranks did by itself. These three
    are None if the runs do not tell.
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

    `batch` is the number of the configuration. It is the batch of each replica or, if `scaling` is strong, of all
    replicas together. `batch_size_per_device` is DLPerf's key. It is None if `batch` is not the batch of a device, and
    `reasons` says what it is. `global_batch` is the global batch of all cells if the block states it. Then the
    accumulation of each cell follows from it, and `options` states none. `baselines` has each framework's topology that
    its speedups are relative to. `margin` is the share by which configurations may differ that count as equal.
    `mtbf_hours` is the mean time between failures of one device that the configuration states.
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
