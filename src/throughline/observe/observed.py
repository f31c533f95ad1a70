"""Compute what was observed from outside the ranks over the timed window: telemetry, memory and the use of GPUs."""

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from throughline import messages
from throughline.messages import NodeSamples, Order, RankReport, Window
from throughline.observe import environment, telemetry_window
from throughline.observe.telemetry_cards import LIMITS
from throughline.spec import RunSpec

STEAL = 0.02
"""The share of processor time that a hypervisor may take without a warning."""


@dataclass(frozen=True)
class Observation:
    """A node's samples, its timed window on its own clock, and the reason if one of them is missing."""

    node: int
    sampled: NodeSamples | None
    window: Window | None
    why: str | None = None


def nodes(order: Order, work: Path, reports: dict[int, RankReport]) -> list[Observation]:
    """Return the observations of all nodes, from the files that the samplers wrote to the run's folder."""
    observations, simulated = [], order.reach == "simulated"
    for node in range(order.agents if simulated else order.nodes):  # one agent may have sampled all simulated nodes
        mine = order.ranks_of(node) if simulated else range(node * order.per_node, (node + 1) * order.per_node)
        why = None if order.telemetry else "telemetry was switched off"
        if node >= order.agents:
            why = "Horovod's own launcher starts the ranks of this node, so it has no agent and no sampler of ours"
        windows = [part.window for rank in mine if rank in reports and (part := reports[rank].measured)]
        window = Window(min(one.start for one in windows), max(one.end for one in windows)) if windows else None
        sampled: NodeSamples | None = None
        with contextlib.suppress(OSError, ValueError):
            sampled = messages.read(NodeSamples, work / f"telemetry_{node}.json")
        observations.append(Observation(node, sampled, window, why))
    return observations


def record(
    spec: RunSpec,
    order: Order,
    reports: dict[int, RankReport],
    observations: Sequence[Observation],
    part: dict[str, Any],
) -> dict[str, Any]:
    """Return the record's `telemetry`, `memory`, `utilization` and `warnings`. `part` is the record so far."""
    telemetry = [telemetry_window.condensed(one.sampled, one.node, one.window, one.why) for one in observations]
    if len([one for one in observations if one.sampled]) > 1 and order.reach == "simulated":
        for node in telemetry:  # for a simulated node, the other simulated nodes would count as other processes
            node["machine"]["cpu_others_share"] = None
            node["reasons"]["machine.cpu_others_share"] = "simulated nodes share one machine"
    used = [device["utilization"] for node in telemetry for device in node["devices"]]
    gpu = sum(one["mean"] for one in used) / len(used) if used and all(used) else None
    return {
        "telemetry": telemetry,
        "memory": _memory(order.kind, reports, telemetry, [one.sampled for one in observations if one.sampled]),
        "utilization": {**part["utilization"], "gpu": gpu},
        "warnings": part["warnings"] + warnings(observations, telemetry, order, spec.threads),
    }


def warnings(
    observations: Sequence[Observation], telemetry: Sequence[dict[str, Any]], order: Order, threads: int
) -> list[str]:
    """Return the warnings of the samplers: about GPUs before the run, and about other processes within the window."""
    texts = [f"node {one.node}: {text}" for one in observations if one.sampled for text in one.sampled.warnings]
    texts += [f"node {one.node}: {text}" for one in observations[1:] for text in _other_cards(one, observations[0])]
    ranks = order.world if order.reach == "simulated" else order.per_node
    for one, node in zip(observations, telemetry, strict=True):
        busy, steal = node["machine"]["cpu_others_share"], node["machine"].get("cpu_steal_share")
        if one.sampled and busy:
            cores, wanted = one.sampled.cpus, ranks * threads
            text = environment.crowded(busy["mean"] * cores, cores, wanted, "used {} within the window")
            texts += [f"node {one.node}: {text}"] if text else []
        if steal and steal["mean"] > STEAL:
            texts.append(
                f"node {one.node}: its host took {steal['mean']:.1%} of the processors' time within the window "
                "(steal): other virtual machines were busy; measure again, or on a host of your own"
            )
    return texts


def _other_cards(one: Observation, first: Observation) -> list[str]:
    """Return the settings of a node's GPUs that differ from those of the first node."""
    pairs = zip(one.sampled.cards, first.sampled.cards, strict=False) if one.sampled and first.sampled else ()
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
        totals = [card["memory_bytes"] for one in sampled for card in one.cards]
    else:
        used = [node["machine"]["memory_used_bytes"] for node in telemetry]
        totals = [one.memory_bytes for one in sampled]
    peaks = {
        "needed_bytes": max(_known(one.needed_bytes for one in held), default=None),
        "reserved_bytes": max(_known(one.reserved_bytes for one in held), default=None),
        "device_used_bytes": max(_known(one["max"] for one in used if one), default=None),
        "device_total_bytes": min(_known(totals), default=None),
    }
    places = ("telemetry", "devices", "devices.0.memory_used_bytes", "machine.memory_used_bytes")
    of_node = [node["reasons"][place] for node in telemetry for place in places if place in node["reasons"]]
    reasons = {}
    for name in [name for name, peak in peaks.items() if peak is None]:
        if name.startswith("device_"):
            reasons[name] = next(iter(of_node), "the driver does not say")
        else:
            of_rank = (one.reasons[name] for one in held if name in one.reasons)
            reasons[name] = next(of_rank, "no rank reached its end")
    return {**peaks, "reasons": reasons}


def _known(values: Iterable[float | None]) -> list[int]:
    return [int(value) for value in values if value is not None]
