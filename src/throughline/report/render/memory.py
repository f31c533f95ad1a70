"""The table of memory: peak of a device per batch size, as needed, as reserved and as the card sees it; OOM rows."""

from __future__ import annotations

from collections.abc import Sequence

from throughline.records import Cell
from throughline.report.analysis.cells import Group
from throughline.report.render.grid import Column, Figure, Grid, lines
from throughline.report.render.markup import MIB, percent

COLUMNS = (
    Column("peak_memory_bytes", "rank's peak", "MiB"),
    Column("needed_bytes", "needed", "MiB, framework"),
    Column("reserved_bytes", "reserved", "MiB, framework"),
    Column("device_used_bytes", "used", "MiB, device"),
    Column("device_total_bytes", "total", "MiB, device"),
    Column("device_used_share", "used", "share of total"),
)


def grid(groups: Sequence[Group]) -> Grid:
    """A row per cell, in the order of batch sizes; a cell that ran out of memory says so."""
    notes = []
    if any(group.summary and group.summary.device and group.summary.device.kind == "cpu" for group in groups):
        notes.append("on a CPU the device is the whole machine: what all of its processes use, and what it has")
    return Grid("memory", "Memory", COLUMNS, lines(groups, _figures), notes=notes)


def _figures(cell: Cell) -> list[Figure]:
    memory, peak = cell.memory, cell.peak_memory_bytes
    first = _mebibytes(peak, "the framework does not tell")
    if memory is None:
        return [first, *[Figure(why="the records are older than this figure")] * (len(COLUMNS) - 1)]
    used, total = memory.device_used_bytes, memory.device_total_bytes
    share = used / total if used and total else None
    names = ("needed_bytes", "reserved_bytes", "device_used_bytes", "device_total_bytes")
    why = memory.reasons.get("device_used_bytes") or memory.reasons.get("device_total_bytes")
    return [
        first,
        *(_mebibytes(getattr(memory, name), memory.reasons.get(name)) for name in names),
        Figure.of(share, percent(share), why),
    ]


def _mebibytes(count: int | None, why: str | None) -> Figure:
    return Figure.of(count, f"{(count or 0) / MIB:,.0f}", why)
