"""run<k>.json: one measured run, and what was observed while it ran."""

from typing import Any, Literal, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from throughline.records.entry import Count, Entry, Figure, NonNegative, OfTraining, Positive, Whole


class Rank(Entry):
    """One rank's window; seconds count from the first start among the ranks of its node."""

    rank: Whole
    node: Whole
    window_start_s: NonNegative
    window_end_s: NonNegative
    peak_memory_bytes: Whole | None
    cpu_seconds: NonNegative | None
    loader_stall_s: NonNegative | None
    loss: list[float | None] | None = None


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

    index: Whole
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

    node: Whole
    interval_s: Positive
    samples: Whole
    cost_cpu_share: NonNegative | None
    machine: dict[str, Series | None]
    processes: dict[str, Series | None]
    devices: list[DeviceTelemetry]
    reasons: dict[str, str]


class Memory(Entry):
    """Peak memory of one device, the highest of all ranks: as the framework needs it, as it reserves it, as the card
    sees it, and what there is."""

    needed_bytes: Whole | None
    reserved_bytes: Whole | None
    device_used_bytes: Whole | None
    device_total_bytes: Whole | None
    reasons: dict[str, str]


class Work(Entry):
    """How much work a sample is, and how much of the device's peak that came to, per device.

    `mfu` divides by the datasheet's dense peak at this precision, `matmul_share` by a matrix product measured on this
    very device in this run. `mfu_causal`, of decoders that state it, counts attention under the causal mask alone,
    where `mfu` counts it in full. `convention` states every choice behind the figures.
    """

    flops_per_sample: Positive | None
    flops_per_s: Positive | None
    datasheet_flops_per_s: Positive | None
    mfu: NonNegative | None
    matmul_flops_per_s: Positive | None
    matmul_share: NonNegative | None
    real_token_share: NonNegative | None
    real_tokens_per_s: Positive | None
    mfu_causal: NonNegative | None = None
    convention: dict[str, str]
    reasons: dict[str, str]

    @model_serializer(mode="wrap")
    def _without_what_others_lack(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in handler(self).items() if name != "mfu_causal" or value is not None}


class Network(Entry):
    """The exchange of a step's gradients alone, after the window: how many messages (all-reduce) carry how many bytes,
    and the seconds that all of them take."""

    messages: Count | None
    bytes_per_step: Count | None
    seconds: Positive | None
    reason: str | None


class RunRecord(OfTraining):
    """One measured run. `status` is a measured outcome; only `ok` carries a throughput.

    `samples_per_s` is the primary figure, whatever `unit` calls a sample; `loss` is None where a workload has none.
    """

    status: Literal["ok", "oom", "unsupported", "invalid"]
    unit: str
    samples_per_s: Positive | None
    figures: list[Figure] = Field(default_factory=list)
    window_s: Positive | None
    steps_asked: Count
    steps_timed: Whole
    warmup_steps: Whole
    step_seconds: list[NonNegative]
    loss: list[float | None] | None
    scaler_skipped_steps: Whole
    ranks: list[Rank]
    peak_memory_bytes: Whole | None
    loader_stall_share: NonNegative | None
    utilization: Utilization
    settings: dict[str, Any] | None = None
    telemetry: list[NodeTelemetry] | None = None
    memory: Memory | None = None
    work: Work | None = None
    network: Network | None = None
    configuration: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _status_and_number_agree(self) -> Self:
        if (self.status == "ok") != (self.samples_per_s is not None):
            raise ValueError(f"status {self.status} with samples_per_s {self.samples_per_s}")
        if self.status != "ok" and not self.reason:
            raise ValueError(f"status {self.status} without a reason")
        if self.samples_per_s is not None:
            if self.window_s is None or self.steps_timed == 0:
                raise ValueError("status ok without a timed window")
            expected = self.spec.size.samples_per_step * self.steps_timed / self.window_s
            if abs(self.samples_per_s - expected) > 1e-6 * expected:
                raise ValueError(f"samples_per_s {self.samples_per_s} does not follow from the window: {expected}")
        return self
