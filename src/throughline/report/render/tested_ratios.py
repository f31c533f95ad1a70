"""The columns of a table that compares two sides: both medians, their ratio, its interval, the test and its verdict.

A line is about an archive and something that both sides have measured.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from throughline import ratios, statistics
from throughline.numbers import percent, reading, span
from throughline.records.compared import ComparedArchive, TestedRatio
from throughline.report.render.tables import CSV, NOT_KNOWN, PAGE, Column, Entry

Line = tuple[ComparedArchive, Any]


def field(name: str) -> Callable[[Line], Any]:
    """Return the reader of a field of what was measured."""
    return lambda line: getattr(line[1], name)


def _interval(line: tuple[ComparedArchive, TestedRatio]) -> str:
    low, high = line[1].corrected_at_least, line[1].corrected_at_most
    return span((low, high), 3) if low and high else NOT_KNOWN


def _ratio(line: tuple[ComparedArchive, TestedRatio]) -> Entry:
    return Entry.of(line[1].tested_ratio, "{:.3f}".format, line[1].because)


def _verdict(line: tuple[ComparedArchive, TestedRatio]) -> Entry:
    return Entry.words(line[1].words, chip=line[1].verdict.replace(" ", "-"))


INTERVAL = Column(heading="interval", small=f"{percent(1 - ratios.SURE)}, corrected", forms=(PAGE,))
"""The column of the interval, at the level 1 - 5 % / tests (Bonferroni)."""
COLUMNS = (
    Column("here", "here", "median", read=lambda line: statistics.median(line[1].ours), show=reading),
    Column("there", "there", "median", read=lambda line: statistics.median(line[1].theirs), show=reading),
    Column("ratio", read=field("ratio"), forms=(CSV,)),
    Column("tested_ratio", "tested ratio", read=_ratio),
    Column("tested_at_least", read=field("tested_at_least"), forms=(CSV,)),
    Column("tested_at_most", read=field("tested_at_most"), forms=(CSV,)),
    Column("corrected_at_least", read=field("corrected_at_least"), forms=(CSV,)),
    Column("corrected_at_most", read=field("corrected_at_most"), forms=(CSV,)),
    replace(INTERVAL, read=_interval),
    Column("p", read=field("p"), forms=(CSV,)),
    Column("p_holm", read=field("p_holm"), forms=(CSV,)),
    Column("verdict", "verdict", read=_verdict),
    Column("because", "because", read=field("because")),
)
