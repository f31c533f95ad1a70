"""Read this node's GPUs with NVML (nvidia-ml-py), and find faults of GPUs that should be idle before a run.

A figure that a card or a driver does not provide is None, with a reason. Units are W, J and shares.
"""

import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from throughline.files import UserError
from throughline.gpus import visible_devices
from throughline.memory import gib
from throughline.messages import GpuFault, LaunchPlan

try:
    import pynvml as nvml
except ImportError:
    nvml = None

THROTTLES = {
    "gpu_idle": 0x1,
    "applications_clocks_setting": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40,
    "hw_power_brake_slowdown": 0x80,
    "display_clock_setting": 0x100,
}
"""The bits of nvmlClocksEventReasons (nvml.h): the reasons why a clock is lower than it could be."""

GPM = {
    "sm_active_s": ("NVML_GPM_METRIC_SM_UTIL", 0.01),
    "tensor_active_s": ("NVML_GPM_METRIC_ANY_TENSOR_UTIL", 0.01),
    "dram_active_s": ("NVML_GPM_METRIC_DRAM_BW_UTIL", 0.01),
    "nvlink_received_bytes": ("NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC", 2**20),
    "nvlink_sent_bytes": ("NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC", 2**20),
}
"""Map each of our counters to NVML's metric (percent or MiB/s between two samples) and the factor to our unit."""
GPM_LEAST_S = 0.1
GPU_BUSY = 0.1
"""From this share of time or memory on, a GPU that should be idle is in use, and a run is refused."""
LIMITS = ("power_limit_w", "power_limit_enforced_w", "sm_clock_set_mhz", "memory_clock_set_mhz", "ecc", "mig")
"""Settings of a GPU that affect a run's speed and that NVML can report. NVML cannot report a locked clock."""


class Card:
    """One GPU. `read` never raises: if a query fails, its figure is None, and we do not send this query again."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self.reasons: dict[str, str] = {}
        self.gpm: dict[str, float | None] = dict.fromkeys(GPM, 0.0)
        self.latest: tuple[float, Any] | None = None
        self.has_gpm = bool(self._ask("gpm", lambda: nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice))
        if not self.has_gpm:
            self._without_gpm(self.reasons.pop("gpm", "this card has no GPM counters (Hopper and newer have)"))

    def facts(self) -> dict[str, Any]:
        """Return the facts that do not change during a run."""
        handle = self.handle
        return self._answers(
            name=lambda: nvml.nvmlDeviceGetName(handle),
            memory_bytes=lambda: nvml.nvmlDeviceGetMemoryInfo(handle).total,
            power_limit_w=lambda: nvml.nvmlDeviceGetPowerManagementLimit(handle) / 1000,
            power_limit_default_w=lambda: nvml.nvmlDeviceGetPowerManagementDefaultLimit(handle) / 1000,
            power_limit_enforced_w=lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000,
            **self._clocks("clock_set", nvml.nvmlDeviceGetApplicationsClock),
            **self._clocks("clock_most", nvml.nvmlDeviceGetMaxClockInfo),
            ecc=lambda: bool(nvml.nvmlDeviceGetEccMode(handle)[0]),
            mig=lambda: bool(nvml.nvmlDeviceGetMigMode(handle)[0]),
        )

    def state(self) -> dict[str, Any]:
        """Return what the GPU does (`read`), its processes and faults. ECC errors count since the driver was loaded."""
        handle = self.handle

        def ecc(kind: str) -> int:
            wanted = getattr(nvml, f"NVML_MEMORY_ERROR_TYPE_{kind}")
            return int(nvml.nvmlDeviceGetTotalEccErrors(handle, wanted, nvml.NVML_VOLATILE_ECC))

        answers = self._answers(
            rows=lambda: nvml.nvmlDeviceGetRemappedRows(handle),
            processes=lambda: [
                (user.pid, user.usedGpuMemory) for user in nvml.nvmlDeviceGetComputeRunningProcesses(handle)
            ],
            ecc_uncorrected=lambda: ecc("UNCORRECTED"),
            ecc_corrected=lambda: ecc("CORRECTED"),
        )
        _, _, pending, failed = answers["rows"] or (None,) * 4
        return {**answers, "rows_pending": pending, "rows_failed": failed, **self.read()}

    def read(self) -> dict[str, Any]:
        """Return counters (energy, activity, NVLink) and gauges."""
        handle = self.handle
        if self.has_gpm:
            self._count_activity()
        answers = self._answers(
            utilization=lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100,
            memory_used_bytes=lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used,
            **self._clocks("clock", nvml.nvmlDeviceGetClockInfo),
            power_w=lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
            temperature_c=lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
            energy_j=lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1000,
            throttles=self._throttles,
        )
        return answers | self.gpm

    def _clocks(self, which: str, question: Callable[[Any, int], int]) -> dict[str, Callable[[], int]]:
        """Return the queries for the clocks of multiprocessors and memory: current, application setting, or highest."""
        kinds = {"sm": nvml.NVML_CLOCK_SM, "memory": nvml.NVML_CLOCK_MEM}
        return {f"{name}_{which}_mhz": partial(question, self.handle, kind) for name, kind in kinds.items()}

    def _throttles(self) -> int:
        try:
            return int(nvml.nvmlDeviceGetCurrentClocksEventReasons(self.handle))
        except nvml.NVMLError_FunctionNotFound:  # drivers before 535 have it under another name
            return int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self.handle))

    def _answers(self, **questions: Callable[[], Any]) -> dict[str, Any]:
        return {name: self._ask(name, question) for name, question in questions.items()}

    def _ask(self, name: str, question: Callable[[], Any]) -> Any:
        if name in self.reasons:
            return None
        try:
            return question()
        except nvml.NVMLError as error:
            self.reasons[name] = f"NVML: {error}"
            return None

    def _without_gpm(self, reason: str) -> None:
        self.has_gpm = False
        self.gpm = dict.fromkeys(GPM)
        self.reasons |= dict.fromkeys(GPM, reason)

    def _count_activity(self) -> None:
        """Add the activity since the previous sample to our counters."""
        now = time.monotonic()
        if self.latest and now - self.latest[0] < GPM_LEAST_S:
            return
        try:
            sample = nvml.nvmlGpmSampleAlloc()
            nvml.nvmlGpmSampleGet(self.handle, sample)
            if self.latest:
                self._add(self.latest[1], sample, now - self.latest[0])
                nvml.nvmlGpmSampleFree(self.latest[1])
            self.latest = now, sample
        except nvml.NVMLError as error:
            self._without_gpm(f"NVML: {error}")

    def _add(self, before: Any, after: Any, seconds: float) -> None:
        query = nvml.c_nvmlGpmMetricsGet_t()
        query.version = nvml.NVML_GPM_METRICS_GET_VERSION
        query.numMetrics = len(GPM)
        query.sample1, query.sample2 = before, after
        for metric, (name, _) in zip(query.metrics, GPM.values(), strict=False):
            metric.metricId = getattr(nvml, name)
        nvml.nvmlGpmMetricsGet(query)
        for metric, (counter, (_, unit)) in zip(query.metrics, GPM.items(), strict=False):
            total = self.gpm[counter]
            if metric.nvmlReturn != nvml.NVML_SUCCESS:
                self.gpm[counter] = None
                self.reasons[counter] = f"NVML: {nvml.NVMLError(metric.nvmlReturn)}"
            elif total is not None:
                self.gpm[counter] = total + metric.value * unit * seconds


class Cards:
    """The GPUs of this node's ranks, in the order of the ranks; none if the run is on the processor."""

    def __init__(self, plan: LaunchPlan) -> None:
        self.cards: list[Card] = []
        self.doubts: list[str] = []
        self.facts: list[dict[str, Any]] = []
        self.reason: str | None = None
        if plan.kind != "cuda":
            self.reason = "the run is on the processor"
        elif nvml is None:
            self.reason = "nvidia-ml-py is not installed here"
        else:
            try:
                nvml.nvmlInit()
                self.cards = [Card(handle) for handle in _handles(plan.devices)]
                self.facts = [card.facts() for card in self.cards]
            except nvml.NVMLError as error:
                self.reason = f"NVML: {error}"
            except UserError as error:
                self.reason = str(error)
                self.doubts = [self.reason]

    def faults(self, earlier: Sequence[Mapping[str, Any]]) -> tuple[list[GpuFault], list[str]]:
        """Return the faults of these cards as `faults_of` does. earlier: their facts in an earlier repeat."""
        faults = [
            faults_of(index, card.state(), facts, earlier[index] if index < len(earlier) else {})
            for index, (card, facts) in enumerate(zip(self.cards, self.facts, strict=True))
        ]
        marked = self.doubts + [text for _, texts in faults for text in texts]
        return [fault for refused, _ in faults for fault in refused], marked

    def read(self) -> list[dict[str, Any]]:
        return [card.read() for card in self.cards]


def faults_of(
    index: int, state: Mapping[str, Any], facts: Mapping[str, Any], earlier: Mapping[str, Any]
) -> tuple[list[GpuFault], list[str]]:
    """Return (faults for which the run is refused, faults that only give a warning) of a GPU that should be idle.

    `earlier` has the facts in an earlier repeat. An unknown figure is no fault.
    """
    refused: list[GpuFault] = []
    marked: list[str] = []
    name = f"GPU {index}"
    total, used, busy = facts.get("memory_bytes"), state["memory_used_bytes"] or 0, state["utilization"] or 0.0
    is_used = busy > GPU_BUSY or bool(total and used > GPU_BUSY * total)
    for pid, held in state["processes"] or []:
        process = ", ".join(filter(None, [_name(pid), str(pid), gib(held) if held else ""]))
        if is_used:
            refused.append(GpuFault(f"{name} is used by another process ({process})", index))
        else:  # such as a display server or a monitor
            marked.append(f"{name}: another process ({process}) holds memory and computes nothing now")
    if is_used and not refused:
        used_now = f"{name} is in use ({busy:.0%} of the time, {gib(used)} of its memory)"
        refused.append(GpuFault(f"{used_now}, though the driver names no process here", index))
    broken = []
    if state["ecc_uncorrected"]:
        broken.append(f"has {state['ecc_uncorrected']} uncorrected ECC errors since the driver was loaded")
    if state["rows_failed"]:
        broken.append("could not remap a faulty row of its memory")
    refused += [GpuFault(f"{name} {fault}", index, fault) for fault in broken]
    if state["rows_pending"]:
        marked.append(f"{name} waits for a reset to remap a faulty row of its memory")
    if state["ecc_corrected"]:
        marked.append(f"{name} has {state['ecc_corrected']} corrected ECC errors since the driver was loaded")
    marked += [
        f"{name}: {key} was {earlier[key]} for an earlier repeat and is {facts[key]}"
        for key in LIMITS
        if None not in (earlier.get(key), facts.get(key)) and earlier[key] != facts[key]
    ]
    return refused, marked


def _name(pid: int) -> str:
    """Return the name of a process; empty if it is not known here, as in a container."""
    import psutil  # as late as this, because a sampler that fails costs a run its telemetry only

    try:
        return str(psutil.Process(pid).name())
    except psutil.Error:
        return ""


def _handles(count: int) -> list[Any]:
    """Return NVML's handles of a node's first `count` CUDA devices, which ranks number as NVML does."""
    visible = visible_devices(os.environ.get("CUDA_VISIBLE_DEVICES"))
    names = map(str, range(nvml.nvmlDeviceGetCount())) if visible is None else visible
    by_index, by_uuid = nvml.nvmlDeviceGetHandleByIndex, nvml.nvmlDeviceGetHandleByUUID
    return [_of(name, by_index(int(name)) if name.isdigit() else by_uuid(name)) for name in list(names)[:count]]


def _of(name: str, handle: Any) -> Any:
    """Return the handle of what a rank computes on: the GPU or, in MIG mode, a slice of it.

    Raise UserError if CUDA_VISIBLE_DEVICES names no slice and the GPU has not exactly one.
    """
    try:
        sliced = not name.startswith("MIG") and nvml.nvmlDeviceGetMigMode(handle)[0]
    except nvml.NVMLError:  # the GPU has no MIG mode
        sliced = False
    if not sliced:
        return handle
    slices = []
    for number in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        with contextlib.suppress(nvml.NVMLError_NotFound):
            slices.append(nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number))
    if len(slices) != 1:
        raise UserError(
            f"GPU {name} is in MIG mode with {len(slices)} slices, and CUDA_VISIBLE_DEVICES names none by its UUID: "
            "without the slice there is no telemetry of it"
        )
    return slices[0]


def throttles(mask: int) -> list[str]:
    """Return the names of the bits that are set in `mask`."""
    return [name for name, bit in THROTTLES.items() if mask & bit]
