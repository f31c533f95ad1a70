"""results/report.html: one file with the answer, the tables, the plots and how all of it was measured.

It needs no network, no server and no JavaScript; with JavaScript its tables sort and filter. Whatever comes from
records is escaped, and the page's own policy forbids it to load or run anything that is not in the file.
"""

from __future__ import annotations

import base64
import hashlib
import os
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
from throughline.report import numbers
from throughline.report.analysis.cells import STATUS_LABELS, STATUS_MEANINGS, Asked, Group, groups
from throughline.report.analysis.summary import summarize
from throughline.report.render import benchmark, inline, markup, surroundings
from throughline.report.render.topics import checks
from throughline.report.topics import Scope

HERE = Path(__file__).parent


@dataclass
class Results:
    """What lies under results/: the summaries of the configuration, others, searches and checks."""

    present: dict[Path, Summary] = field(default_factory=dict)
    earlier: dict[Path, Summary] = field(default_factory=dict)
    unreadable: list[tuple[str, str]] = field(default_factory=list)
    largest: list[MaxBatch] = field(default_factory=list)
    checks: list[checks.Check] = field(default_factory=list)

    def scope(self, parts: Sequence[Group], everything: Sequence[Group]) -> Scope:
        """What there is to tell of the groups of one benchmark."""
        name = parts[0].benchmark
        largest = [search for search in self.largest if search.benchmark == name]
        return Scope(parts, everything, largest, [one for one in self.checks if one.verdict.spec.benchmark == name])


def collect(results: Path, summaries: Sequence[Path]) -> Results:
    """Read the summaries that belong to the configuration, and find the others; nothing readable is fatal."""
    present = {path.absolute() for path in summaries}
    collected = Results()

    def readable(paths: Sequence[Path], read: Callable[[Path], Any]) -> dict[Path, Any]:
        """What `read` makes of every file; those of which it makes nothing are listed."""
        values = {}
        for path in paths:
            try:
                values[path] = read(path)
            except (UserError, OSError, ValueError) as error:
                why = error.why if isinstance(error, UserError) and error.why else str(error)
                collected.unreadable.append((_relative(path, results), markup.one_line(why)))
        return values

    collected.present = readable(summaries, read_summary)
    others = [path for path in sorted(results.glob("*/bz*_*.json")) if path.absolute() not in present]
    collected.earlier = readable(others, read_summary)
    collected.largest = list(readable(sorted(results.glob("*/max_batch_*.json")), read_max_batch).values())
    collected.checks = list(readable(sorted(results.glob("*/convergence_*.json")), checks.read).values())
    return collected


def write(
    results: Path, summaries: Sequence[Path], manifests: Sequence[Path], asked: Sequence[Asked] | None, output: Path
) -> None:
    """Write the report on `summaries` to `output`; other summaries under `results` are listed in their own section."""
    write_text(output, render(collect(results, summaries), manifests, asked, output))


def write_incomplete(results: Path, asked: Sequence[Asked], output: Path) -> int:
    """Write the report of a workflow that did not finish: what is measured so far, and what is missing as failed.

    Summaries are made in memory: under its name a summary always stands for every repeat. Returns the number of
    records that there are; 0: there is none, nothing is written.
    """
    collected, count = Results(), 0
    for cell in asked:
        place = results / cell.benchmark / f"bz{cell.batch}_{cell.precision}"
        records = sorted(place.glob("*/*/run*.json"))
        count += len(records)
        if records:
            try:
                collected.present[place.with_suffix(".json")] = summarize(records, cell.repeats)
            except UserError as error:
                collected.unreadable.append((f"{cell.benchmark}/{place.name}", markup.one_line(str(error))))
    if count:
        write_text(output, render(collected, [], asked, output))
    return count


def render(results: Results, manifests: Sequence[Path], asked: Sequence[Asked] | None, output: Path) -> str:
    """The page as HTML text; links are relative to `output`."""
    now, before = groups(results.present.values(), asked), groups(results.earlier.values())
    places = {_key(summary): path for path, summary in {**results.earlier, **results.present}.items()}
    columns, facts = surroundings.environments([*results.present.values(), *results.earlier.values()])
    logs = [path.with_suffix("") / log for path, s in results.present.items() for log in _logs(s)]
    script = (HERE / "report.js").read_text(encoding="utf-8")

    def benchmarks(parts: Sequence[Group], prefix: str = "") -> list[dict[str, Any]]:
        """One entry per benchmark, in order."""
        names = dict.fromkeys(group.benchmark for group in parts)
        own = ([group for group in parts if group.benchmark == name] for name in names)
        return [benchmark.shown(results.scope(every, [*now, *before]), prefix) for every in own]

    environment = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    readers = (numbers.reading, numbers.percent, numbers.mebibytes, numbers.span, inline.strip)
    words = (benchmark.scatter, benchmark.others, benchmark.repeat)
    environment.filters |= {reader.__name__: reader for reader in (*readers, *words)}
    return environment.get_template("report.html.j2").render(
        style=Markup((HERE / "report.css").read_text(encoding="utf-8")),
        script=Markup(script),
        script_digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        benchmarks=benchmarks(now),
        earlier=benchmarks(before, prefix="earlier-"),
        place=lambda group: places.get((group.benchmark, group.name)),
        link=lambda path: quote(_relative(path, output.parent)),
        unreadable=results.unreadable,
        columns=columns,
        facts=facts,
        data=surroundings.data(manifests),
        span=surroundings.span(logs),
        configurations=surroundings.configurations(logs),
        devices=list(dict.fromkeys(s.device.name for s in results.present.values() if s.device)),
        issues=[(group, row) for group in now for row in group.rows if row.status in STATUS_MEANINGS],
        labels=STATUS_LABELS,
        meanings=STATUS_MEANINGS,
        counts=_counts(now),
        features=_features(now),
    )


def _counts(groups: Sequence[Group]) -> list[tuple[str, str, int]]:
    """Cells by status: (status, label, how many)."""
    every = [row.status for group in groups for row in group.rows]
    labels = {**STATUS_LABELS, "ok": "measured"}
    return [(status, label, every.count(status)) for status, label in labels.items() if status in every]


def _features(measured: Sequence[Group]) -> tuple[list[str], list[tuple[str, list[bool]]]]:
    """Frameworks, with their workload where there are several, and for every feature which of them offer it."""
    models = workloads.models()
    pairs = {
        (name, models[group.summary.model]): frameworks.features(name, group.summary.model)
        for group in measured
        for name in group.frameworks
        if group.summary and group.summary.model in models and name in frameworks.NAMES
    }
    several = len({folder for _, folder in pairs}) > 1
    names = [f"{name}, {folder}" if several else name for name, folder in pairs]
    return names, [(words, [key in one for one in pairs.values()]) for key, words in frameworks.FEATURES.items()]


def _key(summary: Summary) -> tuple[str, str]:
    return summary.benchmark, f"bz{summary.batch}_{summary.precision}"


def _logs(summary: Summary) -> list[str]:
    return [log for series in summary.frameworks.values() for cell in series.values() for log in cell.logs]


def _relative(path: Path, base: Path) -> str:
    return Path(os.path.relpath(path, base)).as_posix()
