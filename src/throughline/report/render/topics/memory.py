"""The table of memory: peak of a device per batch size, as needed, as reserved and as the card sees it; OOM rows."""

from __future__ import annotations

from throughline.records import Cell
from throughline.report.analysis.cells import Row
from throughline.report.numbers import MIB, mebibytes, percent
from throughline.report.render.grid import Column, Figure, Grid, lines
from throughline.report.render.sheets import Sheet, batch_heading, below, grid_topic
from throughline.report.topics import Scope

COLUMNS = (
    Column("peak_memory_bytes", "rank's peak", "MiB"),
    Column("needed_bytes", "needed", "MiB, framework"),
    Column("reserved_bytes", "reserved", "MiB, framework"),
    Column("device_used_bytes", "used", "MiB, device"),
    Column("device_total_bytes", "total", "MiB, device"),
    Column("device_used_share", "used", "share of total"),
)


def grid(scope: Scope) -> Grid:
    """A row per cell, in the order of batch sizes; a cell that ran out of memory says so."""
    notes = []
    if any(group.summary and group.summary.device and group.summary.device.kind == "cpu" for group in scope.groups):
        notes.append("on a CPU the device is the whole machine: what all of its processes use, and what it has")
    return Grid("memory", "Memory", COLUMNS, lines(scope.groups, _figures), notes=notes)


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


def sheet(scope: Scope) -> Sheet:
    """Peak memory per device in MiB, used / total where that is known.

    A row per batch size, precision and framework, a column per topology.
    """
    groups = scope.groups
    topologies = sorted({row.topology for group in groups for row in group.rows}, key=lambda t: (t.world, t))
    header = [batch_heading(groups), "precision", "framework", *map(str, topologies)]
    body = []
    for group in groups:
        for framework in group.frameworks:
            found = [group.row(framework, topology) for topology in topologies]
            texts = ["" if row is None else _used(row) for row in found]
            shown = next(row.shown for row in found if row)
            body.append([str(group.batch), group.precision, shown, *texts])
    return Sheet("Peak memory per device, MiB", (header, body), below(grid(scope).condensed()), spaced=True)


def _used(row: Row) -> str:
    if row.cell is None or not row.cell.n_ok:
        return row.label
    memory = row.cell.memory
    total = memory.device_total_bytes if memory else None
    return mebibytes(row.cell.peak_memory_bytes) + (f" / {mebibytes(total)}" if total else "")


TOPIC = grid_topic("memory", "Memory", grid, sheets=lambda scope: [sheet(scope)])
