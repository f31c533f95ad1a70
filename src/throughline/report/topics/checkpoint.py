"""What checkpoints cost, and what becomes of an hour of training with them. Measured and computed have own tables.

The hour is computed from the costs of checkpoints and restarts, and never measured. Failures come at random, on average
every M seconds (exponentially distributed). A training saves after every t seconds of steps, which costs it c seconds;
after a failure, it needs R seconds until its first step from the last checkpoint, and repeats the steps since then.
Then t seconds of steps take, on average (Daly 2006, section 3):

    M exp(R / M) (exp((t + c) / M) - 1)

The t that makes the share of steps largest is, to the first order, sqrt(2 c M) - c (Young 1974), and to a higher order
Daly's equation 37 (`interval_s`).

* Young, A first order approximation to the optimum checkpoint interval, Communications of the ACM 17 (9), 1974
* Daly, A higher order estimate of the optimum checkpoint interval for restart dumps, Future Generation Computer Systems
  22 (3), 2006
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any

from throughline.numbers import percent, reading
from throughline.records import Checkpoints, PredictedCell
from throughline.report.analysis.cells import Cell, Group
from throughline.report.analysis.differences import derived
from throughline.report.render.tables import PEOPLE, Column, Entry, Table, ends_in_csv, in_csv
from throughline.report.topic import Scope, Topic
from throughline.report.topics import predictions
from throughline.spec import Topology
from throughline.statistics import median

EXTRA = "checkpoint"
PARTS = {
    "trains": "trains", "checkpoints": "saves", "repeated": "repeats lost steps", "restarts": "restarts",
    "reading": "waits for data",
}  # fmt: skip
"""Map what an hour is spent on to headings. Together these are the whole: steps; saving; steps that a failure has lost;
from a failure to the first step; and steps that wait for data."""


@dataclass(frozen=True)
class Costs:
    """What checkpoints cost a cell: the cell, that of its runs with checkpoints, and the repeats that tell it."""

    cell: Cell
    there: Cell
    unlike: tuple[str, ...]

    @cached_property
    def measured(self) -> dict[int, Checkpoints]:
        """The repeats with figures."""
        repeats = enumerate(self.there.record.checkpoints or (), 1)
        return {number: repeat for number, repeat in repeats if repeat and not repeat.reason}

    @property
    def reason(self) -> str | None:
        """Why there are no figures."""
        return next((repeat.reason for repeat in self.there.record.checkpoints or () if repeat), None)

    def of_repeats(self, name: str) -> dict[int, float]:
        """Return a figure of each repeat: the median of its checkpoints, or that of its restart."""
        figures = {number: getattr(repeat, name) for number, repeat in self.measured.items()}
        medians = {number: median(value) if isinstance(value, list) else value for number, value in figures.items()}
        return {number: value for number, value in medians.items() if value is not None}

    @cached_property
    def ways(self) -> dict[str, dict[int, float]]:
        """Map each way of saving to what a checkpoint costs the steps in each repeat, in seconds.

        Beside the steps, it costs at least what it holds them up for: a smaller difference is noise.
        """
        blocked, lost = self.of_repeats("async_blocked_s"), self.of_repeats("async_lost_s")
        aside = {number: max(blocked[number], lost[number]) for number in blocked.keys() & lost.keys()}
        return {"beside the steps": aside, "steps wait": self.of_repeats("save_s")}

    @cached_property
    def restarts(self) -> dict[int, float]:
        """The seconds of a restart in each repeat: measured, or else those of a start and of a load."""
        loads = self.of_repeats("load_warm_s") | self.of_repeats("load_cold_s")
        starts = self.there.start_seconds
        sums = {number: starts[number] + loads[number] for number in starts.keys() & loads.keys()}
        return sums | self.of_repeats("restart_s")


def costs(groups: Iterable[Group], everything: Sequence[Group]) -> list[Costs]:
    """Return what checkpoints cost the measured cells, from their own runs or from those of the extra."""
    costs_of_cells = []
    for cell in (cell for group in groups for cell in group.measured):
        there, unlike = (cell, list[str]()) if cell.record.checkpoints else derived(cell, EXTRA, everything)
        if there and there.record.checkpoints:
            costs_of_cells.append(Costs(cell, there, tuple(unlike)))
    return costs_of_cells


def interval_s(cost_s: float, mtbf_s: float) -> float:
    """Return the seconds of steps between two checkpoints that lose least (Daly's equation 37)."""
    if cost_s >= 2 * mtbf_s:
        return mtbf_s
    part = cost_s / (2 * mtbf_s)
    return math.sqrt(2 * cost_s * mtbf_s) * (1 + math.sqrt(part) / 3 + part / 9) - cost_s


def shares(interval: float, cost_s: float, restart_s: float, mtbf_s: float, waits: float) -> dict[str, float] | None:
    """Map each of PARTS to its share of the time; None if failures come so often that nothing is ever finished.

    waits: the share of the steps' time in which they wait for data.
    """
    try:
        failures = math.expm1((interval + cost_s) / mtbf_s)  # for each interval that is finished
        restarts = failures * mtbf_s * math.expm1(restart_s / mtbf_s)
    except OverflowError:
        return None
    repeated = failures * mtbf_s - interval - cost_s
    seconds = interval * (1 - waits), cost_s, repeated, restarts, interval * waits
    return {part: spent / sum(seconds) for part, spent in zip(PARTS, seconds, strict=True)}


@dataclass(frozen=True)
class Hour:
    """An hour of one topology. predicted: its throughput, if nobody has measured it: then saving and restarting cost
    what they cost on the largest measured topology, which is that of `costs`."""

    costs: Costs
    predicted: PredictedCell | None = None

    @property
    def topology(self) -> Topology:
        return Topology.parse(self.predicted.topology) if self.predicted else self.costs.cell.topology

    @property
    def speed(self) -> float:
        """The throughput of the steps, in samples per second."""
        return self.predicted.samples_per_s if self.predicted else self.costs.cell.median

    @property
    def mtbf_s(self) -> float:
        """The seconds between two failures of any of its devices."""
        return (self.costs.cell.group.summary.mtbf_hours or 0.0) * 3600 / self.topology.world

    @cached_property
    def way(self) -> str:
        """The way of saving that costs less."""
        medians = {way: median([*seconds.values()]) for way, seconds in self.costs.ways.items() if seconds}
        return min(medians, key=lambda way: medians[way] or 0.0)

    @property
    def cost_s(self) -> float:
        return median([*self.costs.ways[self.way].values()]) or 0.0

    @property
    def restart_s(self) -> float:
        return median([*self.costs.restarts.values()]) or 0.0

    @cached_property
    def interval_s(self) -> float:
        return interval_s(self.cost_s, self.mtbf_s)

    @cached_property
    def repeats(self) -> list[dict[str, float]]:
        """The shares from the costs of each repeat, with the interval that fits their medians."""
        saves, restarts = self.costs.ways[self.way], self.costs.restarts
        waits = self.costs.cell.record.loader_stall_share or 0.0
        each = (
            shares(self.interval_s, saves[number], restarts[number], self.mtbf_s, waits)
            for number in sorted(saves.keys() & restarts.keys())
        )
        return [repeat for repeat in each if repeat]

    def share(self, part: str) -> float | None:
        """Return the median share of a part."""
        return median([repeat[part] for repeat in self.repeats])

    def range(self, part: str) -> tuple[float, float] | None:
        """Return the lowest and the highest share of a part; None for a single repeat."""
        values = [repeat[part] for repeat in self.repeats]
        return (min(values), max(values)) if len(values) > 1 else None

    def hourly_speed(self, speed: float | None) -> float | None:
        """Return the samples per second of a long training, with all that steps of this speed lose."""
        trains, reading = self.share("trains"), self.share("reading")
        if speed is None or trains is None or reading is None:
            return None
        return speed * (trains + reading)


def hours(measured: Iterable[Costs], predicted: Iterable[tuple[Cell, PredictedCell]]) -> Iterator[Hour]:
    """Yield the hours of the cells whose benchmark states `mtbf_hours`, and of predicted topologies.

    predicted: each with the measured cell with the most devices of the same series.
    """
    by_cell = {
        cost.cell: cost
        for cost in measured
        if cost.cell.group.summary.mtbf_hours and cost.restarts and any(cost.ways.values()) and not cost.unlike
    }
    yield from map(Hour, by_cell.values())
    yield from (Hour(by_cell[largest], cell) for largest, cell in predicted if largest in by_cell)


INTRO = (
    "The whole state, with torch.distributed.checkpoint: weights, the optimizer's states and the loss scaler. Each "
    "figure is the median of the repeats. Files are synced to the disk before a save ends. A cold load follows a drop "
    "of the files from the page cache. A restart begins with killed ranks and ends with the first step from the "
    "checkpoint."
)
NO_DROP = "the file system keeps its files in memory, or on its servers"


def _seconds(name: str, heading: str, small: str, reason: str = "not measured") -> Iterator[Column]:
    """Yield the column of a figure in seconds, and in the CSV the range of the repeats."""

    def repeats(costs: Costs) -> list[float]:
        return sorted(costs.of_repeats(name).values())

    key = name.removesuffix("_s")
    yield Column(name, heading, small, lambda cell: median(repeats(cell)), reading, lambda cell: cell.reason or reason)
    yield from ends_in_csv(f"{key}_min_s", f"{key}_max_s", repeats)


def _rate(name: str, heading: str, reason: str = "not measured") -> Column:
    """Return the column of gigabytes per second."""

    def of(costs: Costs) -> float | None:
        seconds, size = median([*costs.of_repeats(name).values()]), _first(costs, "bytes")
        return size / seconds / 1e9 if size and seconds else None

    key = f"{name.removesuffix('_s')}_gb_per_s"
    return Column(key, heading, "GB/s", of, reading, lambda costs: costs.reason or reason)


def _first(costs: Costs, name: str) -> Any:
    return next((getattr(repeat, name) for repeat in costs.measured.values()), None)


def _equal(costs: Costs) -> Entry:
    """Return whether all repeats have loaded what they had saved, in the loads and in the restarts."""
    checks = [check for repeat in costs.measured.values() for check in (repeat.equal, repeat.restart_equal)]
    made = [check for check in checks if check is not None]
    if not made:
        return Entry(reason=costs.reason)
    return Entry.words("yes") if all(made) else Entry.words("NO", chip="invalid")


COLUMNS = (
    Column("sharding", "sharding", read=lambda costs: costs.cell.group.summary.options.sharding),
    Column("file_system", "file system", read=lambda costs: _first(costs, "file_system")),
    Column("bytes", "size", "MB", lambda costs: _first(costs, "bytes"), lambda size: reading(size / 1e6),
           lambda costs: costs.reason, whole=True),
    *_seconds("save_s", "save", "s, steps wait"),
    _rate("save_s", "save"),
    *_seconds("async_blocked_s", "beside steps", "s, steps wait"),
    *_seconds("async_written_s", "beside steps", "s, until on the disk"),
    *_seconds("async_lost_s", "beside steps", "s, lost to the steps"),
    *_seconds("load_cold_s", "cold load", "s", NO_DROP),
    _rate("load_cold_s", "cold load", NO_DROP),
    *_seconds("load_warm_s", "warm load", "s"),
    _rate("load_warm_s", "warm load"),
    *_seconds("restart_s", "restart", "s, after a kill", "no restart was measured"),
    Column("loaded_is_saved", "loaded is saved", read=_equal),
    in_csv("differs", lambda costs: "; ".join(costs.unlike)),
)  # fmt: skip


def table(scope: Scope) -> Table | None:
    """Return a line for each cell with checkpoints; None without any."""
    return Table.if_any(costs(scope.groups, scope.everything), COLUMNS, of_cells=True)


TOPIC = Topic("checkpoint", "Checkpoints", INTRO, order=146, table=table)

COMPUTED = (
    "Computed, not measured: nobody waited for failures. The measured costs of checkpoints and of a restart, and the "
    "stated time between two failures of a device (`runs.mtbf_hours`), give the interval between two checkpoints that "
    "loses least (Young 1974, Daly 2006), and what an hour is then spent on. Ranges are those of the repeats."
)
CARRIED = "predicted topologies: a save and a restart are taken to last as long as on {} (measured)"


def _share(part: str) -> Iterator[Column]:
    """Yield the column of a part of the hour, and in the CSV its range."""

    def show(share: float) -> str:
        return percent(share, 2) if part == "trains" else f"{100 * share:.2g} %"  # may be far below 1 %

    def read(hour: Hour) -> Entry:
        if part == "reading" and hour.costs.cell.record.loader_stall_share is None:
            return Entry(reason="its data are synthetic, and in memory")
        value, ends = hour.share(part), hour.range(part)
        between = f" ({show(ends[0])} to {show(ends[1])})" if ends else ""
        why = "failures come so often that no interval is finished"
        return Entry.of(value, lambda share: show(share) + between, why)

    key = f"computed_{part}_share"
    yield Column(key, PARTS[part], "computed", read, by_value=True)
    yield from ends_in_csv(f"{key}_min", f"{key}_max", lambda hour: hour.range(part))


HOUR_COLUMNS = (
    in_csv("benchmark", attrgetter("costs.cell.group.benchmark")),
    in_csv("precision", attrgetter("costs.cell.group.precision")),
    in_csv("batch", lambda hour: str(hour.costs.cell.group.batch)),
    in_csv("framework", lambda hour: hour.costs.cell.framework),
    Column(heading="framework", read=lambda hour: hour.costs.cell.shown, forms=PEOPLE),
    Column("topology", "topology", read=lambda hour: f"{hour.topology}"),
    Column(heading="precision, batch", forms=PEOPLE,
           read=lambda hour: f"{hour.costs.cell.group.precision}, {hour.costs.cell.batch}"),
    Column("steps_are", "steps are", read=lambda hour: "predicted" if hour.predicted else "measured"),
    Column("devices", "devices", read=lambda hour: hour.topology.world, whole=True),
    Column("mtbf_of_all_devices_hours", "a failure every", "hours, stated", lambda hour: hour.mtbf_s / 3600, reading),
    Column("save", "save", read=attrgetter("way")),
    Column("save_cost_s", "a checkpoint costs", "s", attrgetter("cost_s"), reading),
    Column("restart_s", "a restart", "s", attrgetter("restart_s"), reading),
    Column("computed_interval_s", "save every", "min, computed", attrgetter("interval_s"),
           lambda seconds: reading(seconds / 60)),
    *(column for part in PARTS for column in _share(part)),
    Column("computed_samples_per_s", "throughput over hours", "samples/s, computed",
           lambda hour: hour.hourly_speed(hour.speed), reading),
    in_csv("computed_samples_per_s_at_least", lambda hour: hour.hourly_speed(hour.predicted and hour.predicted.low)),
    in_csv("computed_samples_per_s_at_most", lambda hour: hour.hourly_speed(hour.predicted and hour.predicted.high)),
)  # fmt: skip


def goodput_table(scope: Scope) -> Table | None:
    """Return a line for each topology; None without `mtbf_hours`, or without any cost of checkpoints."""
    carried = [(asked.largest, asked.cell) for asked in predictions.asked(scope) if asked.cell]
    lines = list(hours(costs(scope.groups, scope.everything), carried))
    of = dict.fromkeys(str(hour.costs.cell.topology) for hour in lines if hour.predicted)
    return Table.if_any(lines, HOUR_COLUMNS, notes=list(map(CARRIED.format, of)))


HOUR = Topic("goodput", "An hour of training, computed", COMPUTED, order=147, table=goodput_table)
