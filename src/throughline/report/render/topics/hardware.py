"""The tables of what the hardware held, did and reached in a cell: memory, use over the timed window, work done."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import NamedTuple

from throughline.records import Cell, Series
from throughline.report.analysis.cells import Row
from throughline.report.numbers import MIB, mebibytes, percent, reading, scaled
from throughline.report.render.grid import OLD, Column, Figure, Grid, Reader, lines, read
from throughline.report.render.sheets import Sheet, batch_heading
from throughline.report.topics import LOSS, Finding, Scope, Topic

MEMORY_COLUMNS = (
    Column("peak_memory_bytes", "rank's peak", "MiB"),
    Column("needed_bytes", "needed", "MiB, framework"),
    Column("reserved_bytes", "reserved", "MiB, framework"),
    Column("device_used_bytes", "used", "MiB, device"),
    Column("device_total_bytes", "total", "MiB, device"),
    Column("device_used_share", "used", "share of total"),
)
WORK_COLUMNS = (
    Column("flops_per_sample", "FLOPs", "per sample"),
    Column("flops_per_s_per_device", "FLOP/s", "per device"),
    Column("datasheet_flops_per_s", "peak", "datasheet"),
    Column("mfu", "MFU", "share of peak"),
    Column("matmul_flops_per_s", "matmul", "measured"),
    Column("matmul_share", "share of matmul"),
    Column("real_tokens_per_s", "real tokens/s", "all devices"),
    Column("real_token_share", "real tokens", "of positions"),
)
share = partial(percent, places=1)
WORK: dict[str, Reader] = {
    "flops_per_sample": scaled,
    "flops_per_s": scaled,
    "datasheet_flops_per_s": scaled,
    "mfu": share,
    "matmul_flops_per_s": scaled,
    "matmul_share": share,
    "real_tokens_per_s": reading,
    "real_token_share": share,
}
"""Fields of a cell's work in the order of WORK_COLUMNS, and how they are read."""
CONVENTIONS = {
    "flops": "FLOPs",
    "head_positions": "vocabulary head",
    "tokens": "positions",
    "real_tokens": "real tokens",
}
"""Conventions that the page names otherwise."""
WAITS = 0.05
"""Share of the time that is worth a finding."""


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
UNITS = {"_bytes_per_s": "MB/s", "_bytes": "MiB", "_mhz": "MHz", "_w": "W", "_c": "°C", "_cores": "cores"}


def memory(scope: Scope) -> Grid:
    """Peak of a device per batch size, as needed, as reserved and as the card sees it; a cell out of memory says so."""
    on_cpu = any(
        group.summary and group.summary.device and group.summary.device.kind == "cpu" for group in scope.groups
    )
    note = "on a CPU the device is the whole machine: what all of its processes use, and what it has"
    return Grid(MEMORY_COLUMNS, lines(scope.groups, _memory), notes=[note] if on_cpu else [])


def _memory(cell: Cell) -> list[Figure]:
    held = cell.memory
    used, total = (held.device_used_bytes, held.device_total_bytes) if held else (None, None)
    why = held.reasons.get("device_used_bytes") or held.reasons.get("device_total_bytes") if held else OLD
    names = ("needed_bytes", "reserved_bytes", "device_used_bytes", "device_total_bytes")
    return [
        Figure.of(cell.peak_memory_bytes, _mebibytes, "the framework does not tell"),
        *read(held, dict.fromkeys(names, _mebibytes)),
        Figure.of(used / total if used and total else None, percent, why),
    ]


def _mebibytes(count: float) -> str:
    return f"{count / MIB:,.0f}"


def memory_sheet(scope: Scope) -> Sheet:
    """Peak memory per device in MiB, used / total where that is known.

    A row per batch size, precision and framework, a column per topology.
    """
    groups = scope.groups
    topologies = sorted({row.topology for group in groups for row in group.rows}, key=lambda t: (t.world, t))
    header = [batch_heading(groups), "precision", "framework", *map(str, topologies)]
    body = []
    for group in groups:
        for framework in group.frameworks:
            rows = [group.row(framework, topology) for topology in topologies]
            shown = next(row.shown for row in rows if row)
            body.append([str(group.batch), group.precision, shown, *(_peak(row) if row else "" for row in rows)])
    return Sheet("Peak memory per device, MiB", (header, body), memory(scope).condensed().below, spaced=True)


def _peak(row: Row) -> str:
    if row.cell is None or not row.cell.n_ok:
        return row.label
    total = row.cell.memory.device_total_bytes if row.cell.memory else None
    return mebibytes(row.cell.peak_memory_bytes) + (f" / {mebibytes(total)}" if total else "")


def work(scope: Scope) -> Grid:
    """FLOPs, shares of the peaks, real tokens; every convention below."""
    conventions: dict[str, dict[str, None]] = {}
    for cell in (row.cell for group in scope.groups for row in group.rows if row.cell):
        for name, text in (cell.work.convention if cell.work else {}).items():
            conventions.setdefault(name, {})[text] = None
    facts = [(CONVENTIONS.get(name, name), "; or ".join(texts)) for name, texts in conventions.items()]
    return Grid(WORK_COLUMNS, lines(scope.groups, lambda cell: read(cell.work, WORK)), facts)


def use(scope: Scope) -> Grid:
    """Means over the window of devices, processes and the machine; a figure's title says its least and its most."""
    columns = [
        Column("gpu_busy_share", "GPUs busy"),
        Column("worker_threads_busy_share", "threads busy", "of workers"),
        Column("waiting_for_data_share", "waiting", "for data"),
        *(_column(one) for one in SERIES),
        Column("throttle_reasons", "throttled by"),
        Column("telemetry_cpu_share", "telemetry", "CPU cost"),
    ]
    note = "means over the timed window, over nodes, devices and repeats; a figure's title says the extremes"
    return Grid(columns, lines(scope.groups, _use), notes=[note])


def _column(one: Shown) -> Column:
    unit = next((unit for suffix, unit in UNITS.items() if one.name.endswith(suffix)), "")
    small = ", ".join(word for word in (one.of, unit) if word)
    return Column(f"{one.part}_{one.name}_mean", one.heading or one.name, small, minor=not one.heading)


def _use(cell: Cell) -> list[Figure]:
    use, shares = cell.use, cell.utilization
    reasons = use.reasons if use else dict.fromkeys(("devices", "telemetry"), OLD)
    no_gpu = reasons.get("devices") or "the run used no GPU"
    throttled = use.throttle_reasons if use else None
    causes = None if throttled is None else ", ".join(throttled)
    return [
        Figure.of(shares.gpu if shares else None, percent, no_gpu),
        Figure.of(shares.cpu if shares else None, percent, OLD),
        Figure.of(cell.loader_stall_share, share, "nothing is read: made-up batches"),
        *(_series(cell, one) for one in SERIES),
        Figure.of(causes, lambda names: names or "nothing", no_gpu),
        Figure.of(
            use.cost_cpu_share if use else None, partial(percent, places=2), reasons.get("telemetry") or "not sampled"
        ),
    ]


def _series(cell: Cell, one: Shown) -> Figure:
    if cell.use is None:
        return Figure(why=OLD)
    part: Mapping[str, Series | None] = getattr(cell.use, one.part)
    series = part.get(one.name)
    if series is None:
        no_gpu = one.part == "devices" and not part and not cell.use.reasons
        return Figure(why="the run used no GPU" if no_gpu else _reason(cell.use.reasons, one))
    mean, least, most = (_text(one.name, value) for value in (series.mean, series.min, series.max))
    return Figure(mean, series.mean, f"{least} to {most}")


def _reason(reasons: Mapping[str, str], one: Shown) -> str:
    """Why a series is missing: by its own name, by that of its part, or because nothing was sampled."""
    for key in (f"{one.part}.{one.name}", f"{one.part}.0.{one.name}", one.name, one.part, "telemetry"):
        if key in reasons:
            return reasons[key]
    return "the driver does not say" if one.part == "devices" else "not sampled"


def _text(name: str, value: float) -> str:
    """A figure in the unit that its name ends with, without the unit."""
    if name.endswith("_bytes_per_s"):
        return reading(value / 1e6) if value else "0"
    if name.endswith("_bytes"):
        return _mebibytes(value)
    if name.endswith(("_share", "_active")):
        return percent(value, 1)
    return f"{value:.2f}" if name.endswith("_cores") else f"{value:,.0f}"


def waiting(scope: Scope) -> Iterator[Finding]:
    """Cells that wait for their data."""
    for group in scope.groups:
        for row in group.rows:
            waits = row.cell.loader_stall_share if row.cell and row.cell.median_speed else None
            if waits is not None and waits > WAITS:
                yield Finding(
                    f"{row.framework} {row.topology} waits {percent(waits)} of its time for data "
                    f"({group.precision} with {group.batch_text}): the figure measures reading as well. Put the data "
                    "on a faster disk, or compare with the extra `synthetic`.",
                    LOSS,
                )


TOPICS = (
    Topic("memory", "Memory", grid=memory, sheets=lambda scope: [memory_sheet(scope)]),
    Topic("use", "Use of the hardware", grid=use, findings=waiting),
    Topic("work", "Work done", grid=work),
)
