"""One benchmark as the page's template prints it: its headline, its groups, and a section per topic."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from throughline.report.analysis.cells import STATUS_LABELS, Group, Note, switches
from throughline.report.render import head, inline, rows
from throughline.report.render.best import fastest, headline
from throughline.report.render.collected import Results, relative
from throughline.report.render.grid import Grid
from throughline.report.render.sheets import Table
from throughline.report.render.topics import TOPICS
from throughline.report.topics import Drawing, Scope, Topic


@dataclass(frozen=True)
class Section:
    """What a topic has on the page beside the groups."""

    name: str
    title: str
    intro: str
    grid: Grid | None
    table: Table | None
    remarks: Sequence[str]
    plots: Sequence[Markup]


@dataclass(frozen=True)
class View:
    """The page's view of groups: where their summaries lie, from where links start, and what else is on the page."""

    places: dict[tuple[str, str], Path]
    base: Path
    results: Results
    everything: Sequence[Group]

    def benchmarks(self, groups: Sequence[Group], prefix: str = "") -> list[dict[str, Any]]:
        """One entry per benchmark, in order."""
        by_name: dict[str, list[Group]] = {}
        for group in groups:
            by_name.setdefault(group.benchmark, []).append(group)
        return [self._benchmark(self._scope(parts), _identifier(prefix + name)) for name, parts in by_name.items()]

    def _scope(self, groups: Sequence[Group]) -> Scope:
        name = groups[0].benchmark
        largest = [one for one in self.results.largest if one.benchmark == name]
        checks = [one for one in self.results.checks if one.verdict.spec.benchmark == name]
        return Scope(groups, self.everything, largest, checks)

    def _benchmark(self, scope: Scope, identity: str) -> dict[str, Any]:
        findings = [one for topic in TOPICS for one in topic.findings(scope)]
        drawings = {topic.name: [one for one in topic.drawings(scope) if one.on_page] for topic in TOPICS}
        summaries = [group.summary for group in scope.groups if group.summary]
        beside = [one for every in drawings.values() for one in every if one.group]
        return {
            "id": identity,
            "name": scope.benchmark,
            "headline": headline(scope.groups),
            "figures": head.figures(fastest(scope.groups)),
            "further": sorted(findings, key=lambda one: one.order),
            "counts": counts(scope.groups),
            "goals": head.judged(scope.groups),
            "settings": head.settings(summaries[0]) if summaries else [],
            "remarks": list(dict.fromkeys(summary.remarks for summary in summaries if summary.remarks)),
            "groups": [self._group(scope, group, identity, beside) for group in scope.groups],
            "sections": [
                section for topic in TOPICS if (section := _section(topic, scope, identity, drawings[topic.name]))
            ],
        }

    def _group(self, scope: Scope, group: Group, identity: str, drawings: Iterable[Drawing]) -> dict[str, Any]:
        place = self.places.get((group.benchmark, group.name))
        notes: list[Note] = [note for topic in TOPICS for note in topic.notes(scope, group)]
        return {
            "id": f"{identity}-{group.name}",
            "title": f"{group.precision}, {group.batch_text}",
            "unit": group.unit,
            "subtitle": switches(group.summary) if group.summary else "",
            "rows": [
                {**rows.shown(group, row, place, self.link),
                 "series": group.frameworks.index(row.framework) % len(inline.PAGE.series),
                 "first": row == next(r for r in group.rows if r.framework == row.framework)}
                for row in group.rows
            ],
            "plots": [_plot(one, identity) for one in drawings if one.group is group],
            "notes": notes,
            "command": f"snakemake results/{group.benchmark}/{group.name}.json",
            "summary": self.link(place) if place and place.exists() else None,
        }  # fmt: skip

    def link(self, path: Path) -> str:
        return quote(relative(path, self.base))


def _section(topic: Topic, scope: Scope, identity: str, drawings: Iterable[Drawing]) -> Section | None:
    """A topic's own part of the page; None where it has nothing to show there."""
    grid, table = topic.grid(scope), topic.table(scope)
    plots = [_plot(one, identity) for one in drawings if one.group is None]
    grid = grid.condensed() if grid and (grid.known or grid.asked) else None
    table = table if table and table[1] else None
    if not (grid or table or plots):
        return None
    return Section(topic.name, topic.title, topic.intro, grid, table, list(topic.remarks(scope)), plots)


def _plot(drawing: Drawing, identity: str) -> Markup:
    return inline.figure(drawing.draw(inline.PAGE), f"{identity}-{drawing.name}", drawing.title, drawing.words)


def counts(groups: Sequence[Group]) -> list[tuple[str, str, int]]:
    """Cells by status: (status, label, how many)."""
    every = [row for group in groups for row in group.rows]
    labels = {**STATUS_LABELS, "ok": "measured"}
    return [(s, label, n) for s, label in labels.items() if (n := sum(row.status == s for row in every))]


def _identifier(text: str) -> str:
    return re.sub(r"[^a-z0-9_-]", "-", text.lower())
