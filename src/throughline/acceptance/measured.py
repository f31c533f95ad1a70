"""Read the records of an acceptance: its figures by place and repeat, and the runs that have no valid record.

A record counts only if its node job has ended since it was made, or names it among what it has measured so far.
Otherwise it is a figure of an earlier acceptance.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from throughline import records
from throughline.files import UserError, read_json
from throughline.records import RunRecord
from throughline.records.acceptance import Missing, PlaceEntry, PlaceKind
from throughline.records.visit import Broken, Failure, unfinished
from throughline.study.acceptance import FIGURES, Acceptance, Measurement, Place

UNSUPPORTED = "unsupported"
"""How the reason begins for which another call would measure a run no better."""


@dataclass(frozen=True, order=True)
class Spot:
    """A place of a figure. Kind `link` is what a node reaches in the best of its pairs."""

    kind: PlaceKind
    nodes: tuple[int, ...]
    device: int | None = None

    @classmethod
    def of(cls, place: Place) -> Spot:
        return cls(place.kind, place.nodes, place.device)

    def __str__(self) -> str:
        if self.kind == "link":
            return f"node {self.nodes[0]}"
        return str(Place(self.kind, self.nodes, self.device))

    @property
    def entry(self) -> PlaceEntry:
        return PlaceEntry(kind=self.kind, nodes=list(self.nodes), device=self.device, words=str(self))


@dataclass(frozen=True)
class FigureKey:
    """One figure of all places of a kind. size: rows, elements or bytes."""

    what: str
    figure: str
    size: int | None
    kind: PlaceKind
    unit: str
    less: bool = False


Values = dict[FigureKey, dict[Spot, dict[int, float]]]


@dataclass(frozen=True)
class Run:
    """A valid record. nodes: the numbers of its nodes, in the order in which the record counts them from 0.

    That is Slurm's order, by name. A node that joined later may have a higher number and stand before the others.
    """

    measurement: Measurement
    record: RunRecord
    nodes: tuple[int, ...]


@dataclass(frozen=True)
class Measured:
    """The valid records of an acceptance, what is missing, and which hardware was refused because it is broken."""

    runs: list[Run]
    missing: list[Missing]
    broken: list[Broken] = field(default_factory=list)

    @property
    def device(self) -> str | None:
        """The name of the devices, if all have the same one."""
        names = {run.record.device.name for run in self.runs if run.record.device}
        return names.pop() if len(names) == 1 else None

    def values(self) -> Values:
        """Return the values of all figures by place and repeat, with what nodes reach in the best of their pairs."""
        found: Values = defaultdict(lambda: defaultdict(dict))
        for run in self.runs:
            place, repeat = Spot.of(run.measurement.place), run.measurement.spec.repeat
            for key, value in _figures(run):
                found[key][place][repeat] = value
        return {key: dict(places) for key, places in {**found, **_links(found)}.items()}


def read(acceptance: Acceptance, folder: Path, away: Mapping[int, str]) -> Measured:
    """Read every record that is asked for. folder: the one above results/; away: why nodes cannot be measured now."""
    found = Measured([], [], [])
    for visit, measurements in acceptance.visits().items():
        made, failed, nodes = _visited(folder / visit)
        found.broken.extend(one for failure in failed.values() for one in failure.broken)
        for measurement in measurements:
            record, reason = None, _not_made(measurement, folder, failed, away)
            if measurement.record in made and (folder / measurement.record).exists():
                record, reason = _read(measurement, folder)
            if record:
                known = sorted(nodes) == list(measurement.place.nodes)
                found.runs.append(Run(measurement, record, nodes if known else measurement.place.nodes))
                continue
            missing = Missing(
                place=Spot.of(measurement.place).entry,
                what=measurement.what,
                repeat=measurement.spec.repeat,
                record=measurement.record,
                reason=reason,
            )
            found.missing.append(missing)
    return found


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


def _read(measurement: Measurement, folder: Path) -> tuple[RunRecord | None, str]:
    """Return a record; None and the reason if it has no figures of what is asked for."""
    try:
        record = records.read_run_of(folder / measurement.record, measurement.spec)
    except UserError as error:
        return None, error.why or error.what
    if record.status != "ok":
        reason = f"{record.status}: {measurement.place.renumbered(record.reason or '')}"
        return None, f"{reason}; another call does not try it again" if record.status == UNSUPPORTED else reason
    lacking = _lacking(measurement.what, record)
    return (None, lacking) if lacking else (record, "")


def _lacking(what: str, record: RunRecord) -> str | None:
    """Return which figure of a run is no positive number; None if all are. A place must not vanish without a word."""
    for name in FIGURES[what]:
        values = [figure.value for figure in record.figures if figure.name == name]
        wrong = [value for value in values if value is None or value <= 0]
        if wrong or not values:
            return f"its figure {name} is {wrong[0] if wrong and wrong[0] is not None else 'not there'}"
    return None


def _figures(run: Run) -> Iterator[tuple[FigureKey, float]]:
    """Yield the figures of a run. The seconds of a small all-reduce follow from its algorithm bandwidth."""
    measurement, record = run.measurement, run.record
    what, kind = measurement.what, measurement.place.kind
    if not FIGURES[what] and record.samples_per_s:
        yield FigureKey(what, "samples_per_s", None, kind, record.unit), record.samples_per_s
    sized = [
        (figure, int(figure.at), figure.value)
        for figure in record.figures
        if figure.name in FIGURES[what] and figure.value and isinstance(figure.at, int | float)
    ]
    for figure, size, value in sized:
        if figure.name != "algorithm_bandwidth":
            yield FigureKey(what, figure.name, size, kind, figure.unit, figure.better == "less"), value
        elif size == min(other for _, other, _ in sized):
            yield FigureKey(what, "latency", size, kind, "us", less=True), size / 1e3 / value


def _links(values: Mapping[FigureKey, Mapping[Spot, Mapping[int, float]]]) -> Values:
    """Return what each node reaches in the best of its pairs, repeat by repeat.

    A node with a slow link is slow in all of its pairs, and its partners are not. With a single pair, nobody can tell
    which of its two nodes is slow. Two nodes may have their best pair in common, and then they seem to differ by
    nothing. Only several repeats show by how much they differ by chance.
    """
    links: Values = {}
    for key, pairs in values.items():
        if key.kind != "pair":
            continue
        nodes = sorted({node for place in pairs for node in place.nodes})
        of_node = {node: [values for place, values in pairs.items() if node in place.nodes] for node in nodes}
        repeats = max(map(len, pairs.values()))
        if len(nodes) < 3 or min(map(len, of_node.values())) < 2 or repeats < 2:
            continue
        links[replace(key, kind="link")] = {
            Spot("link", (node,)): {
                repeat: (min if key.less else max)(one[repeat] for one in several if repeat in one)
                for repeat in sorted({repeat for one in several for repeat in one})
            }
            for node, several in of_node.items()
        }
    return links


def judged(values: Values) -> set[FigureKey]:
    """Return the figures whose places are peers: of an all-reduce, the largest bandwidth and the smallest latency."""
    largest: dict[PlaceKind, int] = {}
    for key in values:
        if key.figure == "bus_bandwidth" and key.size:
            largest[key.kind] = max(key.size, largest.get(key.kind, 0))
    return {
        key for key in values if key.kind != "all" and (key.figure != "bus_bandwidth" or key.size == largest[key.kind])
    }
