"""results/report.html: one file with the answer, the tables, the plots and a description of how it was measured.

The page needs no network, no server and no JavaScript. With JavaScript its tables sort and filter. It holds the
summaries as data, so that a copy is complete. All text from records is escaped. The page's own policy forbids it to
load or run anything that is not in the file.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from throughline.files import UserError, json_text, snakemake, write_text
from throughline.records import (
    Compared,
    Imported,
    MaxBatch,
    Predictions,
    Result,
    Summary,
    read_compared,
    read_imported,
    read_max_batch,
    read_predictions,
    read_summary,
)
from throughline.records.acceptance import Acceptance
from throughline.report import answers
from throughline.report.analysis import derived_runs
from throughline.report.analysis.cells import Asked, Group, groups
from throughline.report.analysis.summary import summarize
from throughline.report.analysis.titles import switches
from throughline.report.render import (
    acceptance,
    archives,
    framework_table,
    head,
    imports,
    markup,
    missing_figures,
    overview,
    run_environment,
    sparks,
    tables,
)
from throughline.report.render.plots import PAGE, inline
from throughline.report.render.run_logs import RunLogs
from throughline.report.topic import Drawing, Scope, Topic
from throughline.report.topics import TOPICS, convergence, throughput
from throughline.report.topics import drawings as drawn
from throughline.study.config import block_name

HERE = Path(__file__).parent


@dataclass
class Results:
    """The files under results/: the summaries of the configuration, other summaries, searches and checks."""

    present: dict[Path, Summary] = field(default_factory=dict)
    earlier: dict[Path, Summary] = field(default_factory=dict)
    unreadable: list[tuple[str, str]] = field(default_factory=list)
    largest: list[MaxBatch] = field(default_factory=list)
    checks: list[convergence.Check] = field(default_factory=list)
    imports: list[Imported] = field(default_factory=list)
    archives: list[Compared] = field(default_factory=list)
    predictions: list[Predictions] = field(default_factory=list)
    accepted: list[Acceptance] = field(default_factory=list)


def collect(
    results: Path,
    summaries: Sequence[Path],
    imports: Sequence[Path] = (),
    archives: Sequence[Path] = (),
    predictions: Sequence[Path] = (),
) -> Results:
    """Read the summaries that belong to the configuration, and find the others. Unreadable files are listed."""
    present, unreadable = {path.absolute() for path in summaries}, []

    def readable(paths: Iterable[Path], read: Callable[[Path], Any]) -> dict[Path, Any]:
        """Map each file to what `read` returns. Files that cannot be read are added to `unreadable`."""
        values = {}
        for path in paths:
            try:
                values[path] = read(path)
            except (UserError, OSError, ValueError) as error:
                reason = error.why if isinstance(error, UserError) and error.why else str(error)
                unreadable.append((os.path.relpath(path, results), markup.one_line(reason)))
        return values

    return Results(
        readable(summaries, read_summary),
        readable(
            (path for path in sorted(results.glob("*/bz*_*.json")) if path.absolute() not in present), read_summary
        ),
        unreadable,
        [*readable(sorted(results.glob("*/max_*_*.json")), read_max_batch).values()],
        [*readable(sorted(results.glob("*/convergence_*.json")), convergence.read).values()],
        [*readable(imports, read_imported).values()],
        [*readable(archives, read_compared).values()],
        [*readable(predictions, read_predictions).values()],
    )


def write(
    results: Path,
    summaries: Sequence[Path],
    manifests: Sequence[Path],
    asked: Sequence[Asked] | None,
    output: Path,
    imports: Sequence[Path] = (),
    note: str = "",
) -> None:
    """Write the report on `summaries` to `output`. Other summaries under `results` have a section of their own.

    `note` is shown at the top of the page.
    """
    write_text(output, render(collect(results, summaries, imports), manifests, asked, output, note))


def write_comparison(compared: Path, output: Path) -> None:
    """Write a page that has nothing but results/compare.json."""
    write_text(output, render(Results(archives=[read_compared(compared)]), [], None, output))


def write_acceptance(accepted: Acceptance, output: Path) -> None:
    """Write a page that has nothing but an acceptance. Its first line is the verdict."""
    write_text(output, render(Results(accepted=[accepted]), [], None, output, accepted.summary))


def write_incomplete(results: Path, asked: Sequence[Asked], output: Path) -> int:
    """Write the report of a workflow that did not finish. Cells that were not measured count as failed.

    The summaries stay in memory, because a summary file always stands for all repeats. Return the number of records;
    if it is 0, nothing is written.
    """
    collected, count = Results(), 0
    for cell in asked:
        spec = cell.spec
        folder = results / spec.benchmark / f"bz{spec.batch}_{spec.precision}"
        records = sorted(folder.glob("*/*/run*.json"))
        count += len(records)
        if records:
            try:
                collected.present[folder.with_suffix(".json")] = summarize(records, cell.repeats)
            except UserError as error:
                collected.unreadable.append((f"{spec.benchmark}/{folder.name}", markup.one_line(str(error))))
    if count:
        write_text(output, render(collected, [], asked, output))
    return count


def render(
    results: Results, manifests: Sequence[Path], asked: Sequence[Asked] | None, output: Path, note: str = ""
) -> str:
    """Return the page as HTML text. Its links are relative to `output`."""
    now, before = groups(results.present.values(), asked), groups(results.earlier.values())
    logs = RunLogs.of({**results.earlier, **results.present}, output)
    here = logs.behind(results.present)
    imported = [row for source in results.imports for row in source.results().values()]
    script = (HERE / "report.js").read_text(encoding="utf-8")
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            style=Markup((HERE / "report.css").read_text(encoding="utf-8")),
            script=Markup(script),
            script_digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
            benchmarks=_benchmarks(results, now, imported, "benchmark-"),
            earlier=_benchmarks(results, before, imported, "earlier-"),
            note=note,
            imports=list(map(imports.section, results.imports)),
            archives=[
                *(section for found in results.archives for section in archives.sections(found)),
                *(section for found in results.accepted for section in acceptance.sections(found)),
            ],
            accepted=results.accepted,
            snakemake=snakemake,
            results=lambda group: throughput.results(group, logs.address),
            overview=overview.table,
            traces=logs.step_times,
            unreadable=results.unreadable,
            environments=run_environment.environments([*results.present.values(), *results.earlier.values()]),
            data=run_environment.data(manifests),
            span=run_environment.span(here),
            configurations=run_environment.configurations(here),
            commits=run_environment.commits(here),
            repository=run_environment.repository(),
            devices=list(dict.fromkeys(name for group in now for name in group.devices)),
            issues=missing_figures.cells(now),
            counts=missing_figures.counts(now),
            frameworks=framework_table.table([*results.present.values(), *results.earlier.values()]),
        )
    )


@cache
def _environment() -> Environment:
    """Return the environment of the template, with the functions that the template calls by name.

    It is made once, because it compiles the template.
    """
    environment = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    filters = (switches, download, code, sparks.trace, sparks.span_of)
    environment.filters |= {function.__name__: function for function in filters}
    return environment


def _benchmarks(
    results: Results, every: Sequence[Group], imported: Sequence[Result], prefix: str
) -> list[dict[str, Any]]:
    """Return an entry for each benchmark, in order. Derived runs are in the entry of the benchmark they belong to.

    `prefix` keeps the ids of an entry different from those of the page's own sections.
    """
    entries: dict[str, dict[str, Any]] = {}
    names = dict.fromkeys(group.benchmark for group in every)
    for name in sorted(names, key=lambda name: name != block_name(name)):
        largest = [search for search in results.largest if search.benchmark == name]
        judged = [check for check in results.checks if check.verdict.spec.benchmark == name]
        own_groups = [group for group in every if group.benchmark == name]
        predicted = next((made for made in results.predictions if made.benchmark == name), None)
        entry = _benchmark(Scope(own_groups, every, largest, judged, imported, predicted), prefix)
        origin = entries.get(block_name(name))
        if origin:
            origin["derived"].append(entry)
        else:
            entries[name] = entry
    return [*entries.values()]


def download(content: Summary | str) -> str:
    """Return a link that holds a summary, or a YAML text: the browser saves it without a server or JavaScript."""
    if isinstance(content, str):
        kind, text = "yaml", content
    else:
        kind, text = "json", json_text(content.model_dump(by_alias=True))
    return f"data:application/{kind};base64," + base64.b64encode(text.encode()).decode()


def code(text: str) -> Markup:
    """Return a text in which words between backticks are shown as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _benchmark(scope: Scope, prefix: str) -> dict[str, Any]:
    """Return one benchmark as the template prints it: its headline, its groups, and a section for each topic."""
    identity = re.sub(r"[^a-z0-9_-]", "-", f"{prefix}{scope.benchmark}".lower())
    drawings = {topic.name: [drawing for drawing in drawn(topic, scope) if drawing.on_page] for topic in TOPICS}
    beside = [drawing for every in drawings.values() for drawing in every]
    sections = (_section(topic, scope, identity, drawings[topic.name]) for topic in TOPICS)
    summaries = [group.summary for group in scope.groups]
    devices = list(dict.fromkeys(name for group in scope.groups for name in group.devices))
    return {
        "id": identity,
        "name": scope.benchmark,
        "derived": [],
        "overview": list(overview.best_cells(scope, identity)),
        "headline": " ".join(derived_runs.sentences(scope.groups, scope.everything)) or answers.headline(scope),
        "answers": answers.answers(scope),
        "figures": answers.figures(scope.best),
        "goals": head.judged(scope.groups),
        "settings": head.settings(summaries[0], devices) if summaries else [],
        "remarks": list(dict.fromkeys(summary.remarks for summary in summaries if summary.remarks)),
        "groups": [
            (group, _plots(beside, identity, group), [note for topic in TOPICS for note in topic.notes(scope, group)])
            for group in scope.groups
        ],
        "sections": [section for section in sections if section],
    }


def _section(topic: Topic, scope: Scope, identity: str, drawings: Sequence[Drawing]) -> dict[str, Any] | None:
    """Return a topic's own section on the page; None if the topic has nothing to show there."""
    table, plots = topic.table(scope), _plots(drawings, identity, None)
    shown = table.in_form(tables.PAGE) if table and table.tells else None
    if not (shown or plots):
        return None
    return {
        "topic": topic,
        "table": shown,
        "plots": plots,
        "remarks": scope.marks,
    }


def _plots(drawings: Iterable[Drawing], identity: str, group: Group | None) -> list[Markup]:
    """Draw the plots that stand beside the table of `group`; None: the plots that stand beside no table."""
    return [
        inline(drawing.draw(PAGE), f"{identity}-{drawing.name}", drawing.title, drawing.words)
        for drawing in drawings
        if drawing.group is group
    ]
