"""results/report.html: one file with the answer, the tables, the plots and how all of it was measured.

It needs no network, no server and no JavaScript; with JavaScript its tables sort and filter. Whatever comes from
records is escaped, and the page's own policy forbids it to load or run anything that is not in the file.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from throughline import frameworks, workloads
from throughline.files import write_text
from throughline.records import Summary
from throughline.report.analysis.cells import STATUS_LABELS, STATUS_MEANINGS, Asked, Group, groups
from throughline.report.render import surroundings
from throughline.report.render.benchmark import View, counts
from throughline.report.render.collected import Results, collect

HERE = Path(__file__).parent
ISSUE_ORDER = ("oom", "unsupported", "invalid", "failed")


def write(
    results: Path, summaries: Sequence[Path], manifests: Sequence[Path], asked: Sequence[Asked] | None, output: Path
) -> None:
    """Write the report on `summaries` to `output`; other summaries under `results` are listed in their own section."""
    write_text(output, render(collect(results, summaries), manifests, asked, output))


def render(results: Results, manifests: Sequence[Path], asked: Sequence[Asked] | None, output: Path) -> str:
    """The page as HTML text; links are relative to `output`."""
    now, before = groups(results.present.values(), asked), groups(results.earlier.values())
    places = {_key(summary): path for path, summary in {**results.earlier, **results.present}.items()}
    view = View(places, output.parent, results, [*now, *before])
    columns, facts = surroundings.environments([*results.present.values(), *results.earlier.values()])
    logs = [path.with_suffix("") / log for path, s in results.present.items() for log in _logs(s)]
    script = (HERE / "report.js").read_text(encoding="utf-8")
    environment = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template("report.html.j2").render(
        style=Markup((HERE / "report.css").read_text(encoding="utf-8")),
        script=Markup(script),
        script_digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        benchmarks=view.benchmarks(now),
        earlier=view.benchmarks(before, prefix="earlier-"),
        unreadable=results.unreadable,
        columns=columns,
        facts=facts,
        data=surroundings.data(manifests),
        span=surroundings.span(logs),
        configurations=surroundings.configurations(logs),
        devices=list(dict.fromkeys(s.device.name for s in results.present.values() if s.device)),
        issues=_issues(now),
        meanings=[(STATUS_LABELS[status], STATUS_MEANINGS[status]) for status in ISSUE_ORDER],
        counts=counts(now),
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


def _key(summary: Summary) -> tuple[str, str]:
    return summary.benchmark, f"bz{summary.batch}_{summary.precision}"


def _logs(summary: Summary) -> list[str]:
    return [log for series in summary.frameworks.values() for cell in series.values() for log in cell.logs]
