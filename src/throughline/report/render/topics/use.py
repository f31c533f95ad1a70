"""The table of what the hardware did over the same window as the throughput: devices, processes, the machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from throughline.records import Cell, Series
from throughline.report.numbers import MIB, percent, reading
from throughline.report.render.grid import Column, Figure, Grid, lines
from throughline.report.render.sheets import grid_topic
from throughline.report.topics import LOSS, Finding, Scope

WAITS = 0.05
"""Share of the time that is worth a finding."""
OLD = "the records are older than this figure"


class Shown(NamedTuple):
    """A series of `Use` by the part it is in, its name there, and how the page names it; without a heading CSV only."""

    part: str
    name: str
    heading: str = ""
    of: str = ""


SERIES = (
    Shown("devices", "sm_active", "SM active"),
    Shown("devices", "tensor_active", "tensor units active"),
    Shown("devices", "dram_active", "DRAM active"),
    Shown("devices", "nvlink_bytes_per_s", "NVLink"),
    Shown("devices", "sm_clock_mhz", "SM clock"),
    Shown("devices", "memory_clock_mhz"),
    Shown("devices", "power_w", "power"),
    Shown("devices", "temperature_c", "temperature"),
    Shown("devices", "memory_used_bytes"),
    Shown("processes", "cpu_cores", "CPU", "of the run"),
    Shown("processes", "memory_bytes", "memory", "of the run"),
    Shown("processes", "threads"),
    Shown("processes", "disk_read_bytes_per_s"),
    Shown("processes", "disk_written_bytes_per_s"),
    Shown("machine", "cpu_share", "CPU", "of the machine"),
    Shown("machine", "cpu_others_share", "CPU", "of others"),
    Shown("machine", "cpu_steal_share", "CPU", "stolen by the host"),
    Shown("machine", "memory_used_bytes"),
    Shown("machine", "disk_read_bytes_per_s", "disk read"),
    Shown("machine", "disk_written_bytes_per_s", "disk written"),
    Shown("machine", "network_received_bytes_per_s", "network in"),
    Shown("machine", "network_sent_bytes_per_s", "network out"),
    Shown("machine", "infiniband_received_bytes_per_s"),
    Shown("machine", "infiniband_sent_bytes_per_s"),
    Shown("machine", "loopback_bytes_per_s", "loopback"),
)
FIRST = (
    Column("gpu_busy_share", "GPUs busy"),
    Column("worker_threads_busy_share", "threads busy", "of workers"),
    Column("waiting_for_data_share", "waiting", "for data"),
)
LAST = (
    Column("throttle_reasons", "throttled by"),
    Column("telemetry_cpu_share", "telemetry", "CPU cost"),
)
UNITS = {"_bytes_per_s": "MB/s", "_bytes": "MiB", "_mhz": "MHz", "_w": "W", "_c": "°C", "_cores": "cores"}


def grid(scope: Scope) -> Grid:
    """A row per cell: means over the window; a figure's title says its least and its most."""
    columns = [*FIRST, *(_column(one) for one in SERIES), *LAST]
    note = "means over the timed window, over nodes, devices and repeats; a figure's title says the extremes"
    return Grid("use", "Use of the hardware", columns, lines(scope.groups, _figures), notes=[note])


def _column(one: Shown) -> Column:
    small = ", ".join(word for word in (one.of, _unit(one.name)) if word)
    return Column(f"{one.part}_{one.name}_mean", one.heading or one.name, small, minor=not one.heading)


def _figures(cell: Cell) -> list[Figure]:
    use, shares = cell.use, cell.utilization
    gpu, cpu, stall = (shares.gpu if shares else None, shares.cpu if shares else None, cell.loader_stall_share)
    no_gpu = (use.reasons.get("devices") if use else OLD) or "the run used no GPU"
    series = [_series(cell, one) for one in SERIES]
    throttled = use.throttle_reasons if use else None
    cost = use.cost_cpu_share if use else None
    return [
        Figure.of(gpu, percent(gpu), no_gpu),
        Figure.of(cpu, percent(cpu), OLD),
        Figure.of(stall, percent(stall, 1), "nothing is read: made-up batches"),
        *series,
        Figure.of(None if throttled is None else ", ".join(throttled), ", ".join(throttled or ()) or "nothing", no_gpu),
        Figure.of(cost, percent(cost, 2), (use.reasons.get("telemetry") if use else OLD) or "not sampled"),
    ]


def _series(cell: Cell, one: Shown) -> Figure:
    if cell.use is None:
        return Figure(why=OLD)
    part: Mapping[str, Series | None] = getattr(cell.use, one.part)
    found = part.get(one.name)
    if found is None:
        nothing = one.part == "devices" and not part and not cell.use.reasons
        return Figure(why="the run used no GPU" if nothing else _reason(cell.use.reasons, one))
    return Figure(text(one.name, found.mean), found.mean, f"{text(one.name, found.min)} to {text(one.name, found.max)}")


def _reason(reasons: Mapping[str, str], one: Shown) -> str:
    """Why a series is missing: by its own name, by that of its part, or because nothing was sampled."""
    for key in (f"{one.part}.{one.name}", f"{one.part}.0.{one.name}", one.name, one.part, "telemetry"):
        if key in reasons:
            return reasons[key]
    if one.part == "devices":
        return "the driver does not say"
    return "not sampled"


def _unit(name: str) -> str:
    return next((unit for suffix, unit in UNITS.items() if name.endswith(suffix)), "")


def text(name: str, value: float) -> str:
    """A figure in the unit that its name ends with, without the unit."""
    if name.endswith("_bytes_per_s"):
        return reading(value / 1e6) if value else "0"
    if name.endswith("_bytes"):
        return f"{value / MIB:,.0f}"
    if name.endswith(("_share", "_active")) or name == "utilization":
        return percent(value, 1)
    return f"{value:.2f}" if name.endswith("_cores") else f"{value:,.0f}"


def findings(scope: Scope) -> Iterator[Finding]:
    """Cells that wait for their data."""
    for group in scope.groups:
        for row in group.rows:
            share = row.cell.loader_stall_share if row.cell and row.cell.median_speed else None
            if share is not None and share > WAITS:
                yield Finding(
                    f"{row.framework} {row.topology} waits {percent(share)} of its time for data "
                    f"({group.precision} with {group.batch_text}): the figure measures reading as well. Put the data "
                    "on a faster disk, or compare with the extra `synthetic`.",
                    LOSS,
                )


TOPIC = grid_topic("use", "Use of the hardware", grid, findings=findings)
