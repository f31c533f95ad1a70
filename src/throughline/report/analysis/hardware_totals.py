"""Combine what the hardware did in the runs of one cell: memory, utilization, energy, FLOPs, each rank by itself."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from throughline import statistics, workloads
from throughline.records import Memory, Rank, RankFigures, RunRecord, Series, Use, Utilization, Work
from throughline.records.run import DeviceTelemetry, NodeTelemetry

T = TypeVar("T")


def of(runs: Sequence[RunRecord]) -> dict[str, Any]:
    """Return the fields of `CellRecord` about memory, utilization, energy and FLOPs, over the ok runs."""
    ok = [run for run in runs if run.status == "ok"]
    work = [_work(run) for run in ok]
    use = {name: [getattr(run.utilization, name) for run in ok] for name in Utilization.model_fields}
    networks = [run.network for run in ok if run.network]
    network = next((part for part in networks if part.seconds), next(iter(networks), None))
    if network and network.seconds:  # the messages of the first run that knows them
        seconds = statistics.median(_known(part.seconds for part in networks))
        network = network.model_copy(update={"seconds": seconds})
    return {
        "peak_memory_bytes": max(_known(run.peak_memory_bytes for run in ok), default=None),
        "loader_stall_share": statistics.median(_known(run.loader_stall_share for run in ok)),
        "utilization": Utilization(**{key: statistics.median(_known(use[key])) for key in use}) if ok else None,
        "memory": Memory(**_combined([run.memory for run in ok], partial(max, default=None))) if ok else None,
        "use": _use([node for run in ok for node in run.telemetry]) if ok else None,
        "work": Work(**_combined(work, statistics.median), convention=work[0].convention) if ok else None,
        "network": network,
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
    share = work.matmul_share * (1 + more / work.flops_per_sample)
    convention = {**work.convention, "computed_matmul_share": counted}
    return work.model_copy(update={"computed_matmul_share": share, "convention": convention})


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
    series = [name for name, field in DeviceTelemetry.model_fields.items() if "Series" in str(field.annotation)]
    return Use(
        machine=_joined([node.machine for node in nodes]),
        processes=_joined([node.processes for node in nodes]),
        devices=_joined([{name: getattr(device, name) for name in series} for device in devices]),
        throttle_reasons=sorted({reason for reasons in throttled for reason in reasons}) if throttled else None,
        samples=sum(node.samples for node in nodes),
        cost_cpu_share=max(_known(node.cost_cpu_share for node in nodes), default=None),
        reasons={key: reason for node in reversed(nodes) for key, reason in node.reasons.items()},
    )


def _joined(maps: Sequence[Mapping[str, Series | None]]) -> dict[str, Series | None]:
    """Map each name to the mean of the means, the least and the most of its series; None if no series is known."""
    joined: dict[str, Series | None] = {}
    for name in dict.fromkeys(name for part in maps for name in part):
        known = _known(part.get(name) for part in maps)
        means = [part.mean for part in known]
        low, high = min((part.min for part in known), default=0.0), max((part.max for part in known), default=0.0)
        joined[name] = Series(mean=sum(means) / len(means), min=low, max=high) if known else None
    return joined


def _known(values: Iterable[T | None]) -> list[T]:
    return [value for value in values if value is not None]


def of_ranks(runs: Sequence[RunRecord], repeats: int) -> list[RankFigures] | None:
    """Return the figures of all ranks in each of the repeats 1 to `repeats`; None if the runs tell none.

    A figure is known of all ranks of a repeat, or of none. A single rank has no others to stand beside, so it has none.
    """
    by_repeat = {run.spec.repeat: run for run in runs if run.status == "ok" and len(run.ranks) > 1}
    known: dict[str, dict[int, list[float | None]]] = {}
    for name, figure in (("solo_step_s", _solo_step_s), ("matmul_flops_per_s", _product)):
        found = {repeat: [figure(run, rank) for rank in run.ranks] for repeat, run in by_repeat.items()}
        known[name] = {repeat: values for repeat, values in found.items() if all(values)}
    if not any(known.values()):
        return None
    ranks = next(iter(by_repeat.values())).ranks
    return [
        RankFigures(
            rank=rank.rank,
            node=rank.node,
            device=rank.rank - min(other.rank for other in ranks if other.node == rank.node),
            **{
                name: [values[repeat][index] if repeat in values else None for repeat in range(1, repeats + 1)]
                if values
                else None
                for name, values in known.items()
            },
        )
        for index, rank in enumerate(ranks)
    ]


def _solo_step_s(run: RunRecord, rank: Rank) -> float | None:
    """Return the seconds of a rank's step. Ranks that exchange wait for each other, so they all have the same."""
    if run.spec.options.gradient_sync or not run.steps_timed:
        return None
    return (rank.window_end_s - rank.window_start_s) / run.steps_timed or None


def _product(run: RunRecord, rank: Rank) -> float | None:
    """Return a rank's matrix product. Without an exchange, the others may still train while it multiplies."""
    return rank.matmul_flops_per_s if run.spec.options.gradient_sync else None
