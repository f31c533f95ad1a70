"""Compute figures over exactly the timed window, and the rows of run<k>.telemetry.csv, from a node's samples.

We assume that a counter grows at a constant rate between two samples. So if only a part of the time between two samples
is within the window, the same part of the counter's gain counts. For gauges, we use the samples within the window.
Windows and samples use the same clock, the node's monotonic one.
"""

import csv
import functools
import io
import itertools
import operator
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from throughline.messages import NodeSamples, Sample, Window
from throughline.observe.telemetry_cards import throttles

Value = TypeVar("Value")
Counter = Callable[[Sample], float | None]

COVERED = 0.99
"""The share of the window that the samples have to cover."""


def _bytes(*names: str) -> dict[str, tuple[str, ...]]:
    return {f"{name}_bytes_per_s": (f"{name}_bytes",) for name in names}


RATES = {
    "machine": {
        "cpu_share": ("busy_s",),
        "cpu_steal_share": ("steal_s",),
        **_bytes("disk_read", "disk_written", "network_received", "network_sent", "loopback"),
        **_bytes("infiniband_received", "infiniband_sent"),
        "disk_busy_share": ("disk_busy_s",),
        "network_busy_share": ("network_busy_s",),
    },
    "processes": {"cpu_cores": ("cpu_s",), **_bytes("disk_read", "disk_written")},
    "devices": {
        **{name: (f"{name}_s",) for name in ("sm_active", "tensor_active", "dram_active")},
        "nvlink_bytes_per_s": ("nvlink_received_bytes", "nvlink_sent_bytes"),
        "energy_j": ("energy_j",),
    },
}
"""Map each figure to its counters: the figure is the rate of their sum. A share of the CPU is one of all processors."""
GAUGES = {
    "machine": ("memory_used_bytes", "memory_used_share"),
    "processes": ("memory_bytes", "threads"),
    "devices": ("utilization", "memory_used_bytes", "sm_clock_mhz", "memory_clock_mhz", "power_w", "temperature_c"),
}


def _gain(counter: Counter, before: Sample | None, now: Sample) -> float | None:
    """Return the gain of a counter per second between two samples; None unless both samples have the counter."""
    if before is None or now.at <= before.at:
        return None
    first, second = counter(before), counter(now)
    return None if first is None or second is None else (second - first) / (now.at - before.at)


def rates(samples: Sequence[Sample], counter: Counter) -> list[tuple[float, float, float]]:
    """Return (start, end, gain per second) for each pair of consecutive samples that both have the counter."""
    gains = [(before.at, now.at, _gain(counter, before, now)) for before, now in itertools.pairwise(samples)]
    return [(start, end, max(0.0, gain)) for start, end, gain in gains if gain is not None]


def of_rates(intervals: Iterable[tuple[float, float, float]], window: Window) -> dict[str, float] | None:
    """Return mean, min and max over the window; None if the intervals do not cover the window.

    min and max ignore intervals that are shorter than half of the longest one, such as at the edges of the window.
    """
    clipped = [(min(end, window.end) - max(start, window.start), rate) for start, end, rate in intervals]
    clipped = [(seconds, rate) for seconds, rate in clipped if seconds > 0]
    covered = sum(seconds for seconds, _ in clipped)
    if covered < COVERED * window.seconds:
        return None
    longest = max(seconds for seconds, _ in clipped)
    whole = [rate for seconds, rate in clipped if seconds >= longest / 2]
    mean = sum(seconds * rate for seconds, rate in clipped) / covered
    return {"mean": mean, "min": min(*whole, mean), "max": max(*whole, mean)}


class _Part:
    """The machine, the run's processes, or one device (`index`) of a node. `reasons` says why a figure is None."""

    def __init__(self, sampled: NodeSamples, room: str, index: int | None = None) -> None:
        self.sampled, self.room, self.index = sampled, room, index
        self.reasons: dict[str, str] = {}

    def of(self, node: Any) -> dict[str, Any]:
        """Return this part of a Sample or of Reasons."""
        value = getattr(node, self.room)
        part: dict[str, Any] = value if self.index is None else value[self.index]
        return part

    def rates(self, window: Window) -> dict[str, Any]:
        counters = RATES[self.room].items()
        return {figure: self.rate(window, figure, names[0], self._counter(figure)) for figure, names in counters}

    def rate(self, window: Window, figure: str, name: str, counter: Counter) -> dict[str, float] | None:
        return self.or_reason(figure, name, of_rates(rates(self.sampled.samples, counter), window))

    def gauges(self, within: Sequence[Sample]) -> dict[str, Any]:
        figures = {}
        for name in GAUGES[self.room]:
            known = [value for sample in within if (value := self.of(sample)[name]) is not None]
            ends = {"min": float(min(known)), "max": float(max(known))} if known else {}
            figures[name] = self.or_reason(name, name, {"mean": sum(known) / len(known), **ends} if known else None)
        return figures

    def or_reason(self, figure: str, name: str, value: Value | None) -> Value | None:
        """Return a figure's value. If it is None, store the sampler's reason for `name` as the figure's reason."""
        if value is None:
            part = self.room if self.index is None else f"{self.room}.{self.index}"
            reason = self.of(self.sampled.reasons).get(name)
            self.reasons[f"{part}.{figure}"] = reason or "the samples do not cover the window"
        return value

    def row(self, before: Sample | None, now: Sample) -> dict[str, Any]:
        """Return this part's columns in the row of a sample."""
        values = self.of(now)
        gains = {figure: _gain(self._counter(figure), before, now) for figure in RATES[self.room]}
        gauges = {name: values[name] for name in GAUGES[self.room]}
        if self.index is None:
            return {f"{self.room}_{name}": value for name, value in (gains | gauges).items()}
        names = None if values["throttles"] is None else " ".join(throttles(values["throttles"]))
        columns = {**gauges, **gains, "energy_j": values["energy_j"], "throttle_reasons": names}
        return {f"device{self.index}_{name}": value for name, value in columns.items()}

    def _counter(self, figure: str) -> Counter:
        names, share = RATES[self.room][figure], self.sampled.cpus if re.fullmatch(r"cpu_.*share", figure) else 1

        def counter(sample: Sample) -> float | None:
            values = [self.of(sample)[name] for name in names]
            return None if None in values else sum(values) / share

        return counter


def _parts(sampled: NodeSamples) -> list[_Part]:
    devices = [_Part(sampled, "devices", index) for index in range(len(sampled.reasons.devices))]
    return [_Part(sampled, "machine"), _Part(sampled, "processes"), *devices]


def condensed(
    sampled: NodeSamples | None, node: int, window: Window | None, reason: str | None = None
) -> dict[str, Any]:
    """Return a node's entry in the record (records.NodeTelemetry). Without samples or window, every figure is None."""
    if reason is None and sampled is None:
        reason = "the sampler of this node left nothing: the run's log may say why"
    if reason is None and window is None:
        reason = "no timed window"
    if reason is None and sampled and window and window.seconds < sampled.interval_s:
        reason = f"the window of {window.seconds:.2f} s is shorter than the sampling interval"
    if reason or not sampled or not window:
        return {
            "node": node,
            "interval_s": 1.0,
            "samples": 0,
            "cost_cpu_share": None,
            "machine": dict.fromkeys([*RATES["machine"], "cpu_others_share", *GAUGES["machine"]]),
            "processes": dict.fromkeys([*RATES["processes"], *GAUGES["processes"], "network_bytes_per_s"]),
            "devices": [],
            "reasons": {"telemetry": reason},
        }

    def others(sample: Sample) -> float | None:
        ours, busy = sample.processes["cpu_s"], sample.machine["busy_s"]
        return None if ours is None or busy is None else (busy - ours) / sampled.cpus

    within = [sample for sample in sampled.samples if window.start <= sample.at <= window.end]
    machine, processes, *devices = parts = _parts(sampled)
    cost = of_rates(rates(sampled.samples, lambda sample: sample.sampler_cpu_s), window)
    figures = {
        "node": node,
        "interval_s": sampled.interval_s,
        "samples": len(within),
        "cost_cpu_share": cost["mean"] if cost else None,
        "machine": {
            **machine.rates(window),
            "cpu_others_share": machine.rate(window, "cpu_others_share", "busy_s", others),
            **machine.gauges(within),
        },
        "processes": {**processes.rates(window), **processes.gauges(within), "network_bytes_per_s": None},
        "devices": [_device(part, window, within) for part in devices],
    }
    reasons = {figure: reason for part in parts for figure, reason in part.reasons.items()}
    reasons["processes.network_bytes_per_s"] = "Linux counts traffic by interface, not by process"
    if sampled.reasons.no_devices:
        reasons["devices"] = sampled.reasons.no_devices
    return {**figures, "reasons": reasons}


def _device(part: _Part, window: Window, within: Sequence[Sample]) -> dict[str, Any]:
    figures: dict[str, Any] = {"index": part.index, **part.gauges(within), **part.rates(window)}
    if figures["energy_j"]:
        figures["energy_j"] = figures["energy_j"]["mean"] * window.seconds
    masks = [mask for sample in within if (mask := part.of(sample)["throttles"]) is not None]
    names = throttles(functools.reduce(operator.or_, masks)) if masks else None
    return figures | {"throttle_reasons": part.or_reason("throttle_reasons", "throttles", names)}


def table(nodes: Iterable[tuple[int, NodeSamples | None, Window | None]]) -> str:
    """Return all samples of all nodes as CSV, one row per sample. `at_s` counts from the start of the node's window."""
    rows = [row for node, sampled, window in nodes if sampled for row in _rows(node, sampled, window)]
    columns = dict.fromkeys(["node", "at_s", "in_window", *(name for row in rows for name in row)])
    text = io.StringIO()
    writer = csv.DictWriter(text, list(columns), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: f"{value:.7g}" if isinstance(value, float) else value for key, value in row.items()})
    return text.getvalue()


def _rows(node: int, sampled: NodeSamples, window: Window | None) -> Iterable[dict[str, Any]]:
    samples, parts = sampled.samples, _parts(sampled)
    origin = window.start if window else samples[0].at if samples else 0.0
    for before, now in zip([None, *samples], samples, strict=False):
        within = int(window.start <= now.at <= window.end) if window else None
        row: dict[str, Any] = {"node": node, "at_s": now.at - origin, "in_window": within}
        for part in parts:
            row |= part.row(before, now)
        yield {**row, "sampler_cpu_s": now.sampler_cpu_s}
