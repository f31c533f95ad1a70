"""results/compare.json: the cells of this configuration beside those of archives, measured elsewhere or earlier."""

from typing import Literal

from pydantic import Field

from throughline.records.entry import Count, Entry, NonNegative, Positive

PairVerdict = Literal["faster", "slower", "no difference", "not told apart", "not comparable"]


def in_words(verdict: PairVerdict, has_again: bool) -> str:
    """Return a verdict in words. Without an A/A run it holds in these runs, and nobody knows whether in others.

    has_again: there is an A/A run.
    """
    decided = verdict in ("faster", "slower", "no difference")
    return f"{verdict} in these runs" if decided and not has_again else verdict


class ComparedCell(Entry):
    """One cell that both sides have. Ratios are ours over theirs: above 1, the present results are faster.

    ratio: of the medians; tested_ratio: of the geometric means, with its interval; p_holm: adjusted for all cells that
    are compared with this archive. differs: what differs here and not in all other cells.
    """

    benchmark: str
    batch: Count
    precision: str
    framework: str
    topology: str
    unit: str
    ours: list[Positive]
    theirs: list[Positive]
    ratio: Positive
    tested_ratio: Positive | None
    tested_at_least: Positive | None
    tested_at_most: Positive | None
    p: NonNegative | None
    p_holm: NonNegative | None
    smallest_difference: NonNegative | None
    verdict: PairVerdict
    because: str
    differs: list[str] = Field(default_factory=list)

    @property
    def words(self) -> str:
        """The verdict in words."""
        return in_words(self.verdict, self.smallest_difference is not None)

    @property
    def name(self) -> str:
        return f"{self.benchmark} bz{self.batch} {self.precision} {self.framework} {self.topology}"


class ComparedArchive(Entry):
    """One archive: what differs from this side in every cell, and its cells.

    version: of the program that made it. started: when its first run began. only_here, only_there: cells that one side
    lacks.
    """

    name: str
    sha256: str
    version: str
    started: str | None
    differs: list[str]
    cells: list[ComparedCell]
    only_here: list[str]
    only_there: list[str]


class Compared(Entry):
    """The present results beside archives, in the order of the configuration."""

    schema_: Literal[2] = Field(alias="schema")
    started: str | None
    archives: list[ComparedArchive]
