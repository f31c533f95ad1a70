"""results/compare.json: the present results beside those of archives and folders, measured elsewhere or earlier."""

from typing import Literal

from pydantic import Field

from throughline.records.acceptance import name_of
from throughline.records.entry import BatchSize, Count, Entry, NonNegative, Positive, Schema, Whole
from throughline.spec import cell_name
from throughline.study.acceptance import PlaceKind

PairVerdict = Literal["faster", "slower", "no difference", "inconclusive", "not comparable"]

Together = Literal["the same runs", "in turn", "at the same time"]


def in_words(verdict: PairVerdict, has_again: bool) -> str:
    """Return a verdict in words. Without an A/A run it holds in these runs, and nobody knows whether in others.

    has_again: there is an A/A run.
    """
    decided = verdict in ("faster", "slower", "no difference")
    return f"{verdict} in these runs" if decided and not has_again else verdict


class Difference(Entry):
    """A fact about devices, software, settings or data that the two sides differ in, as texts."""

    name: str
    here: str
    there: str

    def __str__(self) -> str:
        return f"{self.name}: {self.here} here, {self.there} there"


class TestedRatio(Entry):
    """Something that both sides have measured. Ratios are of speeds, ours over theirs: above 1, we are faster.

    ratio: of the medians; tested_ratio: of the geometric means, with its interval; corrected, p_holm: interval and p
    adjusted for everything that is compared with this archive in the same way. differs: what differs here and not
    everywhere.
    """

    unit: str
    ours: list[Positive]
    theirs: list[Positive]
    ratio: Positive
    tested_ratio: Positive | None
    tested_at_least: Positive | None
    tested_at_most: Positive | None
    corrected_at_least: Positive | None
    corrected_at_most: Positive | None
    p: NonNegative | None
    p_holm: NonNegative | None
    smallest_difference: NonNegative | None
    verdict: PairVerdict
    because: str
    differs: list[Difference] = Field(default_factory=list)

    @property
    def words(self) -> str:
        """The verdict in words."""
        return in_words(self.verdict, self.smallest_difference is not None)


class ComparedCell(TestedRatio):
    """One cell of a benchmark. ours, theirs: its repeats."""

    benchmark: str
    batch: BatchSize
    precision: str
    framework: str
    topology: str

    @property
    def name(self) -> str:
        return cell_name(self.benchmark, self.batch, self.precision, self.framework, self.topology)


class ComparedPlace(Entry):
    """A place of two acceptances: its medians, and the ratio of the speeds, ours over theirs."""

    place: str
    ours: Positive
    theirs: Positive
    ratio: Positive


class ComparedKind(TestedRatio):
    """One figure of an acceptance at all places of a kind.

    places: in words; ours, theirs: the medians of the places, or the repeats of a single one. Where less is better, the
    ratio is theirs over ours, so that above 1 is faster as well. worst: the places that lost most.
    """

    what: str
    figure: str
    size: Count | None
    kind: PlaceKind
    places: str
    worst: list[ComparedPlace]

    @property
    def name(self) -> str:
        size = "" if self.size is None else f" ({self.size:,})"
        return f"{self.places}: {name_of(self.what, self.figure)}{size}"


class ComparedAcceptance(Entry):
    """An acceptance beside that of an archive. numbered: True if both call the same nodes by the same numbers.

    started: when its first run began there, and here; differs: what differs in all places; only_here, only_there:
    places that one side lacks.
    """

    started: str | None
    started_here: str | None
    numbered: bool
    differs: list[Difference]
    kinds: list[ComparedKind]
    only_here: list[str]
    only_there: list[str]


class ComparedArchive(Entry):
    """One archive or folder of results: what differs from this side in every cell, and its cells.

    sha256: of an archive; version: of the program that made it. A folder has neither. started: when its first run
    began. days_apart: from the end of the older side to the start of the newer one; None if not known. together: how
    the sides were measured if they were not one after the other. only_here, only_there: cells that one side lacks.
    failed: why such cells have no figure here, if the present results say it. unreadable: summaries of an archive that
    were left out, with the reason. acceptance: None if one side has none.
    """

    name: str
    sha256: str | None
    version: str | None
    started: str | None
    differs: list[Difference]
    cells: list[ComparedCell]
    only_here: list[str]
    only_there: list[str]
    days_apart: NonNegative | None = None
    together: Together | None = None
    failed: dict[str, str] = Field(default_factory=dict)
    unreadable: list[str] = Field(default_factory=list)
    acceptance: ComparedAcceptance | None = Field(None, exclude_if=lambda value: value is None)


class MachineCell(Entry):
    """A measured cell of a machine, with the cost of its devices.

    machine: `here`, or the name of the archive or folder. work: cells with the same number do the same work. repeats:
    the valid ones. best_value: `yes`, or `inconclusive` with the cheapest, or empty. reasons: why a figure is not
    known.

    The fields of a break-even price are known of the fastest cell on as many devices as a cell of the first machine,
    which is named in `break_even_with`. worth: a device hour of this machine in device hours of the first one, with its
    interval. break_even_price: the price of a device hour at which this machine is worth as much as the first one, with
    its interval. price_is: whether the price of this machine is below it.
    """

    work: Count
    machine: str
    device: str | None
    benchmark: str
    framework: str
    topology: str
    precision: str
    batch: BatchSize
    throughput: Positive
    unit: str
    repeats: Whole
    price_per_device_hour: Positive | None
    price_per_million_samples: Positive | None
    samples_per_currency_unit: Positive | None
    task_hours: Positive | None
    task_price: Positive | None
    currency: str | None
    best_value: Literal["yes", "inconclusive", ""] | None
    break_even_with: str | None = None
    worth: Positive | None = None
    worth_at_least: Positive | None = None
    worth_at_most: Positive | None = None
    break_even_price: Positive | None = None
    break_even_at_least: Positive | None = None
    break_even_at_most: Positive | None = None
    break_even_currency: str | None = None
    price_is: Literal["below", "above", "inconclusive"] | None = None
    price_source: str | None
    reasons: dict[str, str]

    @property
    def name(self) -> str:
        return cell_name(self.benchmark, self.batch, self.precision, self.framework, self.topology)


class Compared(Entry):
    """The present results beside archives and folders, in the order of the configuration.

    machines: the cells whose work several machines do, if their devices differ.
    """

    schema_: Schema
    started: str | None
    archives: list[ComparedArchive]
    machines: list[MachineCell] = Field(default_factory=list)
