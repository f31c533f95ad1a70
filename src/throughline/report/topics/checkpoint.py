"""What checkpoints cost, and what becomes of an hour of training with them. Measured and computed have own tables."""

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any

from throughline.numbers import percent, reading
from throughline.report.analysis import goodput
from throughline.report.analysis.goodput import PARTS, Costs, Hour
from throughline.report.render.tables import PEOPLE, Column, Entry, Table, in_csv
from throughline.report.topic import Scope, Topic
from throughline.report.topics import predictions
from throughline.statistics import median

INTRO = (
    "The whole state, with torch.distributed.checkpoint: weights, the optimizer's states and the loss scaler. Each "
    "figure is the median of the repeats. Files are synced to the disk before a save ends. A cold load follows a drop "
    "of the files from the page cache. A restart begins with killed ranks and ends with the first step from the "
    "checkpoint."
)
NO_DROP = "the file system keeps its files in memory, or on its servers"


def _seconds(name: str, heading: str, small: str, reason: str = "not measured") -> Iterator[Column]:
    """Yield the column of a figure in seconds, and in the CSV the range of the repeats."""

    def of(end: Callable[[list[float]], float | None]) -> Callable[[Costs], float | None]:
        return lambda costs: end([*costs.of_repeats(name).values()]) if costs.of_repeats(name) else None

    yield Column(name, heading, small, of(median), reading, lambda costs: costs.reason or reason)
    yield from (in_csv(f"{name.removesuffix('_s')}_{word}_s", of(end)) for word, end in (("min", min), ("max", max)))


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


def _restart(end: Callable[[list[float]], float | None]) -> Callable[[Costs], float | None]:
    def of(costs: Costs) -> float | None:
        seconds = [repeat.restart_s for repeat in costs.measured.values() if repeat.restart_s]
        return end(seconds) if seconds else None

    return of


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
    Column("restart_s", "restart", "s, after a kill", _restart(median), reading, "no restart was measured"),
    *(in_csv(f"restart_{word}_s", _restart(end)) for word, end in (("min", min), ("max", max))),
    Column("loaded_is_saved", "loaded is saved", read=_equal),
    in_csv("differs", lambda costs: "; ".join(costs.unlike)),
)  # fmt: skip


def table(scope: Scope) -> Table | None:
    """Return a line for each cell with checkpoints; None without any."""
    return Table.if_any(goodput.costs(scope.groups, scope.everything), COLUMNS, of_cells=True)


TOPIC = Topic("checkpoint", "Checkpoints", INTRO, order=146, table=table)

COMPUTED = (
    "Computed, not measured: nobody waited for failures. The measured costs of checkpoints and of a restart, and the "
    "stated time between two failures of a device (`runs.mtbf_hours`), give the interval between two checkpoints that "
    "loses least (Young 1974, Daly 2006), and what an hour is then spent on. Ranges are those of the repeats."
)
CARRIED = "predicted topologies: a save and a restart are taken to last as long as on {} (measured)"
OF_PARTS = {
    "trains": "trains", "checkpoints": "saves", "repeated": "repeats lost steps", "restarts": "restarts",
    "reading": "waits for data",
}  # fmt: skip
"""Map each part of an hour to its heading."""


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

    def end(place: int) -> Callable[[Hour], float | None]:
        return lambda hour: (hour.range(part) or (None, None))[place]

    yield Column(f"computed_{part}_share", OF_PARTS[part], "computed", read, by_value=True)
    yield in_csv(f"computed_{part}_share_min", end(0))
    yield in_csv(f"computed_{part}_share_max", end(1))


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
    hours = list(goodput.hours(goodput.costs(scope.groups, scope.everything), carried))
    of = dict.fromkeys(str(hour.costs.cell.topology) for hour in hours if hour.predicted)
    return Table.if_any(hours, HOUR_COLUMNS, notes=list(map(CARRIED.format, of)))


HOUR = Topic("goodput", "An hour of training, computed", COMPUTED, order=147, table=goodput_table)
