"""What was observed of a run from outside its ranks, over the same window: telemetry, memory, the use of its GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from throughline.launch import launchers, preflight
from throughline.observe import telemetry_window

STEAL = 0.02
"""Share of the processors' time that a hypervisor may take."""


class Node(NamedTuple):
    """A node's samples, its window on its own clock, and why one of them is missing."""

    node: int
    told: dict[str, Any] | None
    window: tuple[float, float] | None
    why: str | None


def nodes(order: dict[str, Any], work: Path, reports: dict[int, dict[str, Any]]) -> list[Node]:
    """What the samplers of all nodes have left in the run's folder."""
    found = []
    for node in range(order["nodes"]):
        mine = range(node * order["per_node"], (node + 1) * order["per_node"])
        why = None if order["telemetry"] else "telemetry was switched off"
        if node >= launchers.agents(order):
            if order["reach"] == "simulated":  # the one agent has sampled the one machine
                break
            why = "Horovod's own launcher reaches this node: no agent of ours is there to sample"
        elif order["reach"] == "simulated":
            mine = launchers.ranks_of(order, node)
        windows = [reports[rank]["window"] for rank in mine if "window" in reports.get(rank, {})]
        window = (min(start for start, _ in windows), max(end for _, end in windows)) if windows else None
        found.append(Node(node, telemetry_window.read(work, node), window, why))
    return found


def warnings(sampled: Sequence[Node], telemetry: Sequence[dict[str, Any]], order: dict[str, Any]) -> list[str]:
    """What the samplers found doubtful: cards before the run, others on the processors within the window."""
    found = [f"node {one.node}: {text}" for one in sampled if one.told for text in one.told["warnings"]]
    found += [f"node {one.node}: {text}" for one in sampled[1:] for text in _other_cards(one, sampled[0])]
    for one, node in zip(sampled, telemetry, strict=True):
        others, steal = node["machine"]["cpu_others_share"], node["machine"].get("cpu_steal_share")
        if one.told and others:
            ranks = order["world"] if order["reach"] == "simulated" else order["per_node"]
            cores, wanted = one.told["cpus"], ranks * order["spec"]["threads"]
            text = preflight.crowded(others["mean"] * cores, cores, wanted, "used {} within the window")
            found += [f"node {one.node}: {text}"] if text else []
        if steal and steal["mean"] > STEAL:
            found.append(
                f"node {one.node}: its host took {steal['mean']:.1%} of the processors' time within the window "
                "(steal): other virtual machines were busy; measure again, or on a host of your own"
            )
    return found


def _other_cards(one: Node, first: Node) -> list[str]:
    """What is set otherwise on a node's GPUs than on the first node's."""
    pairs = zip(one.told["cards"], first.told["cards"], strict=False) if one.told and first.told else ()
    return [
        f"GPU {index}: {name} is {card[name]}, and {other[name]} on node 0: the slowest device sets the pace"
        for index, (card, other) in enumerate(pairs)
        for name in ("name", *preflight.LIMITS)
        if card[name] != other[name]
    ]


def record(
    order: dict[str, Any], reports: dict[int, dict[str, Any]], sampled: Sequence[Node], part: dict[str, Any]
) -> dict[str, Any]:
    """The record's `telemetry`, `memory`, `utilization` and `warnings`, from what is in `part` of it already."""
    telemetry = [telemetry_window.condensed(one.told, one.node, one.window, one.why) for one in sampled]
    if len([one for one in sampled if one.told]) > 1 and order["reach"] == "simulated":
        for node in telemetry:  # the other simulated nodes are no others
            node["machine"]["cpu_others_share"] = None
            node["reasons"]["machine.cpu_others_share"] = "simulated nodes share one machine"
    used = [device["utilization"] for node in telemetry for device in node["devices"]]
    shares = [one["mean"] for one in used if one]
    every = bool(shares) and len(shares) == len(used)
    return {
        "telemetry": telemetry,
        "memory": memory(order["kind"], reports, telemetry, sampled),
        "utilization": {**part["utilization"], "gpu": sum(shares) / len(shares) if every else None},
        "warnings": part["warnings"] + warnings(sampled, telemetry, order),
    }


def memory(
    kind: str, reports: dict[int, dict[str, Any]], telemetry: Sequence[dict[str, Any]], sampled: Sequence[Node]
) -> dict[str, Any]:
    """Peaks of one device (records.Memory): the framework's since it started, the device's within the window.

    A CPU's device is the whole machine: what all of its processes use, and what it has.
    """
    held = [report["memory"] for report in reports.values() if "memory" in report]
    reasons: dict[str, str] = {}

    def highest(name: str) -> int | None:
        known = [one[name] for one in held if one[name] is not None]
        if not known:
            told = [one["reasons"][name] for one in held if name in one["reasons"]]
            reasons[name] = told[0] if told else "no rank came to its end"
        return max(known, default=None)

    if kind == "cuda":
        used = [device["memory_used_bytes"] for node in telemetry for device in node["devices"]]
        totals = [card["memory_bytes"] for one in sampled if one.told for card in one.told["cards"]]
    else:
        used = [node["machine"]["memory_used_bytes"] for node in telemetry]
        totals = [one.told["memory_bytes"] for one in sampled if one.told]
    peaks = [int(one["max"]) for one in used if one]
    known = [total for total in totals if total is not None]
    found = {
        "needed_bytes": highest("needed_bytes"),
        "reserved_bytes": highest("reserved_bytes"),
        "device_used_bytes": max(peaks, default=None),
        "device_total_bytes": min(known, default=None),
    }
    for name in ("device_used_bytes", "device_total_bytes"):
        if found[name] is None:
            reasons[name] = _why(telemetry)
    return {**found, "reasons": reasons}


def _why(telemetry: Sequence[dict[str, Any]]) -> str:
    """Why the samplers say nothing of the device."""
    for node in telemetry:
        for figure in ("telemetry", "devices", "devices.0.memory_used_bytes", "machine.memory_used_bytes"):
            if figure in node["reasons"]:
                return str(node["reasons"][figure])
    return "the driver does not say"
