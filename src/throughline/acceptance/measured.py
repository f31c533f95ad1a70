"""Read the records of an acceptance: its figures by place and repeat, and the runs that have no valid record."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from throughline import records
from throughline.files import UserError
from throughline.records import RunRecord
from throughline.records.acceptance import Missing, PlaceEntry, PlaceKind
from throughline.study.acceptance import FIGURES, Acceptance, Measurement, Place


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
    measurement: Measurement
    record: RunRecord


@dataclass(frozen=True)
class Measured:
    """The valid records of an acceptance, and what is missing."""

    runs: list[Run]
    missing: list[Missing]

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


def read(acceptance: Acceptance, folder: Path) -> Measured:
    """Read every record that is asked for. folder: the one above results/."""
    runs, missing = list[Run](), list[Missing]()
    for measurement in acceptance.measurements():
        path = folder / measurement.record
        reason: str | None = "its node was away, or nobody has started it"
        if (folder / measurement.log).exists():
            reason = f"it did not finish; {measurement.log} says why"
        if path.exists():
            try:
                record = records.read_run_of(path, measurement.spec)
                reason = None if record.status == "ok" else f"{record.status}: {record.reason}"
            except UserError as error:
                reason = error.why or error.what
        if reason is None:
            runs.append(Run(measurement, record))
        else:
            missing.append(
                Missing(
                    place=Spot.of(measurement.place).entry,
                    what=measurement.what,
                    repeat=measurement.spec.repeat,
                    record=measurement.record,
                    reason=reason,
                )
            )
    return Measured(runs, missing)


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
