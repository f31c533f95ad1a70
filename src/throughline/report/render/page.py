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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from throughline import records, statistics
from throughline.files import UserError, json_text, snakemake, write_text
from throughline.numbers import milliseconds
from throughline.records.acceptance import Acceptance
from throughline.report import answers
from throughline.report.analysis import goals
from throughline.report.analysis.cells import Asked, Cell, Group, groups
from throughline.report.analysis.summary import summarize
from throughline.report.analysis.titles import switches
from throughline.report.render import acceptance, cell_columns, compared, imports, run_environment, tables
from throughline.report.render.plots import PAGE, inline
from throughline.report.render.table_files import one_line
from throughline.report.topic import Drawing, Scope
from throughline.report.topics import TOPICS, checks, throughput
from throughline.report.topics import drawings as drawn
from throughline.report.topics.checks import Check
from throughline.spec import Batch
from throughline.study.config import block_name

HERE = Path(__file__).parent
STEPS = 0.05  # a trace shows at least the median plus and minus this share
STRETCHES = 60  # a run with more than twice as many steps is cut into so many stretches
WIDTH, HEIGHT = 240, 56  # size of a trace, in its own units
OF_ORIGIN = ("answers", "figures", "goals", "sections", "settings")
"""What the entry of a derived benchmark lacks. Its origin has it, with what the derived runs say about it."""


@dataclass
class Results:
    """The files under results/: the summaries of the configuration, other summaries, searches and checks."""

    present: dict[Path, records.Summary] = field(default_factory=dict)
    earlier: dict[Path, records.Summary] = field(default_factory=dict)
    unreadable: list[tuple[str, str]] = field(default_factory=list)
    largest: list[records.MaxBatch] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    imports: list[records.Imported] = field(default_factory=list)
    archives: list[records.Compared] = field(default_factory=list)
    predictions: list[records.Predictions] = field(default_factory=list)
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
                unreadable.append((os.path.relpath(path, results), one_line(reason)))
        return values

    others = [path for path in sorted(results.glob("*/bz*_*.json")) if path.absolute() not in present]
    return Results(
        present=readable(summaries, records.read_summary),
        earlier=readable(others, records.read_summary),
        unreadable=unreadable,
        largest=[*readable(sorted(results.glob("*/max_*_*.json")), records.read_max_batch).values()],
        checks=[*readable(sorted(results.glob("*/convergence_*.json")), checks.read).values()],
        imports=[*readable(imports, records.read_imported).values()],
        archives=[*readable(archives, records.read_compared).values()],
        predictions=[*readable(predictions, records.read_predictions).values()],
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
    write_text(output, render(Results(archives=[records.read_compared(compared)]), [], None, output))


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
        folder = results / cell.spec.benchmark / f"bz{cell.spec.batch}_{cell.spec.precision}"
        runs = sorted(folder.glob("*/*/run*.json"))
        count += len(runs)
        if runs:
            try:
                collected.present[folder.with_suffix(".json")] = summarize(runs, cell.repeats)
            except UserError as error:
                collected.unreadable.append((f"{cell.spec.benchmark}/{folder.name}", one_line(str(error))))
    if count:
        write_text(output, render(collected, [], asked, output))
    return count


def render(
    results: Results, manifests: Sequence[Path], asked: Sequence[Asked] | None, output: Path, note: str = ""
) -> str:
    """Return the page as HTML text. Its links are relative to `output`."""
    now, before = groups(results.present.values(), asked), groups(results.earlier.values())
    logs = RunLogs.of({**results.earlier, **results.present}, output)
    here = [logs.runs[log] for log in _logs(results.present) if log in logs.runs]
    summaries = [*results.present.values(), *results.earlier.values()]
    imported = [row for source in results.imports for row in source.results().values()]
    script = (HERE / "report.js").read_text(encoding="utf-8")
    of_archives = [section for found in results.archives for section in compared.sections(found)]
    of_acceptances = [section for found in results.accepted for section in acceptance.sections(found)]
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
            archives=of_archives + of_acceptances,
            accepted=results.accepted,
            snakemake=snakemake,
            results=lambda group: throughput.results(group, logs.address),
            overview=cell_columns.overview,
            traces=logs.step_times,
            unreadable=results.unreadable,
            environments=run_environment.environments(summaries, here),
            data=list(map(run_environment.data, manifests)),
            span=run_environment.span(here),
            configurations=run_environment.configurations(here),
            commits=run_environment.commits(here),
            repository=run_environment.repository(),
            devices=list(dict.fromkeys(name for group in now for name in group.devices)),
            issues=cell_columns.without_figure(now),
            counts=cell_columns.counts(now),
            frameworks=run_environment.frameworks(summaries),
            programs=run_environment.programs(here),
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
    filters = (switches, download, code, trace, span_of)
    environment.filters |= {function.__name__: function for function in filters}
    return environment


def _benchmarks(
    results: Results, every: Sequence[Group], imported: Sequence[records.Result], prefix: str
) -> list[dict[str, Any]]:
    """Return an entry for each benchmark, in order. Derived runs are in the entry of the benchmark they belong to.

    `prefix` keeps the ids of an entry different from those of the page's own sections.
    """
    entries: dict[str, dict[str, Any]] = {}
    names = dict.fromkeys(group.benchmark for group in every)
    for name in sorted(names, key=lambda name: name != block_name(name)):
        scope = Scope(
            [group for group in every if group.benchmark == name],
            every,
            [search for search in results.largest if search.benchmark == name],
            [check for check in results.checks if check.verdict.spec.benchmark == name],
            imported,
            next((made for made in results.predictions if made.benchmark == name), None),
        )
        entry = _benchmark(scope, prefix)
        if origin := entries.get(block_name(name)):
            origin["derived"].append(entry | dict.fromkeys(OF_ORIGIN, ()))
        else:
            entries[name] = entry
    return [*entries.values()]


def download(content: records.Summary | str) -> str:
    """Return a link that holds a summary, or a YAML text: the browser saves it without a server or JavaScript."""
    kind = "yaml" if isinstance(content, str) else "json"
    text = content if isinstance(content, str) else json_text(content.model_dump(by_alias=True))
    return f"data:application/{kind};base64," + base64.b64encode(text.encode()).decode()


def code(text: str) -> Markup:
    """Return a text in which words between backticks are shown as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _benchmark(scope: Scope, prefix: str) -> dict[str, Any]:
    """Return one benchmark as the template prints it: its headline, its groups, and a section for each topic."""
    identity = re.sub(r"[^a-z0-9_-]", "-", f"{prefix}{scope.benchmark}".lower())

    def plots(drawings: Iterable[Drawing], group: Group | None) -> list[Markup]:
        """Draw the plots that stand beside the table of `group`; None: the plots that stand beside no table."""
        return [
            inline(drawing.draw(PAGE), f"{identity}-{drawing.name}", drawing.title)
            for drawing in drawings
            if drawing.group is group
        ]

    beside, sections = list[Drawing](), []
    for topic in TOPICS:
        drawings = [drawing for drawing in drawn(topic, scope) if drawing.on_page]
        table, alone = topic.table(scope), plots(drawings, None)
        shown = table.in_form(tables.PAGE) if table and table.tells else None
        beside += drawings
        if shown or alone:
            sections.append({"topic": topic, "table": shown, "plots": alone, "remarks": scope.marks})
    summaries = [group.summary for group in scope.groups]
    devices = list(dict.fromkeys(name for group in scope.groups for name in group.devices))
    return {
        "id": identity,
        "name": scope.benchmark,
        "derived": [],
        "overview": list(cell_columns.best_cells(scope, identity)),
        "headline": answers.derived(scope) or answers.headline(scope),
        "answers": answers.answers(scope),
        "figures": answers.figures(scope.best),
        "goals": goals.over_groups(scope.groups),
        "settings": run_environment.setup(summaries[0], devices) if summaries else [],
        "groups": [
            (group, plots(beside, group), [note for topic in TOPICS for note in topic.notes(scope, group)])
            for group in scope.groups
        ],
        "sections": sections,
    }


@dataclass(frozen=True)
class RunLogs:
    """The logs of all runs on a page.

    folders: the folder of the logs of each benchmark, batch and precision. runs: the record beside each log, if it can
    be read. page: the file whose links lead to the logs.
    """

    folders: Mapping[tuple[str, Batch, str], Path]
    runs: Mapping[Path, records.RunRecord]
    page: Path

    @classmethod
    def of(cls, summaries: Mapping[Path, records.Summary], page: Path) -> RunLogs:
        """Find the logs of all runs behind these summaries, and read the records beside them."""
        folders: dict[tuple[str, Batch, str], Path] = {
            (summary.benchmark, summary.batch, summary.precision): path.with_suffix("")
            for path, summary in summaries.items()
        }
        runs = {log: records.stored_run(log.with_suffix(".json")) for log in _logs(summaries)}
        return cls(folders, {log: run for log, run in runs.items() if run}, page)

    def _path(self, group: Group, log: str) -> Path | None:
        folder = self.folders.get((group.benchmark, group.batch, group.precision))
        return folder and folder / log

    def address(self, group: Group, name: str) -> str | None:
        """Return the address of a log of a group; None if the log is not there."""
        path = self._path(group, name)
        return quote(os.path.relpath(path, self.page.parent)) if path and path.exists() else None

    def step_times(self, group: Group) -> list[tuple[Cell, list[list[float]]]]:
        """Return the cells whose records exist, with the seconds of every step of the runs behind their medians."""
        series = []
        for cell in group.measured:
            left_out = {f"run{repeat}.log" for part in cell.record.left_out for repeat in part.repeats}
            logs = (self._path(group, log) for log in cell.record.logs if log.rpartition("/")[2] not in left_out)
            runs = [self.runs[log] for log in logs if log and log in self.runs]
            seconds = [run.step_seconds for run in runs if run.status == "ok" and run.step_seconds]
            if seconds:
                series.append((cell, seconds))
        return series


def _logs(summaries: Mapping[Path, records.Summary]) -> list[Path]:
    series = [(path, cells) for path, summary in summaries.items() for cells in summary.frameworks.values()]
    return [path.with_suffix("") / log for path, cells in series for cell in cells.values() for log in cell.logs]


def trace(runs: Sequence[Sequence[float]]) -> Markup:
    """Return a small plot with a line for each run over its steps. A dashed line is the median of all steps."""
    every = [seconds for run in runs for seconds in run]
    middle = statistics.median(every) or 1.0
    low, high = min(min(every), (1 - STEPS) * middle), max(max(every), (1 + STEPS) * middle)

    def height(seconds: float) -> str:
        return f"{HEIGHT * (high - seconds) / (high - low):.3g}"

    lines = []
    for run in runs:
        points = _thinned(run)
        last = max(len(points) - 1, 1)
        places = (f"{WIDTH * at / last:.4g},{height(seconds)}" for at, seconds in enumerate(points))
        lines.append(f'<polyline points="{" ".join(places)}"/>')
    return Markup(
        f'<svg class="trace" viewBox="0 -2 {WIDTH} {HEIGHT + 4}" role="img" aria-label="{span_of(runs)}">'
        f'<path d="M0 {height(middle)}H{WIDTH}"/>{"".join(lines)}</svg>'
    )


def span_of(runs: Sequence[Sequence[float]]) -> str:
    """Return the shortest and the longest step, and the median of all steps, as text."""
    every = [seconds for run in runs for seconds in run]
    ends = " to ".join(dict.fromkeys(map(milliseconds, (min(every), max(every)))))
    return f"{ends} ms, median {milliseconds(statistics.median(every) or 0.0)}"


def _thinned(steps: Sequence[float]) -> list[float]:
    """Return all steps; of a long run the shortest and the longest step of each stretch, so that no outlier is lost."""
    if len(steps) <= 2 * STRETCHES:
        return list(steps)
    edges = [len(steps) * index // STRETCHES for index in range(STRETCHES + 1)]
    stretches = [steps[start:end] for start, end in pairwise(edges)]
    return [seconds for stretch in stretches for seconds in (min(stretch), max(stretch))]
