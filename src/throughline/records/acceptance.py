"""results/acceptance.json: which device, node or link of a fleet of equal nodes is slow, and what may explain it.

`Unfinished` is results/acceptance/<place>/visit<k>.unfinished.json: what a node job has measured that did not end.
"""

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, TypeAdapter

from throughline.records.entry import Count, Entry, NonNegative, Positive, Schema, Whole
from throughline.study.acceptance import Place, PlaceKind

AcceptanceVerdict = Literal["fit", "outliers", "inconclusive"]
STATUS: dict[AcceptanceVerdict, int] = {"fit": 0, "outliers": 1, "inconclusive": 2}
"""The exit status that each verdict has everywhere."""
PlaceVerdict = Literal["slow", "not certain", "explained", "as its peers", "not judged"]
Cause = Literal["machine", "program", "link", "not known"]
NAMES = {
    ("step", "samples_per_s"): "training step",
    ("matmul", "matmul"): "matrix product",
    ("memory", "vector_memory"): "memory",
    ("copies", "host_to_device"): "copy from the host",
    ("copies", "device_to_host"): "copy to the host",
    ("all-reduce", "bus_bandwidth"): "all-reduce",
    ("all-reduce", "latency"): "all-reduce of a small message",
    ("disk", "disk_write"): "disk write",
    ("disk", "disk_read"): "disk read",
}
"""What a figure is called in sentences, by the measurement and the figure."""
DISKS_DIFFER = 0.4
"""A disk that is slower than its peers by no more than this share is not called slow."""
NAMED = 3
"""A sentence names no more places than this."""


def name_of(what: str, figure: str) -> str:
    """Return what a figure is called in sentences."""
    return NAMES.get((what, figure), f"{what}: {figure}")


PlaceEntry = Annotated[
    Place,
    BeforeValidator(TypeAdapter(Place).validate_python),
    PlainSerializer(lambda place: asdict(place) | {"nodes": list(place.nodes), "words": str(place)}),
]
"""A place, which in JSON also has its words."""


class Standing(Entry):
    """One place in one figure, beside its peers.

    repeats: by their number; low, high: the lowest and the highest repeat, which hold the true median with the
    probability `coverage`. distance: the speed here over the median speed of the others, minus 1. others_low,
    others_high: the distances of the others from their own median. p_holm: adjusted for every place and every figure of
    the acceptance. verdict: `explained` if the place is behind because of the place `because`, which a finding names;
    `not certain` if it is far behind and is not called slow, because its peers or its repeats differ too much.
    """

    place: PlaceEntry
    repeats: dict[str, Positive]
    median: Positive
    low: Positive
    high: Positive
    coverage: NonNegative | None
    others: Whole
    others_median: Positive | None
    others_low: float | None
    others_high: float | None
    distance: float | None
    p: NonNegative | None
    p_holm: NonNegative | None
    verdict: PlaceVerdict
    because: str | None

    @property
    def slow(self) -> bool:
        return self.verdict == "slow"

    @property
    def behind(self) -> float:
        """The share by which the place is slower than the others; below 0 if it is faster, 0 without peers."""
        return -(self.distance or 0.0)


class PlacedFigure(Entry):
    """A figure of a measurement at a kind of place. size: rows, elements or bytes."""

    what: str
    figure: str
    size: Count | None
    kind: PlaceKind

    @property
    def words(self) -> str:
        return name_of(self.what, self.figure)

    def tolerance(self, asked: float) -> float:
        """Return the share by which sound places may differ. asked: that of most figures; sound disks differ more."""
        return max(asked, DISKS_DIFFER) if self.what == "disk" else asked


class FleetFigure(PlacedFigure):
    """One figure of all places of a kind. judged: these places are peers.

    limit: what the hardware can reach at most, with its source, where this is known.
    """

    unit: str
    better: Literal["more", "less"]
    judged: bool = False
    limit: Positive | None = None
    limit_source: str | None = None
    standings: list[Standing] = Field(default_factory=list)


class DifferingFact(Entry):
    """A fact of a slow place that its peers do not share. here, others: in words, with units; why: what it explains."""

    fact: str
    here: str
    others: str
    why: str | None


class SlowFigure(PlacedFigure):
    """A figure in which a place is slow: its share behind the others, and their range."""

    place: PlaceEntry
    distance: float
    others: Whole
    others_low: float
    others_high: float


class Finding(Entry):
    """A device, node or pair that is slow: in what, whether it is the machine, the program or a link, and why."""

    place: PlaceEntry
    slow: list[SlowFigure]
    cause: Cause
    because: str
    facts: list[DifferingFact]
    sentence: str

    def explains(self, place: Place) -> bool:
        """Return whether a place may be slow because of this one: a device's node, and everything that a node is in.

        A node that is slow with other nodes only does not explain what it does alone.
        """
        here = self.place
        if here.kind == "pair":
            return place.nodes == here.nodes
        if here.kind == "device":
            return place.nodes == here.nodes and place.device in (None, here.device)
        is_slow_alone = any(figure.kind in ("device", "node") for figure in self.slow)
        return bool(set(here.nodes) & set(place.nodes)) and (is_slow_alone or place.kind not in ("device", "node"))


class Missing(Entry):
    """A run that was asked for and has no valid record."""

    place: PlaceEntry
    what: str
    repeat: Count
    record: str
    reason: str


class Away(Entry):
    """A node that could not be measured when the verdict was made. reason: why, after `because`; figures_of: the days
    of its figures, None if it has none."""

    node: Whole
    reason: str
    figures_of: str | None


class ExpectedFigure(Entry):
    """A figure that was expected or published, beside the slowest place that it is about.

    share: reached over expected; short: below what is expected by more than the tolerance. A figure that was not
    measured has neither. A published figure is never short: nobody has promised it.
    """

    what: str
    at: str
    size: Count | None
    figure: str
    expected: Positive
    unit: str
    source: str
    place: str | None = None
    reached: Positive | None = None
    share: NonNegative | None = None
    short: bool = False
    sentence: str

    @property
    def words(self) -> str:
        return name_of(self.what, self.figure)


class Acceptance(Entry):
    """The verdict on a fleet. Real names of nodes are in no key.

    asked: what was asked for, from which the verdict follows together with the records; nodes: their numbers;
    unjudged: where places differ so that nobody can tell which ones are slow, or that nothing has peers.
    """

    schema_: Schema
    asked: dict[str, Any]
    tolerance: NonNegative
    nodes: list[Whole]
    devices: Count
    device: str | None
    started: str | None
    ended: str | None
    verdict: AcceptanceVerdict
    summary: str
    findings: list[Finding]
    expected: list[ExpectedFigure]
    published: list[ExpectedFigure]
    missing: list[Missing]
    away: list[Away] = Field([], exclude_if=lambda value: not value)
    unjudged: list[str]
    remarks: list[str]
    figures: list[FleetFigure]


def first_of(places: Iterable[Place | str]) -> str:
    """Return the first places, without commas of their own, and how many more there are."""
    named = list(dict.fromkeys(str(place).replace(", GPU", " GPU") for place in places))
    return ", ".join(named[:NAMED]) + (f" and {len(named) - NAMED} more" if named[NAMED:] else "")


class Broken(Entry):
    """A fault for which a run was refused. node: its number; device: the index of its GPU, None if nobody knows which
    one it is; fault: what follows the name in a sentence, such as `has 3 uncorrected ECC errors`."""

    node: Whole
    device: Whole | None
    fault: str


class Failure(Entry):
    """Why a measurement has no valid record. broken: the hardware's faults, if these are the reason."""

    reason: str
    broken: list[Broken]


class Unfinished(Entry):
    """A node job that did not end. records: those that it has made; failed: why others failed, by the record's path."""

    schema_: Schema
    records: list[str]
    failed: dict[str, Failure]


def unfinished(visit: str | Path) -> Path:
    """Return the file `Unfinished` that belongs to a node job. It is not there if the node job has ended."""
    return Path(visit).with_suffix(".unfinished.json")
