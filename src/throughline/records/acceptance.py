"""results/acceptance.json: which device, node or link of a fleet of equal nodes is slow, and what may explain it."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from pydantic import Field

from throughline.records.entry import Count, Entry, NonNegative, Positive, Schema, Whole

AcceptanceVerdict = Literal["fit", "outliers", "not measured"]
PlaceKind = Literal["device", "node", "link", "pair", "all"]
Cause = Literal["machine", "program", "link", "not known"]


class PlaceEntry(Entry):
    """Where a figure was measured. Kind `link` is what a node reaches in the best of its pairs."""

    kind: PlaceKind
    nodes: list[Whole]
    device: Whole | None
    words: str


class StandingEntry(Entry):
    """One place in one figure, beside its peers.

    repeats: by their number; low, high: the lowest and the highest repeat, which hold the true median with the
    probability `coverage`. distance: the speed here over the median speed of the others, minus 1. others_low,
    others_high: the distances of the others from their own median. p_holm: adjusted for every place and every figure of
    the acceptance.
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
    slow: bool


UNSURE = 0.1
"""A place that is behind by more than this share without being called slow is named as not certain."""
MANY, LIKELY = 10, 0.5
"""With so many peers, this is so only if a place so far behind among equal ones is less likely than this."""


class FigureEntry(Entry):
    """One figure of all places of a kind. size: rows, elements or bytes; judged: these places are peers.

    limit: what the hardware can reach at most, with its source, where this is known.
    """

    what: str
    figure: str
    size: Count | None
    kind: PlaceKind
    unit: str
    better: Literal["more", "less"]
    judged: bool
    limit: Positive | None
    limit_source: str | None
    standings: list[StandingEntry]

    @property
    def words(self) -> str:
        return NAMES.get((self.what, self.figure), f"{self.what}: {self.figure}")


NAMES = {
    ("step", "samples_per_s"): "training step",
    ("matmul", "matmul"): "matrix product",
    ("memory", "vector_memory"): "memory",
    ("copies", "host_to_device"): "copy from the host",
    ("copies", "device_to_host"): "copy to the host",
    ("all-reduce", "bus_bandwidth"): "all-reduce",
    ("all-reduce", "latency"): "all-reduce of a small message",
}
"""What a figure is called in sentences, by the measurement and the figure."""


class DifferingFact(Entry):
    """A fact of a slow place that its peers do not share. here, others: in words, with units; why: what it explains."""

    fact: str
    here: str
    others: str
    why: str | None


class SlowFigure(Entry):
    """A figure in which a place is slow: its share behind the others, and their range."""

    what: str
    figure: str
    size: Count | None
    kind: PlaceKind
    place: str
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

    def explains(self, place: PlaceEntry) -> bool:
        """Return whether a place may be slow because of this one: a device's node, and everything that a node is in.

        A node that is slow with other nodes only does not explain what it does alone.
        """
        own = self.place
        if own.kind == "pair":
            return place.nodes == own.nodes
        if own.kind == "device":
            return place.nodes == own.nodes and place.device in (None, own.device)
        is_slow_alone = any(one.kind in ("device", "node") for one in self.slow)
        return bool(set(own.nodes) & set(place.nodes)) and (is_slow_alone or place.kind not in ("device", "node"))


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


class ExpectedEntry(Entry):
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
    place: str | None
    reached: Positive | None
    share: NonNegative | None
    short: bool
    sentence: str


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
    expected: list[ExpectedEntry]
    published: list[ExpectedEntry]
    missing: list[Missing]
    away: list[Away] = Field([], exclude_if=lambda value: not value)
    unjudged: list[str]
    remarks: list[str]
    figures: list[FigureEntry]

    def unsure_in_words(self) -> list[str]:
        """Return a sentence about the places that are far behind and not called slow; none without such places."""
        behind = sorted(
            (one.distance or 0.0, f"{one.place.words} by {-100 * (one.distance or 0.0):.0f} % ({figure.words})")
            for figure in self.figures
            for one in unsure(figure, self.findings, self.tolerance)
            if figure.kind != "link"  # its pairs are named
        )
        if not behind:
            return []
        return [
            f"not certain: {first_of(words for _, words in behind)} lie behind the others, but these or the repeats "
            "differ so much that it may be chance; more repeats, or a quieter fleet, would tell"
        ]

    def away_in_words(self) -> list[str]:
        """Return a sentence for each node that is away and has figures; the others are among what is missing."""
        return [
            f"node {one.node} is away, because {one.reason}; its figures are of {one.figures_of}"
            for one in self.away
            if one.figures_of
        ]

    def missing_in_words(self) -> list[str]:
        """Return a sentence for each reason why runs are missing: where, and which."""
        by_reason: dict[str, list[Missing]] = {}
        for one in self.missing:
            by_reason.setdefault(one.reason, []).append(one)
        texts = []
        for reason, missing in by_reason.items():
            whats = list(dict.fromkeys(one.what for one in missing))
            texts.append(
                f"{first_of(one.place.words for one in missing)}: {', '.join(whats)} {'are' if whats[1:] else 'is'} "
                f"missing ({len(missing)} run{'s' if len(missing) > 1 else ''}): {reason}"
            )
        return texts


def unsure(figure: FigureEntry, findings: Sequence[Finding], tolerance: float) -> list[StandingEntry]:
    """Return the places that are far behind and not called slow, because their peers or their repeats differ too much.

    Places that are behind because of one that a finding names are left out. Many peers tell how much equal places
    differ: what lies among them is as they are.
    """
    return [
        one
        for one in figure.standings
        if not one.slow
        and one.p is not None
        and (one.distance or 0.0) < -max(UNSURE, tolerance)
        and (one.others < MANY or (one.p_holm or 0.0) < LIKELY)
        and not any(finding.explains(one.place) for finding in findings)
    ]


def first_of(places: Iterable[str]) -> str:
    """Return the first places, and how many more there are."""
    named = list(dict.fromkeys(places))
    return ", ".join(named[:NAMED]) + (f" and {len(named) - NAMED} more" if named[NAMED:] else "")


NAMED = 3
"""A sentence names no more places than this."""
