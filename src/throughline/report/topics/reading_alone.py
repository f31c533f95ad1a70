"""What the loader gives without training, beside what training needs (extra `reading`)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from throughline.numbers import reading
from throughline.report.analysis.cells import Cell
from throughline.report.render.tables import Column, Table
from throughline.report.topic import Scope, Topic

INTRO = (
    "All ranks read at the same time and train nothing (extra `reading`). Cold: the files were dropped from the page "
    "cache before, so a disk gives them. Warm: they were read a moment ago. Times: the samples/s of reading over those "
    "of the median training step on the same devices. Below 1, reading limits training."
)
NOT_COLD = "the system kept the files in its page cache, or an epoch has too few batches"


@dataclass(frozen=True)
class Reading:
    """What so many workers for each rank read for the devices of a cell, in samples/s of all ranks; None if unknown."""

    cell: Cell
    workers: int
    cold: float | None
    warm: float | None

    def times(self, speed: float | None) -> float | None:
        """Return how many times what the cell's devices train."""
        return None if speed is None else speed / self.cell.median


def readings(scope: Scope) -> Iterator[Reading]:
    """Yield the readings for each measured cell, by workers. They hold for every framework, precision and batch."""
    alone = [group for group in scope.everything if group.benchmark == f"{scope.benchmark}__reading"]
    for cell in scope.measured:
        there = next((its for group in alone for its in group.measured if its.topology == cell.topology), None)
        by_workers: dict[Any, dict[str, float | None]] = {}
        for figure in there.record.figures if there else ():
            by_workers.setdefault(figure.at, {})[figure.name] = figure.value
        for workers, speeds in sorted(by_workers.items()):
            yield Reading(cell, workers, speeds.get("reading_cold"), speeds.get("reading_warm"))


COLUMNS = (
    Column("workers", "workers", "each rank", lambda read: read.workers, whole=True),
    Column("cold_samples_per_s", "cold", "samples/s", lambda read: read.cold, reading, NOT_COLD),
    Column("warm_samples_per_s", "warm", "samples/s", lambda read: read.warm, reading),
    Column("training_samples_per_s", "training", "samples/s", lambda read: read.cell.median, reading),
    Column("cold_times", "cold", "times what the devices read", lambda read: read.times(read.cold), reading, NOT_COLD),
    Column("warm_times", "warm", "times what the devices read", lambda read: read.times(read.warm), reading),
)


def table(scope: Scope) -> Table | None:
    """Return a line for each cell and number of workers; None without the extra."""
    return Table.if_any(readings(scope), COLUMNS, of_cells=True)


TOPIC = Topic("reading", "Reading alone", INTRO, order=50, table=table)
