"""Compute run<k>.telemetry.csv, and figures over exactly the timed window, from the samples of a node.

`columns` is the table of a node: one row per sample, with gauges, and for each counter its rate since the sample
before. `figures` needs nothing but this table, so the figures of an archive can be derived again from its table.

We assume that a counter grows at a constant rate between two samples. So if only a part of the time between two samples
is within the window, the same part of the counter's gain counts. For gauges, we use the samples within the window.
Windows and samples use the same clock, the node's monotonic one; the table's clock starts with the window.
"""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from throughline.messages import NodeSamples, Window
from throughline.observe.telemetry_cards import THROTTLES, throttles

Columns = Mapping[str, Any]
"""The columns of a table by their names: lists or arrays of one length. None and nan are unknown values."""
Array = NDArray[np.float64]
Figures = dict[str, float]
"""mean, min and max of a figure over the window."""

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
    },
}
"""Map each figure to its counters: the figure is the rate of their sum. A share of the CPU is one of all processors."""
OF_ALL_PROCESSORS = ("cpu_share", "cpu_steal_share")
GAUGES = {
    "machine": ("memory_used_bytes", "memory_used_share"),
    "processes": ("memory_bytes", "threads"),
    "devices": ("utilization", "memory_used_bytes", "sm_clock_mhz", "memory_clock_mhz", "power_w", "temperature_c"),
}
OTHERS = "cpu_others_share"
"""The share of all processors that other processes than the run's use."""
COUNTERS = {OTHERS: "busy_s", "throttle_reasons": "throttles"}
"""Map figures of other names than their counters to these counters, for which a sampler gives reasons."""


class Part(NamedTuple):
    """The machine, the run's processes, or one device: its key in the record, and the prefix of its columns."""

    kind: str
    key: str
    prefix: str


def parts(devices: int) -> list[Part]:
    """Return the parts of a node with so many devices."""
    gpus = (Part("devices", f"devices.{index}", f"device{index}_") for index in range(devices))
    return [Part("machine", "machine", "machine_"), Part("processes", "processes", "processes_"), *gpus]


def rates_of(kind: str) -> tuple[str, ...]:
    """Return the names of the rates of a part of this kind."""
    return (*RATES[kind], OTHERS) if kind == "machine" else tuple(RATES[kind])


def columns(node: int, sampled: NodeSamples, window: Window | None) -> Columns:
    """Return the table of a node. `at_s` counts from the start of the window or, without one, from the first sample."""
    samples = sampled.samples
    origin = window.start if window else samples[0].at if samples else 0.0
    at = [sample.at - origin for sample in samples]
    inside = [int(window.start <= sample.at <= window.end) if window else None for sample in samples]
    table: dict[str, Any] = {"node": [node] * len(at), "at_s": at, "in_window": inside}
    for kind, key, prefix in parts(len(sampled.reasons.devices)):
        _, _, index = key.partition(".")
        values = [sample.devices[int(index)] if index else getattr(sample, kind) for sample in samples]
        gauges = {name: [value[name] for value in values] for name in GAUGES[kind]}
        gains = {}
        for figure, names in RATES[kind].items():
            counter = np.sum([_array([value[name] for value in values]) for name in names], axis=0)
            gains[figure] = rates(at, counter / (sampled.cpus if figure in OF_ALL_PROCESSORS else 1))
        if kind == "machine":
            ours = _array([sample.processes["cpu_s"] for sample in samples])
            busy = _array([value["busy_s"] for value in values])
            gains[OTHERS] = rates(at, (busy - ours) / sampled.cpus)
        if kind == "devices":
            gauges["energy_j"] = [value["energy_j"] for value in values]  # a counter: the table has no rate of it
            masks = [value["throttles"] for value in values]
            gauges["throttle_reasons"] = [None if mask is None else " ".join(throttles(mask)) for mask in masks]
        table |= {prefix + name: column for name, column in (gains | gauges).items()}
    return table | {"sampler_cpu_s": [sample.sampler_cpu_s for sample in samples]}


def _array(values: Sequence[float | None] | Array) -> Array:
    """Return the values, with nan for None."""
    return np.array(values, dtype=np.float64)


def rates(at: Sequence[float], counter: Sequence[float | None] | Array) -> Array:
    """Return the gain of a counter per second since the sample before; nan unless both samples have the counter."""
    seconds = np.diff(at, prepend=np.nan)
    return np.diff(_array(counter), prepend=np.nan) / np.where(seconds > 0, seconds, np.nan)


def mean_rate(at: Sequence[float], rates: Array, window: Window) -> Figures | None:
    """Return mean, min and max of a rate over the window; None if the samples do not cover the window.

    A rate is that of the time since the sample before. A counter does not fall, so a negative rate counts as 0. min and
    max ignore intervals that are shorter than half of the longest one, such as at the edges of the window.
    """
    seconds = np.minimum(at[1:], window.end) - np.maximum(at[:-1], window.start)
    inside = (seconds > 0) & ~np.isnan(rates[1:])
    seconds, rates = seconds[inside], rates[1:][inside].clip(min=0)
    if not len(seconds) or seconds.sum() < COVERED * window.seconds:
        return None
    mean = float(np.average(rates, weights=seconds))
    whole = rates[seconds >= seconds.max() / 2]
    return {"mean": mean, "min": min(float(whole.min()), mean), "max": max(float(whole.max()), mean)}


def figures(table: Columns, part: Part, window: Window) -> dict[str, Any]:
    """Return the figures of a part of a node from the node's table: rates and gauges, by their names in the record.

    `window` is on the table's clock. A figure is None if its column is missing, or does not cover the window.
    """
    at, inside = table["at_s"], np.equal(table["in_window"], 1)
    unknown = np.full(len(at), np.nan)

    def column(name: str) -> Array:
        return _array(table.get(part.prefix + name, unknown))

    result: dict[str, Any] = {name: mean_rate(at, column(name), window) for name in rates_of(part.kind)}
    for name in GAUGES[part.kind]:
        gauge = column(name)[inside]
        gauge = gauge[~np.isnan(gauge)]
        ends = {"mean": gauge.mean(), "min": gauge.min(), "max": gauge.max()} if len(gauge) else {}
        result[name] = {end: float(value) for end, value in ends.items()} or None
    return result


def _of_device(table: Columns, part: Part, window: Window) -> dict[str, Any]:
    """Return the energy of a device within the window, and the reasons why its clocks were lower than they could be."""
    power = mean_rate(table["at_s"], rates(table["at_s"], table[f"{part.prefix}energy_j"]), window)
    reasons = zip(table[f"{part.prefix}throttle_reasons"], table["in_window"], strict=True)
    within = [text.split() for text, inside in reasons if inside and text is not None]
    throttled = [name for name in THROTTLES if any(name in names for names in within)] if within else None
    return {"energy_j": power and power["mean"] * window.seconds, "throttle_reasons": throttled}


def condensed(
    sampled: NodeSamples | None, node: int, window: Window | None, reason: str | None = None
) -> dict[str, Any]:
    """Return a node's entry in the record (records.NodeTelemetry). Without samples or window, every figure is None."""
    if reason is None and sampled is None:
        reason = "the sampler of this node left nothing: the run's log may say why"
    if reason is None and window is None:
        reason = "no timed window"
    if reason is None and sampled and window and window.seconds < sampled.interval_s:
        reason = "the window is shorter than the sampling interval"
    entry: dict[str, Any] = {"node": node, "interval_s": 1.0, "samples": 0, "cost_cpu_share": None}
    if reason or not sampled or not window:
        nothing = {kind: dict.fromkeys([*rates_of(kind), *GAUGES[kind]]) for kind in ("machine", "processes")}
        nothing["processes"]["network_bytes_per_s"] = None
        return {**entry, **nothing, "devices": [], "reasons": {"telemetry": reason}}
    table, clock = columns(node, sampled, window), Window(0.0, window.seconds)
    cost = mean_rate(table["at_s"], rates(table["at_s"], table["sampler_cpu_s"]), clock)
    entry |= {
        "interval_s": sampled.interval_s,
        "samples": sum(table["in_window"]),
        "cost_cpu_share": cost and cost["mean"],
    }
    devices: list[dict[str, Any]] = []
    reasons = {"processes.network_bytes_per_s": "Linux counts traffic by interface, not by process"}
    for part in parts(len(sampled.reasons.devices)):
        known = figures(table, part, clock)
        if part.kind == "devices":
            known |= _of_device(table, part, clock)
            absent = sampled.reasons.devices[len(devices)]
            devices.append({"index": len(devices), **known})
        else:
            entry[part.kind], absent = known, getattr(sampled.reasons, part.kind)
        for name in [name for name, figure in known.items() if figure is None]:
            counter = RATES[part.kind].get(name, (COUNTERS.get(name, name),))[0]
            reasons[f"{part.key}.{name}"] = absent.get(counter, "the samples do not cover the window")
    entry["processes"]["network_bytes_per_s"] = None
    if sampled.reasons.no_devices:
        reasons["devices"] = sampled.reasons.no_devices
    return {**entry, "devices": devices, "reasons": reasons}


def table(nodes: Iterable[tuple[int, NodeSamples | None, Window | None]]) -> str:
    """Return the tables of all nodes as one CSV."""
    tables = [columns(node, sampled, window) for node, sampled, window in nodes if sampled]
    text = io.StringIO()
    names = dict.fromkeys(["node", "at_s", "in_window", *(name for each in tables for name in each)])
    writer = csv.DictWriter(text, list(names), lineterminator="\n")
    writer.writeheader()
    for each in tables:
        texts = {name: map(_text, column) for name, column in each.items()}
        writer.writerows(dict(zip(texts, row, strict=True)) for row in zip(*texts.values(), strict=True))
    return text.getvalue()


def _text(value: Any) -> str:
    if isinstance(value, float):
        return "" if np.isnan(value) else f"{value:.7g}"
    return "" if value is None else str(value)
