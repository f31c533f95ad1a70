"""A row of the results table, as the template prints it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from throughline.records import Cell
from throughline.report import numbers
from throughline.report.analysis.cells import STATUS_LABELS, STATUS_MEANINGS, Group, Row
from throughline.report.render import inline


def shown(group: Group, row: Row, place: Path | None, link: Callable[[Path], str]) -> dict[str, Any]:
    """What the template prints of `row`; its logs lie beside the summary at `place`."""
    cell = row.cell
    logs = [(_repeat(log), link(place.with_suffix("") / log)) for log in cell.logs] if cell and place else []
    return {
        "framework": row.shown,
        "topology": str(row.topology),
        "nodes": row.topology.nodes,
        "devices": row.topology.world,
        "status": row.status,
        "label": row.label,
        "meaning": STATUS_MEANINGS.get(row.status, ""),
        "others": _others(row),
        "median": cell.median_speed if cell else None,
        "average": cell.average_speed if cell else None,
        "lowest": cell.min if cell else None,
        "highest": cell.max if cell else None,
        "speedup": cell.speedup if cell else None,
        "efficiency": cell.efficiency if cell else None,
        "memory_bytes": cell.peak_memory_bytes if cell else None,
        "n": cell.n if cell else None,
        "n_ok": cell.n_ok if cell else 0,
        "reading": {
            "median": numbers.reading(cell.median_speed if cell else None),
            "average": numbers.reading(cell.average_speed if cell else None),
            "lowest": numbers.reading(cell.min if cell else None),
            "highest": numbers.reading(cell.max if cell else None),
            "efficiency": numbers.percent(cell.efficiency if cell else None),
            "speedup_range": _range(cell.speedup_range if cell else None),
            "scatter": _scatter(cell),
            "memory": numbers.mebibytes(cell.peak_memory_bytes if cell else None),
        },
        "strip": inline.strip(cell, group.unit) if cell else None,
        "logs": logs,
        "warned": bool(cell and cell.warnings),
    }


def _range(ends: Sequence[float] | None) -> str:
    return f"{ends[0]:.2f} to {ends[1]:.2f}" if ends else ""


def _scatter(cell: Cell | None) -> str:
    """How far the repeats lie apart, in two figures."""
    if cell is None or cell.median_absolute_deviation is None:
        return ""
    deviation = cell.median_absolute_deviation
    text = f"{deviation:.2g}" if deviation < 100 else f"{deviation:,.0f}"
    return f"MAD {text}, CV {numbers.percent(cell.coefficient_of_variation, 1)}"


def _others(row: Row) -> str:
    """The statuses of repeats that are not ok, such as `2 invalid, 1 failed`."""
    if row.cell is None:
        return ""
    parts = [f"{n} {STATUS_LABELS.get(s, s)}" for s, n in row.cell.statuses.items() if s != "ok"]
    missing = row.cell.n - sum(row.cell.statuses.values())
    return ", ".join([*parts, *([f"{missing} missing"] if missing > 0 else [])])


def _repeat(log: str) -> str:
    found = re.search(r"run(\d+)\.log$", log)
    return found[1] if found else "log"
