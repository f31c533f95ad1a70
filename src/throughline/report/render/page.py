"""results/report.html: one file with the answer, the tables, the plots and how all of it was measured.

It needs no network, no server and no JavaScript; with JavaScript its tables sort and filter. Whatever comes from
records is escaped, and the page's own policy forbids it to load or run anything that is not in the file.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from throughline import frameworks, workloads
from throughline.files import UserError, write_text
from throughline.records import MaxBatch, Summary, read_max_batch, read_summary
from throughline.report.analysis import cells, comparisons, split
from throughline.report.analysis.cells import STATUS_LABELS, STATUS_MEANINGS, Asked, Group, groups, switches
from throughline.report.render import (
    convergence,
    head,
    inline,
    markup,
    max_batch,
    plots,
    rows,
    sections,
    sentences,
    surroundings,
)

HERE = Path(__file__).parent
ISSUE_ORDER = ("oom", "unsupported", "invalid", "failed")


@dataclass
class Found:
    """What lies under results/."""

    present: dict[Path, Summary] = field(default_factory=dict)
    earlier: dict[Path, Summary] = field(default_factory=dict)
    unreadable: list[tuple[str, str]] = field(default_factory=list)
    largest: list[MaxBatch] = field(default_factory=list)
    checks: list[convergence.Check] = field(default_factory=list)


def write(
    results: Path, summaries: Sequence[Path], manifests: Sequence[Path], asked: Sequence[Asked] | None, output: Path
) -> None:
    """Write the report on `summaries` to `output`; other summaries under `results` are listed in their own section."""
    found = collect(results, summaries)
    write_text(output, render(found, results, manifests, asked, output))


def collect(results: Path, summaries: Sequence[Path]) -> Found:
    """Read the summaries that belong to the configuration, and find the others; nothing readable is fatal."""
    found = Found()
    present = {path.absolute() for path in summaries}
    others = sorted(path for path in results.glob("*/bz*_*.json") if path.absolute() not in present)
    for path in [*summaries, *others]:
        into = found.present if path.absolute() in present else found.earlier
        try:
            into[path] = read_summary(path)
        except (UserError, OSError, ValueError) as error:
            why = error.why if isinstance(error, UserError) and error.why else str(error)
            found.unreadable.append((_relative(path, results), markup.one_line(why)))
    found.largest = _readable(sorted(results.glob("*/max_batch_*.json")), read_max_batch, found, results)
    found.checks = _readable(sorted(results.glob("*/convergence_*.json")), convergence.read, found, results)
    return found


def _readable(paths: Sequence[Path], read: Callable[[Path], Any], found: Found, results: Path) -> list[Any]:
    """What `read` makes of every file; those of which it makes nothing are listed."""
    values = []
    for path in paths:
        try:
            values.append(read(path))
        except (UserError, OSError, ValueError) as error:
            why = error.why if isinstance(error, UserError) and error.why else str(error)
            found.unreadable.append((_relative(path, results), markup.one_line(why)))
    return values


def render(found: Found, results: Path, manifests: Sequence[Path], asked: Sequence[Asked] | None, output: Path) -> str:
    """The page as HTML text; links are relative to `output`."""
    places = {_key(summary): path for path, summary in {**found.earlier, **found.present}.items()}
    view = _View(places, output.parent, found)
    now = groups(found.present.values(), asked)
    before = groups(found.earlier.values())
    view.everything, view.floors = [*now, *before], comparisons.floors([*now, *before])
    benchmarks = view.benchmarks(now)
    everything = [*found.present.values(), *found.earlier.values()]
    columns, facts = surroundings.environments(everything)
    logs = [path.with_suffix("") / log for path, s in found.present.items() for log in _logs(s)]
    script = (HERE / "report.js").read_text(encoding="utf-8")
    environment = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template("report.html.j2").render(
        largest_header=max_batch.HEADER,
        style=Markup((HERE / "report.css").read_text(encoding="utf-8")),
        script=Markup(script),
        script_digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        benchmarks=benchmarks,
        earlier=view.benchmarks(before, prefix="earlier-"),
        unreadable=found.unreadable,
        columns=columns,
        facts=facts,
        corpora=surroundings.corpora(manifests),
        span=surroundings.span(logs),
        configurations=surroundings.configurations(logs),
        devices=list(dict.fromkeys(s.device.name for s in found.present.values() if s.device)),
        issues=_issues(now),
        meanings=[(STATUS_LABELS[status], STATUS_MEANINGS[status]) for status in ISSUE_ORDER],
        counts=_counts(now),
        features=_features(now),
    )


def _features(found: Sequence[Group]) -> tuple[list[str], list[tuple[str, list[bool]]]]:
    """Frameworks, with their workload where there are several, and for every feature which of them offer it."""
    models = workloads.models()
    pairs = {
        (name, models[group.summary.model]): frameworks.features(name, group.summary.model)
        for group in found
        for name in group.frameworks
        if group.summary and group.summary.model in models and name in frameworks.NAMES
    }
    several = len({folder for _, folder in pairs}) > 1
    names = [f"{name}, {folder}" if several else name for name, folder in pairs]
    offered = [(words, [key in one for one in pairs.values()]) for key, words in frameworks.FEATURES.items()]
    return names, offered


class _View:
    """Groups as what the template prints."""

    def __init__(self, places: dict[tuple[str, str], Path], base: Path, found: Found) -> None:
        self.places, self.base, self.found = places, base, found
        self.everything: list[Group] = []
        self.floors: comparisons.Floors = {}

    def benchmarks(self, found: Sequence[Group], prefix: str = "") -> list[dict[str, Any]]:
        """One entry per benchmark, in order."""
        by_name: dict[str, list[Group]] = {}
        for group in found:
            by_name.setdefault(group.benchmark, []).append(group)
        return [self._benchmark(name, parts, by_name, prefix) for name, parts in by_name.items()]

    def _benchmark(self, name: str, parts: list[Group], by_name: dict[str, list[Group]], prefix: str) -> dict[str, Any]:
        identity = _identifier(prefix + name)
        origin, _, extra = name.partition("__")
        compared = sentences.compared_with_origin(parts, by_name.get(origin, []), extra) if extra else None
        best = sentences.fastest(parts)
        summaries = [group.summary for group in parts if group.summary]
        comparable = len({group.precision for group in parts if any(group.series(f) for f in group.frameworks)}) > 1
        return {
            "id": identity,
            "name": name,
            "headline": sentences.headline(parts),
            "figures": head.figures(best),
            "further": [
                *([sentences.Finding(compared)] if compared else []),
                *sentences.further(parts, self.everything, self.floors),
            ],
            "counts": _counts(parts),
            "settings": head.settings(summaries[0]) if summaries else [],
            "remarks": list(dict.fromkeys(s.remarks for s in summaries if s.remarks)),
            "groups": [self._group(group, f"{identity}-{group.name}", by_name) for group in parts],
            "precisions": self._precisions(parts, identity) if comparable else [],
            **sections.of(parts, self.everything, self.floors),
            "largest": max_batch.rows(one for one in self.found.largest if one.benchmark == name),
            "checks": convergence.table([one.verdict for one in self._checks(name)]),
            "check_plots": [
                inline.figure(
                    convergence.draw(one, inline.PAGE),
                    f"{identity}-convergence-{index}",
                    f"{name}: convergence",
                    convergence.describe(one),
                )
                for index, one in enumerate(self._checks(name))
                if one.curve
            ],
        }

    def _checks(self, name: str) -> list[convergence.Check]:
        return [one for one in self.found.checks if one.verdict.spec.benchmark == name]

    def _precisions(self, parts: list[Group], identity: str) -> list[Markup]:
        measured = sentences.measured(parts)
        return [
            inline.figure(
                plots.precisions(parts, inline.PAGE, only=framework),
                f"{identity}-precisions-{index}",
                f"{framework}: throughput per device by precision",
                " ".join(
                    f"{best.row.topology} {best.group.precision} batch {best.group.batch}: "
                    f"{markup.reading(best.speed / best.row.topology.world)} samples/s."
                    for best in measured
                    if best.row.framework == framework
                ),
            )
            for index, framework in enumerate(dict.fromkeys(best.row.framework for best in measured))
        ]

    def _group(self, group: Group, identity: str, by_name: dict[str, list[Group]]) -> dict[str, Any]:
        place = self.places.get((group.benchmark, group.name))
        shown = any(group.series(framework) for framework in group.frameworks)
        scales = any(
            row.cell and row.cell.speedup and row.topology.world > 1 for name in group.frameworks
            for row in group.series(name)
        )  # fmt: skip
        drawings = {"throughput": plots.throughput} | ({"speedup": plots.speedup} if scales else {})
        parts = split.split(group, [other for groups in by_name.values() for other in groups])
        return {
            "id": identity,
            "title": f"{group.precision}, batch {group.batch} per device",
            "subtitle": switches(group.summary) if group.summary else "",
            "rows": [
                {**rows.shown(row, place, self._link),
                 "series": group.frameworks.index(row.framework) % len(inline.PAGE.series),
                 "first": row == next(r for r in group.rows if r.framework == row.framework)}
                for row in group.rows
            ],
            "plots": [
                inline.figure(
                    draw(group, inline.PAGE), f"{identity}-{what}", f"{group.benchmark}: {what}, {group.precision}, "
                    f"batch {group.batch} per device", inline.describe(group, what),
                )
                for what, draw in drawings.items() if shown
            ] + ([inline.figure(split.draw(group, parts, inline.PAGE), f"{identity}-split",
                                f"{group.benchmark}: where a step's time goes", split.describe(parts))]
                 if parts else []),
            "notes": [*cells.notes(group), *(cells.Note(where, text, "split") for where, text in split.notes(parts))],
            "command": f"snakemake results/{group.benchmark}/{group.name}.json",
            "summary": self._link(place) if place and place.exists() else None,
        }  # fmt: skip

    def _link(self, path: Path) -> str:
        return quote(_relative(path, self.base))


def _issues(found: Sequence[Group]) -> list[dict[str, str]]:
    """Every cell without a figure, with its reason and what to do."""
    return [
        {
            "where": f"{group.benchmark}, {group.precision}, batch {group.batch}, {row.framework}, {row.topology}",
            "label": row.label,
            "status": row.status,
            "why": "; ".join(row.cell.reasons) if row.cell and row.cell.reasons else STATUS_MEANINGS[row.status],
        }
        for group in found
        for row in group.rows
        if row.status in STATUS_MEANINGS
    ]


def _counts(found: Sequence[Group]) -> list[tuple[str, str, int]]:
    """Cells by status: (status, label, how many)."""
    rows = [row for group in found for row in group.rows]
    labels = {**STATUS_LABELS, "ok": "measured"}
    return [(s, label, n) for s, label in labels.items() if (n := sum(row.status == s for row in rows))]


def _key(summary: Summary) -> tuple[str, str]:
    return summary.benchmark, f"bz{summary.batch}_{summary.precision}"


def _logs(summary: Summary) -> list[str]:
    return [log for series in summary.frameworks.values() for cell in series.values() for log in cell.logs]


def _relative(path: Path, base: Path) -> str:
    return Path(os.path.relpath(path, base)).as_posix()


def _identifier(text: str) -> str:
    return re.sub(r"[^a-z0-9_-]", "-", text.lower())
