"""RunRecord and Summary: the JSON files under results/, their schema numbers and their validation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from throughline.files import UserError, read_json
from throughline.study.config import Optimizer, Options, Precision, Steps
from throughline.study.runs import RunSpec

SCHEMA = 1
"""Schema number of records and summaries; raised when a key changes its meaning or goes."""

Status = Literal["ok", "oom", "unsupported", "invalid"]
NonNegative = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Bytes = Annotated[int, Field(ge=0)]


class Entry(BaseModel):
    """A part of a record: types are strict, unknown keys are errors, numbers are finite."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False, populate_by_name=True)


Kind = TypeVar("Kind", bound=Entry)


class Rank(Entry):
    """One rank's window; seconds count from the first start among the ranks of its node."""

    rank: Annotated[int, Field(ge=0)]
    node: Annotated[int, Field(ge=0)]
    window_start_s: NonNegative
    window_end_s: NonNegative
    peak_memory_bytes: Bytes | None
    cpu_seconds: NonNegative | None
    loader_stall_s: NonNegative | None
    loss: list[float | None] | None = None


class Device(Entry):
    kind: Literal["cpu", "cuda"]
    name: str
    count: Annotated[int, Field(ge=1)]
    fp16_native: bool | None


class Data(Entry):
    content_digest: str
    rows: Annotated[int, Field(ge=0)]


class Utilization(Entry):
    """Shares of the devices' time over the timed window."""

    cpu: NonNegative | None
    gpu: NonNegative | None


class Series(Entry):
    """One figure over the timed window, sampled at a fixed interval."""

    mean: float
    min: float
    max: float


class DeviceTelemetry(Entry):
    """One device over the window. What it does not tell is None, and `NodeTelemetry.reasons` says why."""

    index: Annotated[int, Field(ge=0)]
    utilization: Series | None = None
    memory_used_bytes: Series | None = None
    sm_clock_mhz: Series | None = None
    memory_clock_mhz: Series | None = None
    power_w: Series | None = None
    temperature_c: Series | None = None
    sm_active: Series | None = None
    tensor_active: Series | None = None
    dram_active: Series | None = None
    nvlink_bytes_per_s: Series | None = None
    energy_j: NonNegative | None = None
    throttle_reasons: list[str] | None = None


class NodeTelemetry(Entry):
    """What one node did over the window: the whole machine, the run's own processes, the run's devices.

    `cost_cpu_share` is the sampler's own CPU-seconds over the window's seconds. `reasons` says of every figure that is
    None why it is.
    """

    node: Annotated[int, Field(ge=0)]
    interval_s: Positive
    samples: Annotated[int, Field(ge=0)]
    cost_cpu_share: NonNegative | None
    machine: dict[str, Series | None]
    processes: dict[str, Series | None]
    devices: list[DeviceTelemetry]
    reasons: dict[str, str]


class Memory(Entry):
    """Peak memory of one device, the highest of all ranks: as the framework needs it, as it reserves it, as the card
    sees it, and what there is."""

    needed_bytes: Bytes | None
    reserved_bytes: Bytes | None
    device_used_bytes: Bytes | None
    device_total_bytes: Bytes | None
    reasons: dict[str, str]


class Work(Entry):
    """How much work a sample is, and how much of the device's peak that came to, per device.

    `mfu` divides by the datasheet's dense peak at this precision, `matmul_share` by a matrix product measured on this
    very device in this run. `convention` states every choice behind the figures.
    """

    flops_per_sample: Positive | None
    flops_per_s: Positive | None
    datasheet_flops_per_s: Positive | None
    mfu: NonNegative | None
    matmul_flops_per_s: Positive | None
    matmul_share: NonNegative | None
    real_token_share: NonNegative | None
    real_tokens_per_s: Positive | None
    convention: dict[str, str]
    reasons: dict[str, str]


class RunRecord(Entry):
    """One measured run. `status` is a measured outcome; only `ok` carries a throughput."""

    schema_: Literal[1] = Field(alias="schema")
    spec: RunSpec
    status: Status
    reason: str | None
    warnings: list[str]
    samples_per_s: Positive | None
    window_s: Positive | None
    steps_asked: Annotated[int, Field(ge=1)]
    steps_timed: Annotated[int, Field(ge=0)]
    warmup_steps: Annotated[int, Field(ge=0)]
    step_seconds: list[NonNegative]
    loss: list[float | None]
    scaler_skipped_steps: Annotated[int, Field(ge=0)]
    ranks: list[Rank]
    peak_memory_bytes: Bytes | None
    loader_stall_share: NonNegative | None
    utilization: Utilization
    device: Device | None
    data: Data | None
    environment: dict[str, Any]
    settings: dict[str, Any] | None = None
    telemetry: list[NodeTelemetry] | None = None
    memory: Memory | None = None
    work: Work | None = None
    configuration: dict[str, Any] | None = None
    started: str
    ended: str

    @model_validator(mode="after")
    def _status_and_number_agree(self) -> RunRecord:
        if (self.status == "ok") != (self.samples_per_s is not None):
            raise ValueError(f"status {self.status} with samples_per_s {self.samples_per_s}")
        if self.status != "ok" and not self.reason:
            raise ValueError(f"status {self.status} without a reason")
        if self.status == "ok" and self.samples_per_s is not None:
            self._throughput_follows_from_the_window(self.samples_per_s)
        return self

    def _throughput_follows_from_the_window(self, samples_per_s: float) -> None:
        """samples/s = samples per step * steps / window."""
        if self.window_s is None or self.steps_timed == 0:
            raise ValueError("status ok without a timed window")
        expected = self.spec.size.samples_per_step * self.steps_timed / self.window_s
        if abs(samples_per_s - expected) > 1e-6 * expected:
            raise ValueError(f"samples_per_s {samples_per_s} does not follow from the window: {expected}")


class LeftOut(Entry):
    """Repeats that are ok and do not enter the figures, because they ran in another environment than the others."""

    repeats: list[Annotated[int, Field(ge=1)]]
    values: list[Positive]
    environment: str | None
    differs: list[str]


class Use(Entry):
    """What the telemetry of a cell comes to: means over nodes, devices and repeats, and the extremes of all.

    `devices` has the names of `DeviceTelemetry`. `reasons` says of every figure that is None why it is.
    """

    machine: dict[str, Series | None]
    processes: dict[str, Series | None]
    devices: dict[str, Series | None]
    throttle_reasons: list[str] | None
    samples: Annotated[int, Field(ge=0)]
    cost_cpu_share: NonNegative | None
    reasons: dict[str, str]


class Cost(Entry):
    """What a cell's throughput costs; `price_per_device_hour` times devices. `reasons` says why a figure is None."""

    price_per_device_hour: Positive | None
    currency: str | None
    price_source: str | None
    per_million_samples: Positive | None
    samples_per_currency_unit: Positive | None
    task_samples: Annotated[int, Field(ge=1)] | None
    task_hours: Positive | None
    task_price: Positive | None
    reasons: dict[str, str]


class Goal(Entry):
    """One goal of the configuration and what became of it; `worst` is the cell that decides, `where` names it."""

    name: Literal["efficiency", "utilization"]
    verdict: Literal["pass", "fail", "not measured"]
    at_least: Positive
    from_nodes: Annotated[int, Field(ge=1)] | None
    worst: NonNegative | None
    where: str | None
    why: str


class Cell(Entry):
    """All repeats of one framework on one topology, and what they come to."""

    values: list[Positive | None]
    n: Annotated[int, Field(ge=1)]
    n_ok: Annotated[int, Field(ge=0)]
    median_speed: Positive | None
    average_speed: Positive | None
    min: Positive | None
    max: Positive | None
    speedup: Positive | None
    efficiency: Positive | None
    batch_size_per_device: Annotated[int, Field(ge=1)]
    global_batch: Annotated[int, Field(ge=1)]
    world_size: Annotated[int, Field(ge=1)]
    statuses: dict[str, int]
    reasons: list[str]
    warnings: list[str]
    peak_memory_bytes: Bytes | None
    loader_stall_share: NonNegative | None
    simulated: bool = False
    logs: list[str]
    median_absolute_deviation: NonNegative | None = None
    coefficient_of_variation: NonNegative | None = None
    range_coverage: NonNegative | None = None
    speedup_range: list[Positive] | None = None
    speedup_coverage: NonNegative | None = None
    efficiency_range: list[Positive] | None = None
    left_out: list[LeftOut] = []
    utilization: Utilization | None = None
    memory: Memory | None = None
    use: Use | None = None
    work: Work | None = None
    energy_j_per_sample: Positive | None = None
    cost: Cost | None = None


class Mathematics(Entry):
    """Whether a framework computes what the reference does (its worst topology in equivalence.json)."""

    verdict: Literal["equal", "different", "unsupported", "failed"]
    largest_difference: NonNegative | None
    tolerance: Positive
    reason: str | None


class Summary(Entry):
    """results/<benchmark>/bz<b>_<precision>.json: every framework and topology of one batch size and precision."""

    schema_: Literal[1] = Field(alias="schema")
    benchmark: str
    model: str
    sequence: Annotated[int, Field(ge=1)]
    batch_size_per_device: Annotated[int, Field(ge=1)]
    precision: Precision
    unit: Literal["samples/s"]
    device: Device | None
    environment: dict[str, Any]
    optimizer: Optimizer
    options: Options
    steps: Steps
    data: Data | None
    remarks: str | None
    mathematics: dict[str, Mathematics] | None = None
    settings: dict[str, dict[str, Any] | None] | None = None
    goals: list[Goal] | None = None
    frameworks: dict[str, dict[str, Cell]]


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


class MaxBatch(Entry):
    """results/<benchmark>/max_batch_<precision>.json: the largest batch per device that fits, by framework."""

    schema_: Literal[1] = Field(alias="schema")
    benchmark: str
    model: str
    sequence: Annotated[int, Field(ge=1)]
    precision: Precision
    topology: str
    steps: Annotated[int, Field(ge=1)]
    memory_limit_mb: Annotated[int, Field(ge=1)] | None
    tried_at_most: Annotated[int, Field(ge=1)]
    frameworks: dict[str, Largest]
    started: str
    ended: str


class Look(Entry):
    """What held-out text says after `step` steps: loss (masked + next sentence), and shares of right answers."""

    step: Annotated[int, Field(ge=0)]
    loss: float | None
    mlm_accuracy: NonNegative | None
    nsp_accuracy: NonNegative | None
    samples: Annotated[int, Field(ge=1)]


class Curve(Entry):
    """results/<benchmark>/convergence_<...>/curve.json: a long training run. `loss` is rank 0's at every step."""

    schema_: Literal[1] = Field(alias="schema")
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

    quantity: Literal["loss", "mlm_accuracy", "nsp_accuracy"]
    step: Annotated[int, Field(ge=0)]
    value: float | None
    stated: float
    limit: float
    passes: bool


class ConvergenceVerdict(Entry):
    """results/<benchmark>/convergence_<...>.json: whether a long run learns what was stated."""

    schema_: Literal[1] = Field(alias="schema")
    spec: RunSpec
    verdict: Literal["pass", "fail", "not judged", "unsupported"]
    reason: str
    against: str | None
    against_sha256: str | None
    tolerance: NonNegative
    last: Look | None
    stated: dict[str, list[list[float]]]
    compared: list[AgainstStated]


class Comparison(Entry):
    """One framework on one topology against the reference; `difference` is relative, per step."""

    verdict: Literal["equal", "different", "unsupported", "failed"]
    reason: str | None
    loss: list[float]
    difference: list[NonNegative]
    largest_difference: NonNegative | None
    at_step: Annotated[int, Field(ge=1)] | None


class Equivalence(Entry):
    """results/<benchmark>/equivalence.json: whether the frameworks of a benchmark compute the same."""

    schema_: Literal[1] = Field(alias="schema")
    benchmark: str
    model: str
    sequence: Annotated[int, Field(ge=1)]
    batch_size_per_device: Annotated[int, Field(ge=1)]
    steps: Annotated[int, Field(ge=1)]
    tolerance: Positive
    reference: str
    limits: str
    optimizer: Optimizer
    reference_loss: dict[str, list[float]]
    frameworks: dict[str, dict[str, Comparison]]

    def of(self, framework: str) -> Mathematics | None:
        """What its topologies come to, the worst of them first; None where it was not compared."""
        order = ("different", "failed", "unsupported", "equal")
        every = self.frameworks.get(framework, {}).items()
        worst = min(
            every, key=lambda one: (order.index(one[1].verdict), -(one[1].largest_difference or 0)), default=None
        )
        if worst is None:
            return None
        topology, found = worst
        return Mathematics(
            verdict=found.verdict,
            largest_difference=found.largest_difference,
            tolerance=self.tolerance,
            reason=f"{topology}: {found.reason}" if found.reason else None,
        )


def read_equivalence(path: str | Path) -> Equivalence:
    """The comparison in a file; UserError where it is not one."""
    return _validated(Equivalence, path)


def read_max_batch(path: str | Path) -> MaxBatch:
    """The search for the largest batch in a file; UserError where it is not one."""
    return _validated(MaxBatch, path)


def read_curve(path: str | Path) -> Curve:
    """The curve of a convergence check in a file; UserError where it is not one."""
    return _validated(Curve, path)


def read_verdict(path: str | Path) -> ConvergenceVerdict:
    """The verdict of a convergence check in a file; UserError where it is not one."""
    return _validated(ConvergenceVerdict, path)


def read_run(path: str | Path) -> RunRecord:
    """The record in a file; UserError where it is not one, or stands where another run's record belongs."""
    record = _validated(RunRecord, path)
    if not str(Path(path).as_posix()).endswith(record.spec.record.removeprefix("results/")):
        raise UserError(
            f"{path} holds the record of another run",
            why=f"its specification belongs at {record.spec.record}",
            next_step=f"remove the file and make it again: snakemake {path}",
        )
    return record


def read_summary(path: str | Path) -> Summary:
    """The summary in a file; UserError where it is not one."""
    return _validated(Summary, path)


def dump(entry: RunRecord | Summary) -> dict[str, Any]:
    """What `files.write_json` writes."""
    return entry.model_dump(by_alias=True)


def _validated(model: type[Kind], path: str | Path) -> Kind:
    value = read_json(path)
    if isinstance(value, Mapping) and value.get("schema") != SCHEMA:
        raise UserError(
            f"{path} has schema {value.get('schema')!r}; this version reads {SCHEMA}",
            next_step=f"make it again: snakemake --force {path}",
        )
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UserError(
            f"{path} is not a valid {model.__name__}",
            why=f"{where}: {first['msg']}"
            + (f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""),
            next_step="remove the file and run snakemake again",
        ) from None
