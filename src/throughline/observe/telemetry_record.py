"""Compute the parts of a run's record that come from telemetry: every node's figures, memory, use of GPUs, warnings."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from throughline import messages, workloads
from throughline.messages import LaunchPlan, Message, NodeSamples, RankReport, Window
from throughline.observe import telemetry_window
from throughline.observe.hardware import Hardware
from throughline.observe.other_processes import crowded
from throughline.observe.telemetry_cards import LIMITS
from throughline.spec import RunSpec

Left = TypeVar("Left", bound=Message)
STEAL = 0.02
"""The share of processor time that a hypervisor may take without a warning."""


@dataclass(frozen=True)
class Observation:
    """A node's samples, its timed window on its own clock, the reason if one of them is missing, and its hardware."""

    node: int
    sampled: NodeSamples | None
    window: Window | None
    reason: str | None = None
    hardware: Hardware | None = None


def observations(
    plan: LaunchPlan, work: Path, reports: Mapping[int, RankReport], no_telemetry: Mapping[int, str]
) -> list[Observation]:
    """Return the observations of all nodes, from the files that the samplers wrote to the run's folder."""
    observed: list[Observation] = []
    simulated = plan.reach == "simulated"
    for node in range(plan.agents if simulated else plan.nodes):  # one agent may have sampled all simulated nodes
        ranks = plan.ranks_of(node) if simulated else range(node * plan.per_node, (node + 1) * plan.per_node)
        reason = no_telemetry.get(node) if plan.telemetry else "telemetry was switched off"
        windows = [measured.window for rank in ranks if rank in reports and (measured := reports[rank].measured)]
        window = None
        if windows:
            window = Window(min(window.start for window in windows), max(window.end for window in windows))
        sampled = _left(NodeSamples, work / f"telemetry_{node}.json")
        observed.append(Observation(node, sampled, window, reason, _left(Hardware, work / f"hardware_{node}.json")))
    return observed


def _left(kind: type[Left], path: Path) -> Left | None:
    """Return what a sampler has left in a file; None if it left nothing that can be read."""
    with suppress(OSError, ValueError):
        return messages.read(kind, path)
    return None


def parts(
    spec: RunSpec,
    plan: LaunchPlan,
    reports: dict[int, RankReport],
    observed: Sequence[Observation],
    record: dict[str, Any],
) -> dict[str, Any]:
    """Return the record's `telemetry`, `memory`, `utilization`, `warnings` and, if a sampler left any, `hardware`."""
    telemetry = [telemetry_window.condensed(node.sampled, node.node, node.window, node.reason) for node in observed]
    sampled = [node.sampled for node in observed if node.sampled]
    if len(sampled) > 1 and plan.reach == "simulated":
        for node in telemetry:  # for a simulated node, the other simulated nodes would count as other processes
            node["machine"]["cpu_others_share"] = None
            node["reasons"]["machine.cpu_others_share"] = "simulated nodes share one machine"
    used = [device["utilization"] for node in telemetry for device in node["devices"]]
    gpu = sum(share["mean"] for share in used) / len(used) if used and all(used) else None
    hardware = [asdict(node.hardware) for node in observed if node.hardware]
    memory = workloads.predicted_memory(spec, gpu=plan.kind == "cuda")
    predicted = {"predicted_bytes": round(memory.peak_bytes)} if memory else {}
    return {
        **({"hardware": hardware} if hardware else {}),
        "telemetry": telemetry,
        "memory": _memory(plan.kind, reports, telemetry, sampled) | predicted,
        "utilization": {**record["utilization"], "gpu": gpu},
        "warnings": record["warnings"] + warnings(observed, telemetry, plan, spec.threads),
    }


def warnings(
    observed: Sequence[Observation], telemetry: Sequence[dict[str, Any]], plan: LaunchPlan, threads: int
) -> list[str]:
    """Return the warnings of the samplers: about GPUs before the run, and about other processes within the window."""
    texts = [f"node {node.node}: {text}" for node in observed if node.sampled for text in node.sampled.warnings]
    texts += [f"node {node.node}: {text}" for node in observed[1:] for text in _other_cards(node, observed[0])]
    texts += _uncovered(observed, telemetry) if plan.telemetry else []
    ranks = plan.world if plan.reach == "simulated" else plan.per_node
    for node, figures in zip(observed, telemetry, strict=True):
        busy, steal = figures["machine"]["cpu_others_share"], figures["machine"].get("cpu_steal_share")
        if node.sampled and busy:
            cores = node.sampled.cpus
            text = crowded(busy["mean"] * cores, cores, ranks * threads, "used {} within the window")
            texts += [f"node {node.node}: {text}"] if text else []
        if steal and steal["mean"] > STEAL:
            texts.append(
                f"node {node.node}: its host took {steal['mean']:.1%} of the processors' time within the window "
                "(steal): other virtual machines were busy; measure again, or on a host of your own"
            )
    return texts


def _uncovered(observed: Sequence[Observation], telemetry: Sequence[dict[str, Any]]) -> list[str]:
    """Return a warning for each node without samples. It names the nodes that the figures of the run cover."""
    covered = ", ".join(str(node.node) for node in observed if node.sampled)
    rest = f"the run's use of processors, memory and GPUs covers only node {covered}" if covered else "no node has any"
    return [
        f"node {node.node}: there are no figures of this node, because {figures['reasons']['telemetry']}; {rest}"
        for node, figures in zip(observed, telemetry, strict=True)
        if node.sampled is None and node.window is not None
    ]


def _other_cards(node: Observation, first: Observation) -> list[str]:
    """Return the settings of a node's GPUs that differ from those of the first node."""
    pairs = zip(node.sampled.cards, first.sampled.cards, strict=False) if node.sampled and first.sampled else ()
    return [
        f"GPU {index}: {name} is {card[name]}, and {other[name]} on node 0: the slowest device sets the pace"
        for index, (card, other) in enumerate(pairs)
        for name in ("name", *LIMITS)
        if card[name] != other[name]
    ]


def _memory(
    kind: str, reports: dict[int, RankReport], telemetry: Sequence[dict[str, Any]], sampled: Sequence[NodeSamples]
) -> dict[str, Any]:
    """Return the memory peaks of one device (records.Memory).

    Peaks of the framework count since its start; the peak of the device counts within the window. On a CPU, the device
    is the whole machine, with the memory of all its processes.
    """
    held = [report.measured.memory for report in reports.values() if report.measured]
    if kind == "cuda":
        used = [device["memory_used_bytes"] for node in telemetry for device in node["devices"]]
        totals = [card["memory_bytes"] for node in sampled for card in node.cards]
    else:
        used = [node["machine"]["memory_used_bytes"] for node in telemetry]
        totals = [node.memory_bytes for node in sampled]
    peaks = {
        "needed_bytes": max(_known(rank.needed_bytes for rank in held), default=None),
        "reserved_bytes": max(_known(rank.reserved_bytes for rank in held), default=None),
        "device_used_bytes": max(_known(series["max"] for series in used if series), default=None),
        "device_total_bytes": min(_known(totals), default=None),
    }
    keys = ("telemetry", "devices", "devices.0.memory_used_bytes", "machine.memory_used_bytes")
    of_nodes = [node["reasons"][key] for node in telemetry for key in keys if key in node["reasons"]]
    reasons = {}
    for name in [name for name, peak in peaks.items() if peak is None]:
        if name.startswith("device_"):
            reasons[name] = next(iter(of_nodes), "the driver does not say")
        else:
            of_ranks = (rank.reasons[name] for rank in held if name in rank.reasons)
            reasons[name] = next(of_ranks, "no rank reached its end")
    within = _known(rank.window_needed_bytes for rank in held)
    return {**peaks, **({"window_needed_bytes": max(within)} if within else {}), "reasons": reasons}


def _known(values: Iterable[float | None]) -> list[int]:
    return [int(value) for value in values if value is not None]
