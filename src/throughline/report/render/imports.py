"""Imported cells as tables, plots and a section of the page. All are marked *imported*: they were not measured here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from textwrap import shorten
from typing import Any

from matplotlib.figure import Figure as Plot

from throughline.comparables import plausibility
from throughline.files import write_text
from throughline.numbers import reading
from throughline.records.imported import OUTCOMES, Imported, ImportedRun
from throughline.report.render import plots as draws
from throughline.report.render import table_files, tables
from throughline.report.render.plots import LIGHT, PAGE, Point, Series, Theme, inline
from throughline.report.render.tables import TEXT, Entry, Table
from throughline.report.topic import Topic
from throughline.spec import Topology

IMPORTED = "imported"
NAMED_AT_MOST = 16  # so many letters have room at the end of a line
INTRO = (
    "These figures were read from logs of other programs; nothing was measured here. Each kind of log has its own "
    "rule. The speedup is relative to the same framework, model, precision and batch on one device, if there is such "
    "a log."
)
HEADER = [
    "framework", "model", "precision", "batch per device", "devices", "throughput", "unit", "speedup", "", "file",
    "rule",
]  # fmt: skip
Alike = tuple[str | None, ...]


def alike(run: ImportedRun) -> Alike:
    """Return what all runs in one plot have in common."""
    batch = None if run.batch_size_per_device is None else str(run.batch_size_per_device)
    return run.model, run.precision, batch, run.unit, "no accumulation" if run.gradient_accumulation == 1 else ""


def speedup(every: Iterable[ImportedRun], run: ImportedRun) -> float | None:
    """Return a run's value divided by the median of the same runs on one device."""
    same = (other for other in every if alike(other) == alike(run) and other.framework == run.framework)
    on_one_device = [other.value for other in same if other.devices == 1 and other.value]
    return run.value / median(on_one_device) if on_one_device and run.value else None


def table(imported: Imported) -> Table:
    """Return a line for each run, and one for each file without a run."""
    unread = [run for run in imported.files if run.status != "ok"]
    return tables.texts(HEADER, [*(_row(imported, run) for run in imported.read), *map(_left, unread)])


def _row(imported: Imported, run: ImportedRun) -> list[str | Entry]:
    over = speedup(imported.read, run)
    facts = (run.framework, run.model, run.precision, run.batch_size_per_device, run.devices)
    texts = [tables.NOT_KNOWN if fact is None else str(fact) for fact in facts]
    figures = [reading(run.value), run.unit or "", "" if over is None else f"{over:.2f}"]
    return [*texts, *figures, Entry.words(IMPORTED, chip="imported"), run.file, run.rule or ""]


def _left(run: ImportedRun) -> list[str | Entry]:
    status = Entry.words(run.status.replace("_", " "), chip="unsupported")
    return [run.kind or "", *[""] * 7, status, run.file, run.reason or ""]


def csv(imported: Imported) -> Table:
    """Return a line for each run and for each file without a run, unrounded."""
    rows = [{"origin": IMPORTED, **run.model_dump(exclude={"reasons", "named"})} for run in imported.files]
    for row, run in zip(rows, imported.files, strict=True):
        row["speedup"] = speedup(imported.read, run) if run.status == "ok" else None
        row["from_its_name"] = " ".join(run.named)
    return tables.records(rows, whole=("batch_size_per_device", "gradient_accumulation", "devices", "nodes"))


def plots(imported: Imported) -> list[tuple[str, str, Any, str]]:
    """Return name, title, drawing and description of a plot for each model, precision, batch and unit."""
    drawn = []
    known = [run for run in imported.read if run.devices]
    for index, key in enumerate(dict.fromkeys(map(alike, known))):
        runs = [run for run in known if alike(run) == key]
        model, precision, batch, unit = (part or "not said" for part in key[:4])
        title = ", ".join(filter(None, (model, precision, f"batch {batch} per device", key[4], IMPORTED)))
        lines = _series(runs)
        drawn.append((f"throughput_{index}", title, partial(draw, title, unit, lines), _words(lines, unit)))
    return drawn


def _scaling(imported: Imported) -> list[tuple[str, str, Any, str]]:
    """Return the plots with several numbers of devices. With one number, the page's table says as much."""
    return [
        plot
        for plot in plots(imported)
        if len({point.topology.world for series in plot[2].args[2] for point in series.points}) > 1
    ]


def _series(runs: Sequence[ImportedRun]) -> list[Series]:
    """Return a line for each framework. Several logs with the same number of devices count as repeats."""
    lines = []
    for framework in dict.fromkeys(run.framework or "" for run in runs):
        by_devices: dict[int, list[float]] = {}
        for run in runs:
            if run.framework == framework and run.devices and run.value:
                by_devices.setdefault(run.devices, []).append(run.value)
        points = tuple(
            Point(Topology(1, devices), median(values), tuple(values)) for devices, values in sorted(by_devices.items())
        )
        lines.append(Series(framework, points, IMPORTED))
    return lines


def _words(lines: Sequence[Series], unit: str) -> str:
    """Return a plot's numbers in words, for people who cannot see it."""
    texts = []
    for line in lines:
        values = [f"{point.topology.world} devices {reading(point.median)} {unit}" for point in line.points]
        texts.append(f"{line.name}: {', '.join(values)}.")
    return " ".join(texts)


def draw(title: str, unit: str, lines: Sequence[Series], theme: Theme) -> Plot:
    """Draw throughput over devices. The markers are hollow, because nothing was measured here."""
    figure, axes = draws.blank(theme, title, unit)
    labels = []
    for index, line in enumerate(lines):
        named = replace(line, name=shorten(line.name, NAMED_AT_MOST, placeholder=" ..."))
        labels.append(draws.line(axes, named, theme.colour(index), theme, theme.marker(index)))
    worlds = sorted({point.topology.world for line in lines for point in line.points})
    draws.device_axis(axes, [point.topology for line in lines for point in line.points], theme)
    axes.set_xticks(worlds, list(map(str, worlds)))
    return draws.finish(figure, axes, labels, theme, f"hollow: {IMPORTED}, not measured here")


def section(imported: Imported) -> dict[str, Any]:
    """Return an import as the page prints it."""
    identity = f"import-{imported.name}"
    shown = [inline(draw(PAGE), f"{identity}-{name}", title, words) for name, title, draw, words in _scaling(imported)]
    topic = Topic(imported.name, f"{imported.name} ({IMPORTED})", INTRO)
    remarks = [outcome(imported), *doubts(imported)]
    return {"topic": topic, "table": table(imported), "plots": shown, "remarks": remarks}


def doubts(imported: Imported) -> list[str]:
    """Return a sentence for each row and rule where a figure cannot be true or is implausible."""
    return [
        f"Implausible ({doubt.rule}), {(doubt.row.place or '').rpartition(', ')[2]}: {doubt.text}"
        for doubt in plausibility.doubts(imported.results())
    ]


def outcome(imported: Imported) -> str:
    """Return how many files had which outcome."""
    statuses = [run.status for run in imported.files]
    read = len({run.file for run in imported.read})
    others = [
        f"; {statuses.count(status)} {status.replace('_', ' ')} ({words})"
        for status, words in OUTCOMES.items()
        if status != "ok" and status in statuses
    ]
    return f"{imported.name}: {read} of {len({run.file for run in imported.files})} files are read{''.join(others)}"


def write(imported: Imported, folder: Path) -> None:
    """Write tables and plots into `folder`."""
    write_text(folder / "throughput.csv", table_files.csv(csv(imported)).to_csv(index=False, lineterminator="\n"))
    notes = [INTRO, outcome(imported), *doubts(imported)]
    text = replace(table(imported), heading=f"{imported.name}, {IMPORTED}", notes=notes, forms=(TEXT,))
    write_text(folder / "throughput.md", table_files.markdown(text))
    write_text(folder / "throughput.tex", table_files.NO_PACKAGE + table_files.latex(text))
    for name, _, draw, _ in plots(imported):
        draws.save(draw(LIGHT), folder / name)
