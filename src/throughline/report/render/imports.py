"""Imported results as tables, plots and a section of the page. All are marked *imported*: nothing was measured here."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from pathlib import Path
from statistics import median
from textwrap import shorten
from typing import Any

from matplotlib.figure import Figure as Plot

from throughline.comparables import plausibility
from throughline.files import write_text
from throughline.grouping import grouped
from throughline.numbers import reading
from throughline.records.imported import Imported, ImportedRun
from throughline.report.render import plots, table_files, tables
from throughline.report.render.plots import LIGHT, PAGE, Point, Series, Theme, inline
from throughline.report.render.tables import TEXT, Column, Entry, Table
from throughline.report.topic import Drawing, Topic
from throughline.report.topic import section as as_section
from throughline.spec import Topology

IMPORTED = "imported"
NAMED_AT_MOST = 16  # so many letters have room at the end of a line
INTRO = (
    "These figures were read from logs of other programs; nothing was measured here. Each kind of log has its own "
    "rule. The speedup is relative to the same framework, model, precision and batch on one device, if there is such "
    "a log."
)


def _alike(run: ImportedRun) -> tuple[Any, ...]:
    """Return what all runs in one plot have in common."""
    return run.model, run.precision, run.batch_size_per_device, run.unit, run.gradient_accumulation == 1


def rows(imported: Imported) -> list[dict[str, Any]]:
    """Return a row for each run and for each file without a run, unrounded.

    speedup: its value divided by the median of the same runs on one device; None without such a run. implausible: what
    cannot be true or is implausible about its figure, with the rule that says so.
    """
    on_one: defaultdict[Any, list[float]] = defaultdict(list)
    for run in imported.read:
        if run.devices == 1 and run.value:
            on_one[run.framework, _alike(run)].append(run.value)
    results = imported.results()
    doubts = grouped(plausibility.doubts(list(results.values())), lambda doubt: id(doubt.row))
    listed = []
    for index, run in enumerate(imported.files):
        base = on_one.get((run.framework, _alike(run)))
        over = run.value / median(base) if base and run.value else None
        facts = {"origin": IMPORTED, **run.model_dump(exclude={"reasons", "named"}), "speedup": over}
        here = doubts.get(id(results.get(index)), ())
        doubtful = "; ".join(f"{doubt.rule}: {doubt.text}" for doubt in here)
        listed.append(facts | {"from_its_name": " ".join(run.named), "implausible": doubtful})
    return listed


HEADER = (
    "framework", "model", "precision", "batch per device", "devices", "throughput", "unit", "speedup", "",
    "implausible", "file", "rule",
)  # fmt: skip


def table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return a line for each run, then a line for each file without a run."""
    ordered = sorted(rows, key=lambda row: bool(row["status"] != "ok"))
    return tables.texts([dict(zip(HEADER, _line(row), strict=True)) for row in ordered]) or Table([], [])


def _line(row: Mapping[str, Any]) -> list[str | Entry]:
    if row["status"] != "ok":
        status = Entry.words(row["status"].replace("_", " "), chip="unsupported")
        return [row["kind"] or "", *[""] * 7, status, "", row["file"], row["reason"] or ""]
    facts = (row[key] for key in ("framework", "model", "precision", "batch_size_per_device", "devices"))
    texts = [tables.NOT_KNOWN if fact is None else str(fact) for fact in facts]
    speedup = "" if row["speedup"] is None else f"{row['speedup']:.2f}"
    figures = [reading(row["value"]), row["unit"] or "", speedup, Entry.words(IMPORTED, chip=IMPORTED)]
    return [*texts, *figures, row["implausible"], row["file"], row["rule"] or ""]


def drawings(imported: Imported) -> Iterator[Drawing]:
    """Yield a plot for each model, precision, batch and unit with several numbers of devices."""
    alike = grouped((run for run in imported.read if run.devices), _alike)
    several = [item for item in alike.items() if len({run.devices for run in item[1]}) > 1]
    for index, ((model, precision, batch, unit, no_accumulation), runs) in enumerate(several):
        parts = [model or "not said", precision or "not said", f"batch {batch or 'not said'} per device"]
        title = ", ".join([*parts, *(["no accumulation"] if no_accumulation else []), IMPORTED])
        lines = [_series(framework, runs) for framework in dict.fromkeys(run.framework or "" for run in runs)]
        yield Drawing(f"throughput_{index}", title, partial(_draw, title, unit or "not said", lines))


def _series(framework: str, runs: Sequence[ImportedRun]) -> Series:
    """Return the line of a framework. Several logs with the same number of devices count as repeats."""
    by_devices: defaultdict[int, list[float]] = defaultdict(list)
    for run in runs:
        if run.framework == framework and run.devices and run.value:
            by_devices[run.devices].append(run.value)
    points = (Point(Topology(1, count), median(values), tuple(values)) for count, values in sorted(by_devices.items()))
    return Series(framework, tuple(points), IMPORTED)


def _draw(title: str, unit: str, lines: Sequence[Series], theme: Theme) -> Plot:
    """Draw throughput over devices. The markers are hollow, because nothing was measured here."""
    figure, axes = plots.blank(theme, title, unit)
    labels = []
    for index, line in enumerate(lines):
        named = replace(line, name=shorten(line.name, NAMED_AT_MOST, placeholder=" ..."))
        labels.append(plots.line(axes, named, theme.colour(index), theme, theme.marker(index)))
    topologies = [point.topology for line in lines for point in line.points]
    plots.device_axis(axes, topologies)
    worlds = sorted({topology.world for topology in topologies})
    axes.set_xticks(worlds, list(map(str, worlds)))
    return plots.finish(figure, axes, labels, theme, f"hollow: {IMPORTED}, not measured here")


def section(imported: Imported) -> dict[str, Any]:
    """Return an import as the page prints it."""
    shown = [inline(each.draw(PAGE), f"import-{imported.name}-{each.name}", each.title) for each in drawings(imported)]
    topic = Topic(imported.name, f"{imported.name} ({IMPORTED})", INTRO)
    return as_section(topic, table(rows(imported)), [imported.outcome], shown)


def write(imported: Imported, folder: Path) -> None:
    """Write tables and plots into `folder`."""
    listed, whole = rows(imported), ("batch_size_per_device", "gradient_accumulation", "devices", "nodes")
    columns = [Column(key, read=itemgetter(key), whole=key in whole) for key in (listed[0] if listed else ())]
    table_files.write_csv(Table.of(listed, columns), folder / "throughput.csv")
    heading, notes = f"{imported.name}, {IMPORTED}", [INTRO, imported.outcome]
    text = replace(table(listed), heading=heading, notes=notes, forms=(TEXT,))
    write_text(folder / "throughput.md", table_files.markdown(text))
    for drawing in drawings(imported):
        plots.save(drawing.draw(LIGHT), folder / drawing.name)
