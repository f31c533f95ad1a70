"""Combine what the hardware did in the runs of one cell: memory, utilization, energy, FLOPs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from throughline import statistics, workloads
from throughline.records import (
    DeviceTelemetry,
    Memory,
    Network,
    NodeTelemetry,
    RunRecord,
    Series,
    Use,
    Utilization,
    Work,
)

T = TypeVar("T")


def of(runs: Sequence[RunRecord]) -> dict[str, Any]:
    """Return the fields of `CellRecord` about memory, utilization, energy and FLOPs, over the ok runs."""
    ok = [run for run in runs if run.status == "ok"]
    work = [_work(run) for run in ok]
    use = {name: [getattr(run.utilization, name) for run in ok] for name in Utilization.model_fields}
    return {
        "peak_memory_bytes": max(_known(run.peak_memory_bytes for run in ok), default=None),
        "loader_stall_share": statistics.median(_known(run.loader_stall_share for run in ok)),
        "utilization": Utilization(**{key: statistics.median(_known(use[key])) for key in use}) if ok else None,
        "memory": Memory(**_combined([run.memory for run in ok], partial(max, default=None))) if ok else None,
        "use": _use([node for run in ok for node in run.telemetry]) if ok else None,
        "work": Work(**_combined(work, statistics.median), convention=work[0].convention) if ok else None,
        "network": _network([run.network for run in ok if run.network]),
        "energy_j_per_sample": statistics.median(_known(energy_per_sample(run) for run in ok)),
    }


def energy_per_sample(run: RunRecord) -> float | None:
    """Return the joules per sample of all devices over the window; None if one device did not tell its energy."""
    devices = [device for node in run.telemetry for device in node.devices]
    energies = _known(device.energy_j for device in devices)
    if len(energies) < run.spec.topology.world or run.samples_per_s is None or run.window_s is None:
        return None
    return sum(energies) / (run.samples_per_s * run.window_s) or None


def _work(run: RunRecord) -> Work:
    """Return a run's work, with the share of the matrix product that all FLOPs of its framework take, if they are more.

    A framework may compute more than the model needs. All other figures stay those of the model.
    """
    work = run.work
    if run.settings is None or work.matmul_share is None or work.flops_per_sample is None:
        return work
    more = workloads.of(run.spec.model).flops_beyond_model(run.spec, run.settings)
    if not more:
        return work
    counted = "counts what the framework does beyond the model's FLOPs, too: scores of positions that are not masked"
    return work.model_copy(
        update={
            "computed_matmul_share": work.matmul_share * (1 + more / work.flops_per_sample),
            "convention": {**work.convention, "computed_matmul_share": counted},
        }
    )


def _network(parts: Sequence[Network]) -> Network | None:
    """Combine the runs' networks: the median of the seconds, and the messages of the first run that knows them."""
    known = next((part for part in parts if part.seconds), None)
    if known is None:
        return parts[0] if parts else None
    return known.model_copy(update={"seconds": statistics.median(_known(part.seconds for part in parts))})


def _combined(parts: Sequence[Memory | Work], combine: Callable[[list[Any]], Any]) -> dict[str, Any]:
    """Combine each figure over the parts that have it, and keep the reasons of figures that no part has."""
    names = [name for name in type(parts[0]).model_fields if name not in ("convention", "reasons")]
    values = {name: combine(_known(getattr(part, name) for part in parts)) for name in names}
    reasons = {key: reason for part in reversed(parts) for key, reason in part.reasons.items()}
    return {**values, "reasons": {key: reason for key, reason in reasons.items() if values.get(key) is None}}


def _use(nodes: Sequence[NodeTelemetry]) -> Use:
    """Combine the utilization on all nodes and repeats: the mean of the means, and the extremes."""
    devices = [device for node in nodes for device in node.devices]
    throttled = [device.throttle_reasons for device in devices if device.throttle_reasons is not None]
    use = {
        name: _joined(getattr(device, name) for device in devices)
        for name, field in DeviceTelemetry.model_fields.items()
        if "Series" in str(field.annotation)
    }
    return Use(
        machine=_joined_maps([node.machine for node in nodes]),
        processes=_joined_maps([node.processes for node in nodes]),
        devices=use if devices else {},
        throttle_reasons=sorted({reason for reasons in throttled for reason in reasons}) if throttled else None,
        samples=sum(node.samples for node in nodes),
        cost_cpu_share=max(_known(node.cost_cpu_share for node in nodes), default=None),
        reasons={key: reason for node in reversed(nodes) for key, reason in node.reasons.items()},
    )


def _joined(series: Iterable[Series | None]) -> Series | None:
    """Return the mean of the means, the least and the most; None if no series is known."""
    known = _known(series)
    if not known:
        return None
    mean = sum(part.mean for part in known) / len(known)
    return Series(mean=mean, min=min(part.min for part in known), max=max(part.max for part in known))


def _joined_maps(maps: Sequence[Mapping[str, Series | None]]) -> dict[str, Series | None]:
    names = dict.fromkeys(name for part in maps for name in part)
    return {name: _joined(part.get(name) for part in maps) for name in names}


def _known(values: Iterable[T | None]) -> list[T]:
    return [value for value in values if value is not None]
