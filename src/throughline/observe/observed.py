"""What was observed of a run from outside its ranks, over the same window: telemetry, memory, the use of its GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from throughline import messages
from throughline.messages import NodeSamples, Order, RankReport, Window
from throughline.observe import others, telemetry_window
from throughline.observe.gpu_faults import LIMITS

STEAL = 0.02
"""Share of the processors' time that a hypervisor may take."""


@dataclass(frozen=True)
class Observation:
    """A node's samples, its window on its own clock, and why one of them is missing."""

    node: int
    sampled: NodeSamples | None
    window: Window | None
    why: str | None = None


def nodes(order: Order, work: Path, reports: dict[int, RankReport]) -> list[Observation]:
    """What the samplers of all nodes have left in the run's folder."""
    observations = []
    for node in range(order.nodes):
        mine = range(node * order.per_node, (node + 1) * order.per_node)
        why = None if order.telemetry else "telemetry was switched off"
        if node >= order.agents:
            if order.reach == "simulated":  # the one agent has sampled the one machine
                break
            why = "Horovod's own launcher reaches this node: no agent of ours is there to sample"
        elif order.reach == "simulated":
            mine = order.ranks_of(node)
        window = _common(reports[rank] for rank in mine if rank in reports)
        observations.append(Observation(node, _left(work, node), window, why))
    return observations


def _left(work: Path, node: int) -> NodeSamples | None:
    """What a node's sampler has written; None where it left nothing."""
    try:
        return messages.read(NodeSamples, work / f"telemetry_{node}.json")
    except (OSError, ValueError):
        return None


def _common(reports: Iterable[RankReport]) -> Window | None:
    """From the first start to the last end."""
    windows = [report.measured.window for report in reports if report.measured]
    if not windows:
        return None
    return Window(min(window.start for window in windows), max(window.end for window in windows))


def warnings(observations: Sequence[Observation], telemetry: Sequence[dict[str, Any]], order: Order) -> list[str]:
    """What the samplers found doubtful: cards before the run, others on the processors within the window."""
    texts = [f"node {one.node}: {text}" for one in observations if one.sampled for text in one.sampled.warnings]
    texts += [f"node {one.node}: {text}" for one in observations[1:] for text in _other_cards(one, observations[0])]
    for one, node in zip(observations, telemetry, strict=True):
        busy, steal = node["machine"]["cpu_others_share"], node["machine"].get("cpu_steal_share")
        if one.sampled and busy:
            ranks = order.world if order.reach == "simulated" else order.per_node
            cores, wanted = one.sampled.cpus, ranks * order.spec["threads"]
            text = others.crowded(busy["mean"] * cores, cores, wanted, "used {} within the window")
            texts += [f"node {one.node}: {text}"] if text else []
        if steal and steal["mean"] > STEAL:
            texts.append(
                f"node {one.node}: its host took {steal['mean']:.1%} of the processors' time within the window "
                "(steal): other virtual machines were busy; measure again, or on a host of your own"
            )
    return texts


def _other_cards(one: Observation, first: Observation) -> list[str]:
    """What is set otherwise on a node's GPUs than on the first node's."""
    pairs = zip(one.sampled.cards, first.sampled.cards, strict=False) if one.sampled and first.sampled else ()
    return [
        f"GPU {index}: {name} is {card[name]}, and {other[name]} on node 0: the slowest device sets the pace"
        for index, (card, other) in enumerate(pairs)
        for name in ("name", *LIMITS)
        if card[name] != other[name]
    ]


def record(
    order: Order, reports: dict[int, RankReport], observations: Sequence[Observation], part: dict[str, Any]
) -> dict[str, Any]:
    """The record's `telemetry`, `memory`, `utilization` and `warnings`, from what is in `part` of it already."""
    telemetry = [telemetry_window.condensed(one.sampled, one.node, one.window, one.why) for one in observations]
    if len([one for one in observations if one.sampled]) > 1 and order.reach == "simulated":
        for node in telemetry:  # the other simulated nodes are no others
            node["machine"]["cpu_others_share"] = None
            node["reasons"]["machine.cpu_others_share"] = "simulated nodes share one machine"
    used = [device["utilization"] for node in telemetry for device in node["devices"]]
    shares = [one["mean"] for one in used if one]
    every = bool(shares) and len(shares) == len(used)
    return {
        "telemetry": telemetry,
        "memory": memory(order.kind, reports, telemetry, observations),
        "utilization": {**part["utilization"], "gpu": sum(shares) / len(shares) if every else None},
        "warnings": part["warnings"] + warnings(observations, telemetry, order),
    }


def memory(
    kind: str,
    reports: dict[int, RankReport],
    telemetry: Sequence[dict[str, Any]],
    observations: Sequence[Observation],
) -> dict[str, Any]:
    """Peaks of one device (records.Memory): the framework's since it started, the device's within the window.

    A CPU's device is the whole machine: what all of its processes use, and what it has.
    """
    held = [report.measured.memory for report in reports.values() if report.measured]
    reasons: dict[str, str] = {}

    def highest(name: str) -> int | None:
        known = [peak for one in held if (peak := getattr(one, name)) is not None]
        if not known:
            why = [one.reasons[name] for one in held if name in one.reasons]
            reasons[name] = why[0] if why else "no rank came to its end"
        return max(known, default=None)

    if kind == "cuda":
        used = [device["memory_used_bytes"] for node in telemetry for device in node["devices"]]
        totals = [card["memory_bytes"] for one in observations if one.sampled for card in one.sampled.cards]
    else:
        used = [node["machine"]["memory_used_bytes"] for node in telemetry]
        totals = [one.sampled.memory_bytes for one in observations if one.sampled]
    peaks = [int(one["max"]) for one in used if one]
    known = [total for total in totals if total is not None]
    peak = {
        "needed_bytes": highest("needed_bytes"),
        "reserved_bytes": highest("reserved_bytes"),
        "device_used_bytes": max(peaks, default=None),
        "device_total_bytes": min(known, default=None),
    }
    for name in ("device_used_bytes", "device_total_bytes"):
        if peak[name] is None:
            reasons[name] = _why(telemetry)
    return {**peak, "reasons": reasons}


def _why(telemetry: Sequence[dict[str, Any]]) -> str:
    """Why the samplers say nothing of the device."""
    for node in telemetry:
        for figure in ("telemetry", "devices", "devices.0.memory_used_bytes", "machine.memory_used_bytes"):
            if figure in node["reasons"]:
                return str(node["reasons"][figure])
    return "the driver does not say"
