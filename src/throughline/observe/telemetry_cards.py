"""This node's GPUs as NVML tells of them (nvidia-ml-py). What a card or a driver does not tell is None, with a reason.

Units are made plain here: NVML's milliwatts, millijoules and percent become W, J and shares.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from throughline.messages import Order
from throughline.observe import gpu_faults

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
"""nvmlClocksEventReasons (nvml.h): why a clock is not as high as it could be."""

GPM = {
    "sm_active_s": ("NVML_GPM_METRIC_SM_UTIL", 0.01),
    "tensor_active_s": ("NVML_GPM_METRIC_ANY_TENSOR_UTIL", 0.01),
    "dram_active_s": ("NVML_GPM_METRIC_DRAM_BW_UTIL", 0.01),
    "nvlink_received_bytes": ("NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC", 2**20),
    "nvlink_sent_bytes": ("NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC", 2**20),
}
"""A counter of ours -> NVML's metric (per cent, MiB/s) over the time between two samples, and its unit in ours."""
GPM_LEAST_S = 0.1


class Card:
    """One GPU. `read` never raises: a failing question is None, and one that is not supported is not asked again."""

    def __init__(self, library: Any, handle: Any) -> None:
        self.nvml, self.handle = library, handle
        self.reasons: dict[str, str] = {}
        self.gpm: dict[str, float | None] = dict.fromkeys(GPM)
        self.latest: tuple[float, Any] | None = None
        supported = self._ask("gpm", lambda: library.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice)
        if supported:
            self.gpm = dict.fromkeys(GPM, 0.0)
        else:
            why = self.reasons.pop("gpm", "this card has no GPM counters (Hopper and newer have)")
            self.reasons.update(dict.fromkeys(GPM, why))
        self.has_gpm = bool(supported)

    def facts(self) -> dict[str, Any]:
        """What does not change while a run lasts."""
        library, handle = self.nvml, self.handle
        return self._answers(
            name=lambda: _text(library.nvmlDeviceGetName(handle)),
            memory_bytes=lambda: library.nvmlDeviceGetMemoryInfo(handle).total,
            power_limit_w=lambda: library.nvmlDeviceGetPowerManagementLimit(handle) / 1000,
            power_limit_default_w=lambda: library.nvmlDeviceGetPowerManagementDefaultLimit(handle) / 1000,
            power_limit_enforced_w=lambda: library.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000,
            **self._clocks("clock_set", library.nvmlDeviceGetApplicationsClock),
            **self._clocks("clock_most", library.nvmlDeviceGetMaxClockInfo),
            ecc=lambda: bool(library.nvmlDeviceGetEccMode(handle)[0]),
            mig=lambda: bool(library.nvmlDeviceGetMigMode(handle)[0]),
        )

    def _clocks(self, which: str, question: Callable[[Any, int], int]) -> dict[str, Callable[[], int]]:
        """The clocks of multiprocessors and memory: now, as applications are set to have them, or at most."""
        kinds = {"sm": self.nvml.NVML_CLOCK_SM, "memory": self.nvml.NVML_CLOCK_MEM}
        return {f"{name}_{which}_mhz": partial(question, self.handle, kind) for name, kind in kinds.items()}

    def state(self) -> dict[str, Any]:
        """What it does and suffers before a run (gpu_faults.of)."""
        library, handle = self.nvml, self.handle

        def errors(kind: int) -> int:
            return int(library.nvmlDeviceGetTotalEccErrors(handle, kind, library.NVML_VOLATILE_ECC))

        rows = self._ask("rows", lambda: library.nvmlDeviceGetRemappedRows(handle)) or (None,) * 4
        running = self._ask("processes", lambda: library.nvmlDeviceGetComputeRunningProcesses(handle))
        uncorrected = self._ask("ecc_uncorrected", lambda: errors(library.NVML_MEMORY_ERROR_TYPE_UNCORRECTED))
        corrected = self._ask("ecc_corrected", lambda: errors(library.NVML_MEMORY_ERROR_TYPE_CORRECTED))
        now = self.read()
        return {
            "processes": None if running is None else [(one.pid, one.usedGpuMemory) for one in running],
            "utilization": now["utilization"],
            "memory_used_bytes": now["memory_used_bytes"],
            "ecc_uncorrected": uncorrected,
            "ecc_corrected": corrected,
            "rows_pending": rows[2],
            "rows_failed": rows[3],
        }

    def read(self) -> dict[str, Any]:
        """Counters (energy, activity, NVLink) and gauges."""
        library, handle = self.nvml, self.handle
        if self.has_gpm:
            self._count_activity()
        answers = self._answers(
            utilization=lambda: library.nvmlDeviceGetUtilizationRates(handle).gpu / 100,
            memory_used_bytes=lambda: library.nvmlDeviceGetMemoryInfo(handle).used,
            **self._clocks("clock", library.nvmlDeviceGetClockInfo),
            power_w=lambda: library.nvmlDeviceGetPowerUsage(handle) / 1000,
            temperature_c=lambda: library.nvmlDeviceGetTemperature(handle, library.NVML_TEMPERATURE_GPU),
            energy_j=lambda: library.nvmlDeviceGetTotalEnergyConsumption(handle) / 1000,
            throttles=self._throttles,
        )
        return answers | self.gpm

    def _throttles(self) -> int:
        try:
            return int(self.nvml.nvmlDeviceGetCurrentClocksEventReasons(self.handle))
        except self.nvml.NVMLError_FunctionNotFound:  # its name before driver 535
            return int(self.nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self.handle))

    def _answers(self, **questions: Callable[[], Any]) -> dict[str, Any]:
        return {name: self._ask(name, question) for name, question in questions.items()}

    def _ask(self, name: str, question: Callable[[], Any]) -> Any:
        if name in self.reasons:
            return None
        try:
            return question()
        except self.nvml.NVMLError as error:
            self.reasons[name] = f"NVML: {error}"
            return None

    def _count_activity(self) -> None:
        """Add what happened since the sample before to our counters."""
        now, library = time.monotonic(), self.nvml
        if self.latest and now - self.latest[0] < GPM_LEAST_S:
            return
        try:
            sample = library.nvmlGpmSampleAlloc()
            library.nvmlGpmSampleGet(self.handle, sample)
            if self.latest:
                self._add(self.latest[1], sample, now - self.latest[0])
                library.nvmlGpmSampleFree(self.latest[1])
            self.latest = now, sample
        except library.NVMLError as error:
            self.has_gpm, self.gpm = False, dict.fromkeys(GPM)
            self.reasons.update(dict.fromkeys(GPM, f"NVML: {error}"))

    def _add(self, before: Any, after: Any, seconds: float) -> None:
        query = self.nvml.c_nvmlGpmMetricsGet_t()
        query.version, query.numMetrics = self.nvml.NVML_GPM_METRICS_GET_VERSION, len(GPM)
        query.sample1, query.sample2 = before, after
        for place, (name, _) in enumerate(GPM.values()):
            query.metrics[place].metricId = getattr(self.nvml, name)
        self.nvml.nvmlGpmMetricsGet(query)
        for place, (counter, (_, unit)) in enumerate(GPM.items()):
            metric, total = query.metrics[place], self.gpm[counter]
            if metric.nvmlReturn != self.nvml.NVML_SUCCESS:
                self.gpm[counter] = None
                self.reasons[counter] = f"NVML: {self.nvml.NVMLError(metric.nvmlReturn)}"
            elif total is not None:
                self.gpm[counter] = total + metric.value * unit * seconds


class Cards:
    """The GPUs that this node's ranks run on, in the order of the ranks; none where the run is on the processor."""

    def __init__(self, order: Order, library: Any = nvml) -> None:
        self.cards: list[Card] = []
        self.facts: list[dict[str, Any]] = []
        self.why: str | None = None
        if order.kind != "cuda":
            self.why = "the run is on the processor"
        elif library is None:
            self.why = "nvidia-ml-py is not installed here"
        else:
            try:
                library.nvmlInit()
                self.cards = [
                    Card(library, _handle(library, name))
                    for name in chosen(order.per_node, library.nvmlDeviceGetCount())
                ]
                self.facts = [card.facts() for card in self.cards]
            except library.NVMLError as error:
                self.why = f"NVML: {error}"

    def faults(self, earlier: Sequence[dict[str, Any]]) -> tuple[list[str], list[str]]:
        """What refuses and what marks a run on these cards; `earlier` are their facts in an earlier repeat."""
        refused, marked = list[str](), list[str]()
        for index, (card, facts) in enumerate(zip(self.cards, self.facts, strict=True)):
            before = earlier[index] if index < len(earlier) else None
            faults, marks = gpu_faults.of(index, card.state(), facts, before)
            refused += faults
            marked += marks
        return refused, marked

    def read(self) -> list[dict[str, Any]]:
        return [card.read() for card in self.cards]


def chosen(per_node: int, count: int, visible: str | None = None) -> list[str]:
    """Names (NVML's indices or UUIDs) of a node's first `per_node` CUDA devices, of `count` in the machine.

    The workers have CUDA_DEVICE_ORDER=PCI_BUS_ID, so that CUDA and NVML count alike.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES") if visible is None else visible
    names = [name.strip() for name in visible.split(",")] if visible else [str(index) for index in range(count)]
    return names[:per_node]


def _text(name: str | bytes) -> str:
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else name


def _handle(library: Any, name: str) -> Any:
    return library.nvmlDeviceGetHandleByIndex(int(name)) if name.isdigit() else library.nvmlDeviceGetHandleByUUID(name)


def throttles(mask: int) -> list[str]:
    """The names of the bits that are set."""
    return [name for name, bit in THROTTLES.items() if mask & bit]
