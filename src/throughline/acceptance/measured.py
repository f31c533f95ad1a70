"""Read the records of an acceptance: its figures by place and repeat, and the runs that have no valid record.

A record counts only if its node job has ended since it was made, or names it among what it has measured so far.
Otherwise it is a figure of an earlier acceptance.

A quick acceptance measures everything on all devices of a node at once, several times in one run. So the rest of this
package sees a run for each device, measurement and repeat, whose record is a part of the record that was made.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from throughline import records
from throughline.files import UserError, read_json
from throughline.records.acceptance import Broken, Failure, Missing, unfinished
from throughline.study.acceptance import RECORDED, ROUNDS, Measurement, Place, Plan

FIGURE = ["what", "figure", "size", "kind", "unit", "better"]
"""The columns that name a figure. A figure without a size has 0."""
ALONE = ("matmul", "memory", "copies")
"""What every device measures for itself."""
UNSUPPORTED = "unsupported"
"""How the reason begins for which another call would measure a run no better."""


@dataclass(frozen=True)
class Run:
    """A valid record. nodes: the numbers of its nodes, in the order in which the record counts them from 0.

    That is Slurm's order, by name. A node that joined later may have a higher number and stand before the others.
    """

    measurement: Measurement
    record: records.RunRecord
    nodes: tuple[int, ...]

    @property
    def place(self) -> Place:
        return self.measurement.place


@dataclass(frozen=True)
class Measured:
    """The valid records of an acceptance, what is missing, and which hardware was refused because it is broken."""

    runs: list[Run] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)
    broken: list[Broken] = field(default_factory=list)

    @property
    def device(self) -> str | None:
        """The name of the devices, if all have the same one."""
        names = {run.record.device.name for run in self.runs if run.record.device}
        return names.pop() if len(names) == 1 else None

    def values(self) -> pd.DataFrame:
        """Return a line for each value of a figure: the columns of FIGURE, place, repeat and value.

        What nodes reach in the best of their pairs comes last.
        """
        lines = [line for run in self.runs for line in _values(run)]
        values = pd.DataFrame(lines, columns=[*FIGURE, "place", "repeat", "value"])
        return pd.concat([values, _links(values)], ignore_index=True)


def read(asked: Plan, folder: Path, away: Mapping[int, str]) -> Measured:
    """Read every record that is asked for. folder: the one above results/; away: why nodes cannot be measured now."""
    measured = Measured()
    for visit, measurements in asked.visits.items():
        made, failed, nodes = _visited(folder / visit)
        measured.broken.extend(fault for failure in failed.values() for fault in failure.broken)
        valid: list[Run] = []
        for measurement in measurements:
            place, record, reason = measurement.place, None, _not_made(measurement, folder, failed, away)
            if measurement.record in made and (folder / measurement.record).exists():
                record, reason = _read(measurement, folder)
            if record:
                in_order = nodes if sorted(nodes) == list(place.nodes) else place.nodes
                valid.append(Run(measurement, record, in_order))
            else:
                repeat, path = measurement.spec.repeat, measurement.record
                gap = Missing(place=place, what=measurement.what, repeat=repeat, record=path, reason=reason)
                measured.missing.append(gap)
        is_whole_node = asked.quick and measurements[0].place.kind == "node"
        measured.runs.extend(views({run.measurement.what: run for run in valid}) if is_whole_node else valid)
    return measured


def _visited(path: Path) -> tuple[set[str], dict[str, Failure], tuple[int, ...]]:
    """Return the records that a node job has made, why others failed, and its nodes in the order of its runs, if known.

    path: its file, which only exists at its end.
    """
    if path.exists():
        visit = read_json(path)
        return set(visit["records"]), {}, tuple(visit.get("nodes", ()))
    if unfinished(path).exists():
        begun = records.read_unfinished(unfinished(path))
        return set(begun.records), begun.failed, ()
    return set(), {}, ()


def _not_made(measurement: Measurement, folder: Path, failed: Mapping[str, Failure], away: Mapping[int, str]) -> str:
    """Return why a node job has not made a record."""
    if failure := failed.get(measurement.record):
        return failure.reason
    for node in measurement.place.nodes:
        if node in away:
            return f"node {node} is away, because {away[node]}"
    if (folder / measurement.record).exists():
        return "its record is of an earlier node job, and the last node job did not reach it"
    if (folder / measurement.log).exists():
        return f"it did not finish; {measurement.log} says why"
    return "its node was away, or nobody has started it"


def _read(measurement: Measurement, folder: Path) -> tuple[records.RunRecord | None, str]:
    """Return a record; None and the reason if it has no figures of what is asked for."""
    try:
        record = records.read_run_of(folder / measurement.record, measurement.spec)
    except UserError as error:
        return None, error.why or error.what
    if record.status != "ok":
        reason = f"{record.status}: {measurement.place.renumbered(record.reason or '')}"
        return None, f"{reason}; another call does not try it again" if record.status == UNSUPPORTED else reason
    # A place must not vanish without a word. A folder in memory has no disk, and the verdict has a remark about it.
    for name in RECORDED[measurement.what] if measurement.what != "disk" else ():
        values = [figure.value for figure in record.figures if figure.name == name]
        wrong = [value for value in values if value is None or value <= 0]
        if wrong or not values:
            return None, f"its figure {name} is {wrong[0] if wrong and wrong[0] is not None else 'not there'}"
    return record, ""


def _values(run: Run) -> Iterator[tuple[str, str, int, str, str, str, Place, int, float]]:
    """Yield the values of a run. The seconds of a small all-reduce follow from its algorithm bandwidth."""
    what, kind, record = run.measurement.what, run.place.kind, run.record
    where = run.place, run.measurement.spec.repeat
    if not RECORDED[what] and record.samples_per_s:
        yield what, "samples_per_s", 0, kind, record.unit, "more", *where, record.samples_per_s
    sized = [
        (figure, int(figure.at), figure.value)
        for figure in record.figures
        if figure.name in RECORDED[what] and figure.value and isinstance(figure.at, int | float)
    ]
    for figure, size, value in sized:
        if figure.name != "algorithm_bandwidth":
            yield what, figure.name, size, kind, figure.unit, figure.better, *where, value
        elif size == min(other for _, other, _ in sized):
            yield what, "latency", size, kind, "us", "less", *where, size / 1e3 / value


def _links(values: pd.DataFrame) -> pd.DataFrame:
    """Return what each node reaches in the best of its pairs, repeat by repeat.

    A node with a slow link is slow in all of its pairs, and its partners are not. With a single pair, nobody can tell
    which of its two nodes is slow. Two nodes may have their best pair in common, and then they seem to differ by
    nothing. Only several repeats show by how much they differ by chance.
    """

    def can_be_told(figure: pd.DataFrame) -> bool:
        pairs = figure.groupby("node").place.nunique()
        return len(pairs) > 2 and pairs.min() > 1 and figure.groupby("place").repeat.nunique().max() > 1

    pairs = values[values.kind == "pair"]
    nodes = pairs.assign(node=[place.nodes for place in pairs.place]).explode("node", ignore_index=True)
    nodes = nodes.groupby(FIGURE, sort=False).filter(can_be_told)
    speeds = nodes.value.where(nodes.better == "more", -nodes.value)
    best = speeds.groupby([nodes[name] for name in [*FIGURE, "node", "repeat"]], sort=False).idxmax()
    links = nodes.loc[best].sort_values("node", kind="stable")
    return links.assign(kind="link", place=links.node.map(lambda node: Place("link", (node,)))).drop(columns="node")


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
