"""The seconds from the command to the end of the first step, by part: what every start and restart costs."""

from functools import partial

from throughline.records import StartUp
from throughline.report.analysis.cells import Cell
from throughline.report.render.tables import Column, Table, ends_in_csv
from throughline.report.topic import Scope, Topic
from throughline.statistics import median

INTRO = (
    "Medians of the repeats, of rank 0. Launch: questions to the nodes, a check of the data, and agents. Imports: the "
    "interpreter and the framework. Data: until the loader has begun. The first step compiles, where something is "
    "compiled: with the cache, all compiled code came from the compiler's cache."
)
PARTS = {
    "launch_s": "launch", "imports_s": "imports", "join_s": "join", "device_s": "device", "model_s": "model",
    "data_s": "data", "optimizer_s": "optimizer", "first_step_s": "first step",
}  # fmt: skip
"""Map the parts of a start, which together are the whole, to their headings."""


seconds = "{:,.2f}".format


def _repeats(cell: Cell) -> list[StartUp]:
    return [part for part in cell.record.start_up or () if part]


def _middle(part: str, cell: Cell) -> float | None:
    return median([seconds for repeat in _repeats(cell) if (seconds := getattr(repeat, part)) is not None])


def _first_step(from_cache: bool, cell: Cell) -> float | None:
    return median([repeat.first_step_s for repeat in _repeats(cell) if repeat.from_cache is from_cache])


def _reason(part: str, cell: Cell) -> str | None:
    return next((repeat.reasons.get(part) for repeat in _repeats(cell)), None)


NO_REPEAT = "no repeat compiled like this, or the library does not say"
COLUMNS = (
    Column("start_s", "whole start", "s", partial(_middle, "total_s"), seconds),
    *ends_in_csv("start_min_s", "start_max_s", lambda cell: sorted(cell.start_seconds.values())),
    *(
        Column(key, heading, "s", partial(_middle, key), seconds, partial(_reason, key))
        for key, heading in PARTS.items()
    ),
    Column(
        "first_step_without_cache_s", "first step", "s, compiled anew", partial(_first_step, False), seconds, NO_REPEAT
    ),
    Column(
        "first_step_with_cache_s", "first step", "s, with the cache", partial(_first_step, True), seconds, NO_REPEAT
    ),
    Column("step_s", "a usual step", "s", lambda cell: cell.record.global_batch / cell.median, seconds),
)


def table(scope: Scope) -> Table | None:
    """Return a line for each cell; None if no record tells how its run began."""
    told = any(map(_repeats, scope.measured))
    return Table.of_groups(scope.groups, COLUMNS) if told else None


TOPIC = Topic("start", "From the command to the first step", INTRO, order=145, table=table)
