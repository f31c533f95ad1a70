"""What the hardware did in the runs of one cell, from their records: memory, use, energy, work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from throughline import statistics
from throughline.records import DeviceTelemetry, Memory, NodeTelemetry, RunRecord, Series, Use, Utilization, Work
from throughline.topology import Topology

T = TypeVar("T")

DEVICE_FIGURES = tuple(
    name for name, field in DeviceTelemetry.model_fields.items() if "Series" in str(field.annotation)
)
"""The names of a device's series."""
WORK_FIGURES = tuple(name for name in Work.model_fields if name not in ("convention", "reasons"))


def of(runs: Sequence[RunRecord]) -> dict[str, Any]:
    """The fields of `Cell` that tell of memory, use, energy and work, over the runs that are ok."""
    ok = [run for run in runs if run.status == "ok"]
    return {
        "peak_memory_bytes": max(_known(run.peak_memory_bytes for run in ok), default=None),
        "loader_stall_share": statistics.median(_known(run.loader_stall_share for run in ok)),
        "utilization": _utilization(ok),
        "memory": _memory([run.memory for run in ok if run.memory]),
        "use": _use([node for run in ok for node in run.telemetry or ()]),
        "work": _work([run.work for run in ok if run.work]),
        "energy_j_per_sample": statistics.median(_known(energy_per_sample(run) for run in ok)),
    }


def energy_per_sample(run: RunRecord) -> float | None:
    """Joules of all devices over the window, per sample; None where one of them did not tell."""
    devices = [device for node in run.telemetry or () for device in node.devices]
    energies = _known(device.energy_j for device in devices)
    if len(energies) < Topology.parse(run.spec.topology).world or run.samples_per_s is None or run.window_s is None:
        return None
    return sum(energies) / (run.samples_per_s * run.window_s) or None


def _utilization(ok: Sequence[RunRecord]) -> Utilization | None:
    """The median of the repeats."""
    if not ok:
        return None
    return Utilization(
        cpu=statistics.median(_known(run.utilization.cpu for run in ok)),
        gpu=statistics.median(_known(run.utilization.gpu for run in ok)),
    )


def _memory(found: Sequence[Memory]) -> Memory | None:
    """The highest of the repeats."""
    if not found:
        return None
    figures = [name for name in Memory.model_fields if name != "reasons"]
    values = {name: max(_known(getattr(one, name) for one in found), default=None) for name in figures}
    return Memory(**values, reasons=_reasons([one.reasons for one in found], values))


def _work(found: Sequence[Work]) -> Work | None:
    """The median of the repeats; the conventions of the first."""
    if not found:
        return None
    values = {name: statistics.median(_known(getattr(one, name) for one in found)) for name in WORK_FIGURES}
    return Work(**values, convention=found[0].convention, reasons=_reasons([one.reasons for one in found], values))


def _use(nodes: Sequence[NodeTelemetry]) -> Use | None:
    """The means over nodes and repeats, and the extremes of all."""
    if not nodes:
        return None
    devices = [device for node in nodes for device in node.devices]
    throttled = [device.throttle_reasons for device in devices if device.throttle_reasons is not None]
    own = {name: joined(getattr(device, name) for device in devices) for name in DEVICE_FIGURES}
    return Use(
        machine=_joined_maps([node.machine for node in nodes]),
        processes=_joined_maps([node.processes for node in nodes]),
        devices=own if devices else {},
        throttle_reasons=sorted({reason for reasons in throttled for reason in reasons}) if throttled else None,
        samples=sum(node.samples for node in nodes),
        cost_cpu_share=max(_known(node.cost_cpu_share for node in nodes), default=None),
        reasons={key: why for node in reversed(nodes) for key, why in node.reasons.items()},
    )


def joined(series: Iterable[Series | None]) -> Series | None:
    """The mean of the means, the least and the most; None where none of them is known."""
    known = _known(series)
    if not known:
        return None
    return Series(
        mean=sum(one.mean for one in known) / len(known),
        min=min(one.min for one in known),
        max=max(one.max for one in known),
    )


def _joined_maps(maps: Sequence[Mapping[str, Series | None]]) -> dict[str, Series | None]:
    names = dict.fromkeys(name for one in maps for name in one)
    return {name: joined(one.get(name) for one in maps) for name in names}


def _reasons(found: Iterable[Mapping[str, str]], values: Mapping[str, Any]) -> dict[str, str]:
    """Why the figures that no record has are missing."""
    every: dict[str, str] = {}
    for reasons in found:
        every = {**reasons, **every}
    return {key: why for key, why in every.items() if values.get(key) is None}


def _known(values: Iterable[T | None]) -> list[T]:
    return [value for value in values if value is not None]
