"""One benchmark as the page's template prints it: its headline, its groups, and a section per topic."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from markupsafe import Markup

from throughline.records import Cell
from throughline.report.analysis.cells import STATUS_LABELS, Group, switches
from throughline.report.numbers import percent
from throughline.report.render import head, inline
from throughline.report.render.topics import TOPICS
from throughline.report.topics import Drawing, Scope, Topic


def shown(scope: Scope, prefix: str) -> dict[str, Any]:
    """What the template prints of one benchmark; `prefix` makes its ids unique."""
    identity = re.sub(r"[^a-z0-9_-]", "-", f"{prefix}{scope.benchmark}".lower())
    drawings = {topic.name: [one for one in topic.drawings(scope) if one.on_page] for topic in TOPICS}
    beside = [one for every in drawings.values() for one in every]
    findings = (one for topic in TOPICS for one in topic.findings(scope))
    sections = (_section(topic, scope, identity, drawings[topic.name]) for topic in TOPICS)
    summaries = [group.summary for group in scope.groups if group.summary]
    return {
        "id": identity,
        "name": scope.benchmark,
        "headline": head.headline(scope.groups),
        "figures": head.figures(head.fastest(scope.groups)),
        "further": sorted(findings, key=lambda one: one.order),
        "goals": head.judged(scope.groups),
        "settings": head.settings(summaries[0]) if summaries else [],
        "remarks": list(dict.fromkeys(summary.remarks for summary in summaries if summary.remarks)),
        "groups": [_group(scope, group, identity, beside) for group in scope.groups],
        "sections": [section for section in sections if section],
    }


def _group(scope: Scope, group: Group, identity: str, drawings: Iterable[Drawing]) -> dict[str, Any]:
    return {
        "group": group,
        "id": f"{identity}-{group.name}",
        "title": f"{group.precision}, {group.batch_text}",
        "subtitle": switches(group.summary) if group.summary else "",
        "plots": _plots(drawings, identity, group),
        "notes": [note for topic in TOPICS for note in topic.notes(scope, group)],
        "command": f"snakemake results/{group.benchmark}/{group.name}.json",
    }


def _section(topic: Topic, scope: Scope, identity: str, drawings: Sequence[Drawing]) -> dict[str, Any] | None:
    """What a topic has on the page beside the groups; None where it has nothing to show there."""
    grid, table, plots = topic.grid(scope), topic.table(scope), _plots(drawings, identity, None)
    grid = grid.condensed() if grid and (grid.known or grid.asked) else None
    table = table if table and table[1] else None
    if not (grid or table or plots):
        return None
    return {"topic": topic, "grid": grid, "table": table, "plots": plots, "remarks": list(topic.remarks(scope))}


def _plots(drawings: Iterable[Drawing], identity: str, group: Group | None) -> list[Markup]:
    """Those that stand beside `group`'s table, drawn; None: beside none."""
    return [
        inline.figure(one.draw(inline.PAGE), f"{identity}-{one.name}", one.title, one.words)
        for one in drawings
        if one.group is group
    ]


def scatter(cell: Cell) -> str:
    """How far the repeats lie apart, in two figures."""
    deviation = cell.median_absolute_deviation
    if deviation is None:
        return ""
    text = f"{deviation:.2g}" if deviation < 100 else f"{deviation:,.0f}"
    return f"MAD {text}, CV {percent(cell.coefficient_of_variation, 1)}"


def others(cell: Cell) -> str:
    """The statuses of repeats that are not ok, such as `2 invalid, 1 failed`."""
    parts = [f"{n} {STATUS_LABELS.get(status, status)}" for status, n in cell.statuses.items() if status != "ok"]
    missing = cell.n - sum(cell.statuses.values())
    return ", ".join([*parts, *([f"{missing} missing"] if missing > 0 else [])])


def repeat(log: str) -> str:
    """The number of the repeat that wrote a log."""
    named = re.search(r"run(\d+)\.log$", log)
    return named[1] if named else "log"
