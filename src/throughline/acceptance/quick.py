"""What a quick acceptance says about nodes: its two records of a node as the runs of an ordinary acceptance, and who
has not passed.

A quick acceptance measures everything on all devices of a node at once, several times in one run. So the rest of this
package sees a run for each device, measurement and repeat, whose record is a part of the record that was made.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from throughline.records.acceptance import Acceptance
from throughline.study.acceptance import RECORDED, ROUNDS, Place

if TYPE_CHECKING:
    from throughline.acceptance.measured import Run

ALONE = ("matmul", "memory", "copies")
"""What every device measures for itself."""


def views(node: dict[str, Run]) -> Iterator[Run]:
    """Yield a node's runs by measurement, place and repeat. node: its valid runs by what they measure."""
    if step := node.get("step"):
        yield from _of_step(step)
    if parts := node.get("parts"):
        on_cpu = parts.measurement.spec.device == "cpu"
        # The window of the parts is too short for telemetry, and the training step runs right after it.
        telemetry = (step or parts).record.telemetry
        for device in [None] if on_cpu else range(parts.measurement.spec.topology.devices):
            yield from _of_parts(parts, device, ALONE, telemetry)
        yield from _of_parts(parts, None, ("all-reduce", "disk"), telemetry)


def _of_step(run: Run) -> Iterator[Run]:
    """Yield a repeat for each third of the window, by the times of its steps."""
    seconds, batch = run.record.step_seconds, run.record.spec.size.global_batch
    length = max(1, len(seconds) // ROUNDS)
    for repeat in range(1, min(ROUNDS, len(seconds)) + 1):
        share = seconds[(repeat - 1) * length : repeat * length]
        record = run.record.model_copy(update={"samples_per_s": batch * len(share) / max(sum(share), 1e-9)})
        yield _view(run, run.place, "step", repeat, record)


def _of_parts(run: Run, device: int | None, whats: tuple[str, ...], telemetry: Any) -> Iterator[Run]:
    """Yield the rounds of these measurements: of one device, or of a node, whose slowest rank counts."""
    place = run.place if device is None else Place("device", run.place.nodes, device)
    record = run.record.model_copy(update={"telemetry": telemetry})
    ranks = [rank.figures or [] for rank in record.ranks if device in (None, rank.rank)]
    if device is not None:
        hardware = [_only(node, device) for node in record.hardware or ()]
        record = record.model_copy(
            update={"hardware": hardware or None, "telemetry": [_only(node, device) for node in telemetry]}
        )
    rounds: dict[tuple[str, Any], int] = {}
    figures: dict[tuple[str, int], list[Any]] = {}
    for number, figure in enumerate(record.figures):
        key = figure.name, figure.at
        rounds[key] = rounds.get(key, 0) + 1
        values = [value for rank in ranks if (value := rank[number]) is not None]
        for what in whats:
            if figure.name in RECORDED[what] and values:
                slowest = figure.model_copy(update={"value": min(values)})
                figures.setdefault((what, rounds[key]), []).append(slowest)
    for (what, repeat), of_round in figures.items():
        yield _view(run, place, what, repeat, record.model_copy(update={"figures": of_round}))


def _only(node: Any, device: int) -> Any:
    """Return what is known of a node with this one of its devices."""
    return node.model_copy(update={"devices": node.devices[device : device + 1]})


def _view(run: Run, place: Place, what: Any, repeat: int, record: Any) -> Run:
    spec = replace(run.measurement.spec, repeat=repeat)
    return replace(run, measurement=replace(run.measurement, place=place, what=what, spec=spec), record=record)


def not_passed(outcome: Acceptance) -> dict[int, str]:
    """Map the nodes that have not passed to the reason: they are slow or broken, away, or were not measured alone.

    If half of the nodes were not measured, it is not their fault.
    """
    away = {node.node: f"it is away, because {node.reason}" for node in outcome.away}
    alone = [run for run in reversed(outcome.missing) if len(run.place.nodes) == 1]
    missing = {run.place.nodes[0]: f"{run.what} is missing: {run.reason}" for run in alone} | away
    if 2 * len(missing.keys() - away) >= len(outcome.nodes) - len(away):
        missing = away
    named = {
        node: finding.sentence
        for finding in reversed(outcome.findings)
        if finding.place.kind != "pair"
        for node in finding.place.nodes
    }
    return dict(sorted((missing | named | away).items()))  # an earlier measurement of a node that is away may be old
