"""Who is slow, in what, and what may explain it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from throughline.acceptance import causes, explanations, facts
from throughline.acceptance.measured import Measured, Run, Spot
from throughline.acceptance.slow import Slow, Standings
from throughline.records.acceptance import NAMES, DifferingFact, Finding

UNEXPLAINED = "nothing that was observed explains it"
NAMED = 3
"""How many facts a sentence names."""
WHILE_TRAINING = " while it trained"


def find(measured: Measured, standings: Standings) -> list[Finding]:
    """Return what is slow, the worst first. A node takes the place of its devices or pairs if most of them are slow.

    The pairs of a node whose link is slow are not named one by one: the caller has left them out.
    """
    slow = [
        Slow(key, spot, standing)
        for key, places in standings.items()
        for spot, standing in places.items()
        if standing.slow
    ]
    groups = _grouped(slow, _devices_of_nodes(standings), _nodes_of_pairs(standings))
    found = [_finding(measured, standings, spot, group, slow) for spot, group in groups.items()]
    return sorted(found, key=lambda finding: min(one.distance for one in finding.slow))


def _devices_of_nodes(standings: Standings) -> dict[int, set[int]]:
    devices: dict[int, set[int]] = {}
    for places in standings.values():
        for spot in places:
            if spot.device is not None:
                devices.setdefault(spot.nodes[0], set()).add(spot.device)
    return devices


def _nodes_of_pairs(standings: Standings) -> dict[Spot, int]:
    """Map slow pairs to the node of theirs that is slow in most of its pairs, and in two at least."""
    found: dict[Spot, int] = {}
    for key, places in standings.items():
        if key.kind != "pair" or not any(standing.slow for standing in places.values()):
            continue
        shares: dict[int, float] = {}
        for node in {node for spot in places for node in spot.nodes}:
            slow = [standing.slow for spot, standing in places.items() if node in spot.nodes]
            if sum(slow) >= 2 and 2 * sum(slow) > len(slow):
                shares[node] = sum(slow) / len(slow)
        for spot, standing in places.items():
            if standing.slow and shares.keys() & set(spot.nodes):
                found[spot] = max(sorted(shares.keys() & set(spot.nodes)), key=shares.__getitem__)
    return found


def _grouped(
    slow: Iterable[Slow], devices: Mapping[int, set[int]], nodes_of_pairs: Mapping[Spot, int]
) -> dict[Spot, list[Slow]]:
    """Return the figures in which each place is slow. What follows from a slow device is counted as this device's."""
    of_node: dict[int, list[Slow]] = {}
    groups: dict[Spot, list[Slow]] = {}
    for one in slow:
        if one.key.kind == "pair" and one.spot not in nodes_of_pairs:
            groups.setdefault(one.spot, []).append(one)
        else:
            of_node.setdefault(nodes_of_pairs.get(one.spot, one.spot.nodes[0]), []).append(one)
    for node, found in of_node.items():
        bad = {one.spot.device for one in found if one.key.kind == "device"}
        many = len(bad) >= 2 and 2 * len(bad) > len(devices[node])
        if not bad or many:
            groups[Spot("node", (node,))] = found
            continue
        for device in bad:
            own = [one for one in found if one.spot.device == device]
            groups[Spot("device", (node,), device)] = own
        rest = [one for one in found if one.key.kind != "device"]
        follows = [one for one in rest if one.key.what == "step"]
        worst = min(bad, key=lambda device: min(_behind(one) for one in found if one.spot.device == device))
        groups[Spot("device", (node,), worst)] += follows
        if others := [one for one in rest if one not in follows]:
            groups[Spot("node", (node,))] = others
    return groups


def _behind(slow: Slow) -> float:
    return slow.standing.distance or 0.0


def _telling(slow: Slow) -> tuple[bool, float]:
    """Return the order of a place's figures: a machine that is slow alone is slow in its pairs, too."""
    return slow.key.kind in ("link", "pair"), _behind(slow)


def _finding(
    measured: Measured, standings: Standings, spot: Spot, group: Sequence[Slow], slow: Sequence[Slow]
) -> Finding:
    cause, because = causes.of(spot, group, standings)
    worst = min(group, key=_telling)
    nodes = spot.nodes if spot.kind == "node" else worst.spot.nodes
    differing = _facts(measured, worst, nodes, {one.spot for one in slow})
    return Finding(
        place=spot.entry,
        slow=[one.entry for one in sorted(group, key=_telling)],
        cause=cause,
        because=because,
        facts=differing,
        sentence=f"{spot}: {_how_slow(spot, group)}; {why(differing)}. {because[0].upper()}{because[1:]}.",
    )


def _how_slow(spot: Spot, group: Sequence[Slow]) -> str:
    """Return by how much a place is slower in its worst figure, among whom, and its other figures."""
    first, *rest = sorted(group, key=_telling)
    entry = first.entry
    beside = f"the {entry.others} others" if entry.kind != "device" else f"{entry.others} other devices"
    reach = 100 * max(abs(entry.others_low), abs(entry.others_high))
    text = (
        f"{_name(first, spot)} {-100 * entry.distance:.1f} % slower than {beside} (range of the others ±{reach:.1f} %)"
    )
    others = [f"{_name(one, spot)} {-100 * _behind(one):.1f} %" for one in _worst_of_each(rest, first)]
    return text + (f", {', '.join(others)}" if others else "")


def _worst_of_each(rest: Sequence[Slow], first: Slow) -> list[Slow]:
    """Return the worst standing in each other figure: several devices of a node may be slow in the same one."""
    seen = {(first.key.what, first.key.figure, first.key.kind)}
    kept = []
    for one in rest:
        name = one.key.what, one.key.figure, one.key.kind
        if name not in seen:
            seen.add(name)
            kept.append(one)
    return kept


def _name(slow: Slow, spot: Spot) -> str:
    name = NAMES.get((slow.key.what, slow.key.figure), slow.key.what)
    if slow.key.kind == "link":
        return f"{name} with other nodes"
    if slow.key.kind == "pair" and spot.kind == "node":
        return f"{name} with node {next(node for node in slow.spot.nodes if node not in spot.nodes)}"
    if slow.key.kind == "node" and spot.kind == "device":
        return f"{name} of its whole node"
    return f"{name} of {slow.spot}" if slow.key.kind == "device" and spot.kind == "node" else name


def why(differing: Sequence[DifferingFact]) -> str:
    """Return the facts that differ, and the reason if one of them is a reason."""
    if not differing:
        return UNEXPLAINED
    told = [
        f"its {fact.fact} was {fact.here}, theirs {fact.others}"
        for fact in differing
        if not (fact.why and fact.fact.startswith(explanations.FACTS[0].words))  # it is the reason already
    ][:NAMED]
    reason = next((fact.why for fact in differing if fact.why), None)
    return "; ".join([*told, *([f"reason: {reason}"] if reason else [])])


def _facts(measured: Measured, worst: Slow, nodes: Sequence[int], slow: set[Spot]) -> list[DifferingFact]:
    """Return what differs in the records of a figure. Of a pair, the facts are those of both nodes."""
    what, kind = worst.key.what, "pair" if worst.key.kind == "link" else worst.key.kind
    runs = [run for run in measured.runs if run.measurement.what == what and run.measurement.place.kind == kind]
    when = ""
    if what != "step" and not all(map(_has_telemetry, runs)) and (trained := _while_training(measured, runs)):
        runs, when = trained, WHILE_TRAINING
    parts = explanations.needed(what, kind, runs[0].measurement.spec.device == "cpu")
    bad = {(spot.nodes[0], spot.device) for spot in slow if spot.kind != "pair"}
    found: list[DifferingFact] = []
    for node in nodes:
        own = [run for run in runs if _is_of(run, node, worst.spot.device)]
        places = {(other, run.measurement.place.device) for run in runs for other in run.measurement.place.nodes}
        own_places = {(one, worst.spot.device) for one in nodes}
        peers = sorted(places - own_places - bad, key=str)
        of_peers = [[run for run in runs if _is_of(run, *peer)] for peer in peers]
        alike = [device is not None and device == worst.spot.device for _, device in peers]
        differing = facts.different(own, of_peers, node, [other for other, _ in peers], alike, parts, when)
        several = len(nodes) > 1
        found += [one.model_copy(update={"fact": f"{one.fact} (node {node})"}) if several else one for one in differing]
    return found


def _is_of(run: Run, node: int, device: int | None) -> bool:
    return node in run.measurement.place.nodes and run.measurement.place.device == device


def _has_telemetry(run: Run) -> bool:
    """Return whether anything was sampled. The window of most measurements is too short for it."""
    return any(one.samples for one in run.record.telemetry)


def _while_training(measured: Measured, runs: Sequence[Run]) -> list[Run]:
    """Return the runs with the telemetry of the training step of the same places and repeats; none if there is none."""
    trained = {
        (run.measurement.place.nodes, run.measurement.place.device, run.measurement.spec.repeat): run
        for run in measured.runs
        if run.measurement.what == "step" and len(run.measurement.place.nodes) == 1 and _has_telemetry(run)
    }
    found = []
    for run in runs:
        place, repeat = run.measurement.place, run.measurement.spec.repeat
        steps = [trained.get(((node,), place.device, repeat)) for node in run.nodes]
        telemetry = [
            one.model_copy(update={"node": index})
            for index, step in enumerate(steps)
            for one in (step.record.telemetry if step else ())
        ]
        found.append(replace(run, record=run.record.model_copy(update={"telemetry": telemetry})))
    return found if any(map(_has_telemetry, found)) else []
