"""When an acceptance was measured: figures of different days are no figures of one fleet."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from throughline.acceptance.measured import Run

APART_H = 12
"""Figures that lie further apart than this get a remark. Those of two nights do, and those of one acceptance do not."""


def of_node(runs: Sequence[Run], node: int) -> str | None:
    """Return the days of a node's own figures, such as `2026-11-01`; None if it has none."""
    days = sorted({run.record.ended[:10] for run in runs if run.measurement.place.nodes == (node,)})
    return " to ".join(dict.fromkeys([days[0], days[-1]])) if days else None


def apart(runs: Sequence[Run]) -> str | None:
    """Return a remark about figures that lie far apart; None if they do not."""
    if not runs:
        return None
    first, last = min(run.record.started for run in runs), max(run.record.ended for run in runs)
    hours = (datetime.fromisoformat(last) - datetime.fromisoformat(first)).total_seconds() / 3600
    if hours <= APART_H:
        return None
    return (
        f"the figures lie up to {hours:.0f} hours apart ({first[:10]} to {last[:10]}): what has changed meanwhile may "
        "look like a slow place; --forcerun accept_visit measures everything again"
    )
