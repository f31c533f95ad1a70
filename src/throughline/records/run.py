"""run<k>.json: one measured run, and what was observed during it."""

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from throughline.records.entry import Count, Entry, Figure, NonNegative, Positive, TrainingFile, Whole
from throughline.spec import Precision

STATUSES = {
    "ok": "it has a throughput. Only such runs enter a median",
    "oom": "an allocator refused memory on any rank",
    "unsupported": "framework or device cannot do this, such as TF32 on a CPU",
    "invalid": "a loss is not finite, steps are missing without a cap, the loss scaler skipped over 1 % of the timed "
    "steps, the loss does not fall, or products are rounded more than the precision says",
}
"""Map each status of a record to its meaning. A run that failed has no record."""


class Rank(Entry):
    """One rank's window and figures. Seconds count from the first start of a window among the ranks of its node.

    `matmul_flops_per_s` is the rank's own matrix product after the window; None if it measured none. `figures` has its
    values of the record's figures, in their order, where each rank measures its own device.
    """

    rank: Whole
    node: Whole
    window_start_s: NonNegative
    window_end_s: NonNegative
    peak_memory_bytes: Whole | None
    cpu_seconds: NonNegative | None
    loader_stall_s: NonNegative | None
    loss: list[float | None] | None = None
    matmul_flops_per_s: Positive | None = Field(None, exclude_if=lambda value: value is None)
    figures: list[float | None] | None = Field(None, exclude_if=lambda value: value is None)


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
    """One device over the window.

    `utilization` is the share of time with a kernel running, `energy_j` the difference of the card's counter. Only
    Hopper and newer have `sm_active`, `tensor_active`, `dram_active` and `nvlink_bytes_per_s` (both directions).
    """

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
    """One node over the window: the machine, the run's processes and its devices.

    `cost_cpu_share` is the sampler's CPU time over the window. `machine` has shares of all cores: `cpu_share`,
    `cpu_others_share` (not used by the run) and `cpu_steal_share` (taken by the host). `disk_busy_share` and
    `network_busy_share` are those of the busiest disk and link; network rates leave loopback out.
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
    """The peak memory of a device, the highest of all ranks.

    It is what the framework needed and reserved, what the device reports, and what it has. `window_needed_bytes` leaves
    out what libraries tried in the first steps; few frameworks can count it. `predicted_bytes` is the prediction, if
    any.
    """

    needed_bytes: Whole | None
    reserved_bytes: Whole | None
    device_used_bytes: Whole | None
    device_total_bytes: Whole | None
    reasons: dict[str, str]
    window_needed_bytes: Whole | None = Field(None, exclude_if=lambda value: value is None)
    predicted_bytes: Whole | None = Field(None, exclude_if=lambda value: value is None)


class Work(Entry):
    """The FLOPs of a sample, and the share of a device's peak that the run reached. FLOP/s are per device.

    `mfu` is relative to the datasheet's dense peak at this precision, `matmul_share` to a matrix product measured on
    the same device. Attention counts in full; in `mfu_causal`, of some decoders, only under the causal mask.
    `computed_matmul_share` counts what a framework computes beyond the model's needs. `convention` states every choice.
    """

    flops_per_sample: Positive | None
    flops_per_s: Positive | None
    datasheet_flops_per_s: Positive | None
    mfu: NonNegative | None
    matmul_flops_per_s: Positive | None
    matmul_share: NonNegative | None
    real_token_share: NonNegative | None
    real_tokens_per_s: Positive | None
    mfu_causal: NonNegative | None = Field(None, exclude_if=lambda value: value is None)
    computed_matmul_share: NonNegative | None = Field(None, exclude_if=lambda value: value is None)
    convention: dict[str, str]
    reasons: dict[str, str]


class Interface(Entry):
    """A network interface that is up, or a port of an InfiniBand or RoCE device.

    `gbit_per_s` is None if the system does not state its speed. Only a port has `state` and `link_layer`.
    """

    name: str
    gbit_per_s: NonNegative | None
    state: str | None = None
    link_layer: str | None = None


Fact = bool | int | float | str | list[bool] | None


class NodeHardware(Entry):
    """What may explain a slow node: clocks, limits, links and faults of its parts. They were read after the window.

    `devices` are the run's GPUs in the node, in the order of its ranks. `reasons` says why a fact is None: by
    `machine.<fact>`, `devices.<index>.<fact>`, or `devices` if there are none.
    docs/reference/records.md names the facts.
    """

    node: Whole
    machine: dict[str, Fact | list[Interface]]
    devices: list[dict[str, Fact]]
    reasons: dict[str, str]

    def interfaces(self, fact: Literal["network", "infiniband"]) -> list[Interface]:
        """Return the interfaces that are up, or the ports."""
        listed = self.machine.get(fact)
        return [each for each in listed if isinstance(each, Interface)] if isinstance(listed, list) else []


class Network(Entry):
    """The exchange of a step's gradients alone, measured after the window.

    messages: the number of messages (all-reduce); seconds: the time of all messages together.
    """

    messages: Count | None
    bytes_per_step: Count | None
    seconds: Positive | None
    reason: str | None


class Rounding(Entry):
    """A large product that was multiplied after the window as the run multiplies, compared with float64.

    size: its rows and columns; relative_error: the largest of all ranks; claims: the run's precision; shows: the type
    whose rounding the error is. reason: why there is no error.
    """

    size: Count
    relative_error: NonNegative | None
    claims: Precision
    shows: str | None
    reason: str | None


class UpdateNorms(Entry):
    """A tensor's update by the reference, its difference from the run's update, and the weights before it.

    All are norms, over what the rank with the largest relative difference holds. `difference` is None if it is not
    finite.
    """

    update: NonNegative
    difference: NonNegative | None
    weights: NonNegative


class EquivalenceRun(Entry):
    """What only the record of an equivalence check's run has: the skipped steps, and the updates by the tensors' names.

    `reason` says why there are no updates.
    """

    skipped_steps: list[Count]
    updates: dict[str, UpdateNorms]
    reason: str | None


class Points(Entry):
    """The marks of a program, or the lines of its log with the time of a step, from the first one on, as columns.

    at_s: the time of the mark, or when the line arrived, in seconds since the first; value: the figure of the line as
    it is printed, or the samples of a mark. programs/timing.py derives the window from them.
    """

    at_s: list[NonNegative]
    step: list[Whole]
    value: list[Positive]
    loss: list[float | None]


class StartUp(Entry):
    """The seconds from a run's command to the end of its first step, of rank 0, by part.

    launch_s: questions to the nodes, a check of the shards, agents; not the wait for devices. imports_s: the
    interpreter, our modules and the framework. first_step_s includes compiling; of a program, it is the time until its
    first mark or line. from_cache: whether all compiled code came from the compiler's cache.
    """

    total_s: NonNegative
    launch_s: NonNegative
    imports_s: NonNegative | None
    join_s: NonNegative | None
    device_s: NonNegative | None
    model_s: NonNegative | None
    data_s: NonNegative | None
    optimizer_s: NonNegative | None
    first_step_s: NonNegative
    from_cache: bool | None
    reasons: dict[str, str]


class Checkpoints(Entry):
    """What checkpoints cost, in seconds of each that was made; `reason` says why there are no figures.

    bytes: of one checkpoint, of all ranks; file_system: its type, of rank 0's node. equal: all ranks loaded what they
    had saved. save_s: until it is on the disk, and the steps wait. In the background of steps: async_blocked_s, for
    which the steps wait; async_written_s, until it is on the disk; async_lost_s, how much longer the steps until then
    take than as many without it. load_cold_s: after the files were dropped from the page cache, empty where that does
    not work; load_warm_s. restart_s: from the launch of new ranks, after all ranks were killed, to the end of their
    first step from the last checkpoint, which is loaded (cold where possible); restart_equal: they loaded what was
    saved.
    """

    bytes: Count | None
    file_system: str | None
    equal: bool | None
    save_s: list[Positive]
    async_blocked_s: list[Positive]
    async_written_s: list[Positive]
    async_lost_s: list[float]
    load_cold_s: list[Positive]
    load_warm_s: list[Positive]
    restart_s: Positive | None
    restart_equal: bool | None
    reason: str | None


class ProgramRun(Entry):
    """What a run of a program was: the command that started it, and the times that it stated."""

    command: list[str]
    points: Points


class RunRecord(TrainingFile):
    """One measured run. Only the status `ok` has a throughput, `samples_per_s`; `unit` says what a sample is.

    `step_seconds` has each step's time on its slowest rank (of a whole job: on rank 0). `min_window_seconds` is the
    shortest window that the ranks planned for. These are None: `loss` of a workload without one, `min_window_seconds`
    if `steps.timed` alone decided, `settings` and `network` if no rank told them, `configuration` of a run that was
    started by hand, `rounding` if not all ranks ended well, `hardware` without telemetry, `program` of a framework of
    ours.
    """

    status: Literal["ok", "oom", "unsupported", "invalid"]
    unit: str
    samples_per_s: Positive | None
    figures: list[Figure]
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
    settings: dict[str, Any] | None
    telemetry: list[NodeTelemetry]
    memory: Memory
    work: Work
    network: Network | None
    configuration: dict[str, Any] | None = None
    min_window_seconds: Positive | None = Field(None, exclude_if=lambda value: value is None)
    rounding: Rounding | None = Field(None, exclude_if=lambda value: value is None)
    equivalence: EquivalenceRun | None = Field(None, exclude_if=lambda value: value is None)
    hardware: list[NodeHardware] | None = Field(None, exclude_if=lambda value: value is None)
    program: ProgramRun | None = Field(None, exclude_if=lambda value: value is None)
    start_up: StartUp | None = Field(None, exclude_if=lambda value: value is None)
    checkpoints: Checkpoints | None = Field(None, exclude_if=lambda value: value is None)

    @model_validator(mode="after")
    def _status_and_number_agree(self) -> Self:
        if (self.status == "ok") != (self.samples_per_s is not None):
            raise ValueError(f"status {self.status} with samples_per_s {self.samples_per_s}")
        if self.status == "ok" and self.environment.get("double_of_cuda"):
            raise ValueError("status ok on a fake CUDA driver, which computes nothing: none of its figures is a result")
        if self.status != "ok" and not self.reason:
            raise ValueError(f"status {self.status} without a reason")
        if self.samples_per_s is not None:
            if self.window_s is None or self.steps_timed == 0:
                raise ValueError("status ok without a timed window")
            expected = self.spec.size.global_batch * self.steps_timed / self.window_s
            if abs(self.samples_per_s - expected) > 1e-6 * expected:
                raise ValueError(f"samples_per_s {self.samples_per_s} does not follow from the window: {expected}")
        return self
