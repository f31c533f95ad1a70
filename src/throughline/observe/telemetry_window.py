"""From a node's samples to figures over exactly the timed window, and to the rows of run<k>.telemetry.csv.

Counters are differences: what a counter gained between two samples counts for the part of that time that lies within
the window, as if it had grown evenly in between. Gauges count with the samples taken within the window. Windows and
samples are on one clock, the node's monotonic one.
"""

from __future__ import annotations

import csv
import functools
import io
import itertools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from throughline.messages import NodeSamples, Sample, Window
from throughline.observe.telemetry_cards import throttles

Value = TypeVar("Value")

COVERED = 0.99
"""Share of the window that samples have to cover."""
MACHINE = {
    "cpu_share": "busy_s",
    "cpu_steal_share": "steal_s",
    "disk_read_bytes_per_s": "disk_read_bytes",
    "disk_written_bytes_per_s": "disk_written_bytes",
    "network_received_bytes_per_s": "network_received_bytes",
    "network_sent_bytes_per_s": "network_sent_bytes",
    "loopback_bytes_per_s": "loopback_bytes",
    "infiniband_received_bytes_per_s": "infiniband_received_bytes",
    "infiniband_sent_bytes_per_s": "infiniband_sent_bytes",
}
PROCESSES = {
    "cpu_cores": "cpu_s",
    "disk_read_bytes_per_s": "disk_read_bytes",
    "disk_written_bytes_per_s": "disk_written_bytes",
}
DEVICE = {"sm_active": "sm_active_s", "tensor_active": "tensor_active_s", "dram_active": "dram_active_s"}
DEVICE_GAUGES = ("utilization", "memory_used_bytes", "sm_clock_mhz", "memory_clock_mhz", "power_w", "temperature_c")
"""A figure -> the counter that it is the rate of."""
NO_NETWORK = "Linux counts traffic by interface, not by process"

Counter = Callable[[Sample], float | None]


def rates(samples: Sequence[Sample], counter: Counter) -> list[tuple[float, float, float]]:
    """(from, to, gain per second) between consecutive samples that both have the counter."""
    intervals = []
    for before, after in itertools.pairwise(samples):
        first, second, seconds = counter(before), counter(after), after.at - before.at
        if first is not None and second is not None and seconds > 0:
            intervals.append((before.at, after.at, max(0.0, second - first) / seconds))
    return intervals


def of_rates(intervals: Iterable[tuple[float, float, float]], window: Window) -> dict[str, float] | None:
    """mean, min and max over the window; None where the intervals do not cover it. Slivers are no extremes."""
    clipped = [(min(end, window.end) - max(start, window.start), rate) for start, end, rate in intervals]
    clipped = [(seconds, rate) for seconds, rate in clipped if seconds > 0]
    covered = sum(seconds for seconds, _ in clipped)
    if covered < COVERED * (window.seconds):
        return None
    longest = max(seconds for seconds, _ in clipped)
    whole = [rate for seconds, rate in clipped if seconds >= longest / 2]
    mean = sum(seconds * rate for seconds, rate in clipped) / covered
    return {"mean": mean, "min": min(*whole, mean), "max": max(*whole, mean)}


def of_gauge(samples: Iterable[Sample], gauge: Counter, window: Window) -> dict[str, float] | None:
    """mean, min and max of the samples within the window; None where there is none."""
    within = [value for one in samples if window.start <= one.at <= window.end and (value := gauge(one)) is not None]
    if not within:
        return None
    return {"mean": sum(within) / len(within), "min": float(min(within)), "max": float(max(within))}


def condensed(sampled: NodeSamples | None, node: int, window: Window | None, why: str | None = None) -> dict[str, Any]:
    """A node's entry in the record (records.NodeTelemetry). Without samples or a window every figure is None."""
    if why is None and sampled is None:
        why = "the sampler of this node left nothing: the run's log may say why"
    if why is None and window is None:
        why = "no timed window"
    if why is None and sampled and window and window.seconds < sampled.interval_s:
        why = f"the window of {window.seconds:.2f} s is shorter than the sampling interval"
    if why or not sampled or not window:
        return _nothing(node, why or "no samples")
    made = _Node(sampled, window)
    return {
        "node": node,
        "interval_s": sampled.interval_s,
        "samples": sum(window.start <= one.at <= window.end for one in sampled.samples),
        "cost_cpu_share": made.cost(),
        "machine": made.machine(),
        "processes": made.processes(),
        "devices": made.devices(),
        "reasons": made.reasons,
    }


def _nothing(node: int, why: str) -> dict[str, Any]:
    machine = [*MACHINE, "cpu_others_share", "memory_used_bytes"]
    return {
        "node": node,
        "interval_s": 1.0,
        "samples": 0,
        "cost_cpu_share": None,
        "machine": dict.fromkeys(machine),
        "processes": dict.fromkeys([*PROCESSES, "memory_bytes", "threads", "network_bytes_per_s"]),
        "devices": [],
        "reasons": {"telemetry": why},
    }


class _Node:
    def __init__(self, sampled: NodeSamples, window: Window) -> None:
        self.sampled, self.samples, self.window = sampled, sampled.samples, window
        self.reasons: dict[str, str] = {}

    def cost(self) -> float | None:
        value = of_rates(rates(self.samples, lambda one: one.sampler_cpu_s), self.window)
        return value["mean"] if value else None

    def machine(self) -> dict[str, Any]:
        cpus = self.sampled.cpus

        def others(one: Sample) -> float | None:
            own, every = one.processes["cpu_s"], one.machine["busy_s"]
            return None if own is None or every is None else (every - own) / cpus

        def counter(name: str, share: float) -> Counter:
            return lambda one: None if one.machine[name] is None else one.machine[name] / share

        figures = {
            figure: self._rate("machine", figure, name, counter(name, cpus if figure.endswith("_share") else 1))
            for figure, name in MACHINE.items()
        }
        figures["cpu_others_share"] = self._rate("machine", "cpu_others_share", "busy_s", others)
        figures["memory_used_bytes"] = self._gauge("machine", "memory_used_bytes")
        return figures

    def processes(self) -> dict[str, Any]:
        figures = {
            figure: self._rate("processes", figure, name, lambda one, name=name: one.processes[name])  # type: ignore[misc]
            for figure, name in PROCESSES.items()
        }
        for name in ("memory_bytes", "threads"):
            figures[name] = self._gauge("processes", name)
        self.reasons["processes.network_bytes_per_s"] = NO_NETWORK
        return figures | {"network_bytes_per_s": None}

    def devices(self) -> list[dict[str, Any]]:
        if self.sampled.reasons.no_devices:
            self.reasons["devices"] = self.sampled.reasons.no_devices
        return [self._device(index) for index in range(len(self.sampled.reasons.devices))]

    def _device(self, index: int) -> dict[str, Any]:
        known, window = self.sampled.reasons.devices[index], self.window

        def counter(*names: str) -> Counter:
            def gained(one: Sample) -> float | None:
                values = [one.devices[index][name] for name in names]
                return None if None in values else sum(values)

            return gained

        def rate(figure: str, *names: str) -> dict[str, float] | None:
            value = of_rates(rates(self.samples, counter(*names)), self.window)
            return self._or_reason(value, f"devices.{index}.{figure}", known.get(names[0]))

        figures: dict[str, Any] = {"index": index}
        for name in DEVICE_GAUGES:
            value = of_gauge(self.samples, lambda one, name=name: one.devices[index][name], self.window)  # type: ignore[misc]
            figures[name] = self._or_reason(value, f"devices.{index}.{name}", known.get(name))
        for figure, name in DEVICE.items():
            figures[figure] = rate(figure, name)
        figures["nvlink_bytes_per_s"] = rate("nvlink_bytes_per_s", "nvlink_received_bytes", "nvlink_sent_bytes")
        power = rate("energy_j", "energy_j")
        figures["energy_j"] = power["mean"] * window.seconds if power else None
        masks = [one.devices[index]["throttles"] for one in self.samples if window.start <= one.at <= window.end]
        known_masks = [mask for mask in masks if mask is not None]
        every = functools.reduce(operator.or_, known_masks, 0)
        figures["throttle_reasons"] = self._or_reason(
            throttles(every) if known_masks else None, f"devices.{index}.throttle_reasons", known.get("throttles")
        )
        return figures

    def _rate(self, room: str, figure: str, name: str, counter: Counter) -> dict[str, float] | None:
        value = of_rates(rates(self.samples, counter), self.window)
        return self._or_reason(value, f"{room}.{figure}", getattr(self.sampled.reasons, room).get(name))

    def _gauge(self, room: str, name: str) -> dict[str, float] | None:
        value = of_gauge(self.samples, lambda one: getattr(one, room)[name], self.window)
        return self._or_reason(value, f"{room}.{name}", getattr(self.sampled.reasons, room).get(name))

    def _or_reason(self, value: Value, figure: str, why: str | None) -> Value:
        if value is None:
            self.reasons[figure] = why or "the samples do not cover the window"
        return value


def table(nodes: Iterable[tuple[int, NodeSamples | None, Window | None]]) -> str:
    """All samples of all nodes as CSV: a row says what a second was like; `at_s` counts from the node's window."""
    rows: list[dict[str, Any]] = []
    for node, sampled, window in nodes:
        if sampled:
            rows += _rows(node, sampled, window)
    first = ["node", "at_s", "in_window"]
    columns = first + [name for name in dict.fromkeys(name for row in rows for name in row) if name not in first]
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _short(value) for key, value in row.items()} for row in rows)
    return text.getvalue()


def _rows(node: int, sampled: NodeSamples, window: Window | None) -> Iterable[dict[str, Any]]:
    samples, cpus = sampled.samples, sampled.cpus
    origin = window.start if window else samples[0].at if samples else 0.0
    for before, now in zip([None, *samples], samples, strict=False):

        def rate(room: str, name: str, share: float = 1.0, before: Any = before, now: Any = now) -> float | None:
            if before is None or getattr(now, room)[name] is None or getattr(before, room)[name] is None:
                return None
            gained: float = (getattr(now, room)[name] - getattr(before, room)[name]) / share / (now.at - before.at)
            return gained

        row: dict[str, Any] = {"node": node, "at_s": now.at - origin}
        row["in_window"] = int(window.start <= now.at <= window.end) if window else None
        for figure, name in MACHINE.items():
            row[f"machine_{figure}"] = rate("machine", name, cpus if figure.endswith("_share") else 1)
        row["machine_memory_used_bytes"] = now.machine["memory_used_bytes"]
        for figure, name in PROCESSES.items():
            row[f"processes_{figure}"] = rate("processes", name)
        row["processes_memory_bytes"] = now.processes["memory_bytes"]
        row["processes_threads"] = now.processes["threads"]
        for index, device in enumerate(now.devices):
            row |= _device_row(f"device{index}_", device, before and before.devices[index], now, before)
        row["sampler_cpu_s"] = now.sampler_cpu_s
        yield row


def _device_row(start: str, device: dict[str, Any], last: Any, now: Sample, before: Any) -> dict[str, Any]:
    def rate(*names: str) -> float | None:
        if not last or any(device[name] is None or last[name] is None for name in names):
            return None
        gained: float = sum(device[name] - last[name] for name in names) / (now.at - before.at)
        return gained

    return {
        **{f"{start}{name}": device[name] for name in DEVICE_GAUGES},
        **{f"{start}{figure}": rate(name) for figure, name in DEVICE.items()},
        f"{start}nvlink_bytes_per_s": rate("nvlink_received_bytes", "nvlink_sent_bytes"),
        f"{start}energy_j": device["energy_j"],
        f"{start}throttle_reasons": None if device["throttles"] is None else " ".join(throttles(device["throttles"])),
    }


def _short(value: Any) -> Any:
    return f"{value:.7g}" if isinstance(value, float) else value
