"""Throughput, the primary figure: its tables are DLPerf's, its plots are throughput and speedup over devices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import pandas as pd
from matplotlib.figure import Figure

from throughline.records import Cell
from throughline.report.analysis import baseline, cells
from throughline.report.analysis.cells import STATUS_LABELS, STATUS_MEANINGS, Group, Note, Row, title
from throughline.report.analysis.values import MEASURED, Point, Series, of_cell
from throughline.report.numbers import percent, reading, speed
from throughline.report.render import axes as draws
from throughline.report.render import markup, sheets
from throughline.report.render.axes import MARKERS, Label
from throughline.report.render.sheets import Sheet, Table
from throughline.report.render.theme import Theme
from throughline.report.render.topics import equivalence
from throughline.report.topics import Drawing, Scope, Topic
from throughline.topology import Topology


def frame(scope: Scope) -> pd.DataFrame:
    """One row per cell; a number that is not known is empty."""
    measured = [row.cell for group in scope.groups for row in group.rows if row.cell]
    units = dict.fromkeys(unit for cell in measured for unit in cell.other_units)
    every = ((group, row, _values(row.cell, units)) for group in scope.groups for row in group.rows)
    return sheets.frame(every, "repeats_asked", "repeats_left_out")


def _values(cell: Cell | None, units: Iterable[str]) -> dict[str, object]:
    return {
        "repeats_asked": cell.n if cell else None,
        "repeats_ok": cell.n_ok if cell else 0,
        "median_samples_per_s": cell.median_speed if cell else None,
        "average_samples_per_s": cell.average_speed if cell else None,
        "min_samples_per_s": cell.min if cell else None,
        "max_samples_per_s": cell.max if cell else None,
        "speedup": cell.speedup if cell else None,
        "efficiency": cell.efficiency if cell else None,
        **_scatter(cell),
        "reasons": markup.spreadsheet("; ".join(cell.reasons)) if cell else None,
        **{f"median_{unit.replace('/', '_per_')}": cell.other_units.get(unit) if cell else None for unit in units},
    }


def _scatter(cell: Cell | None) -> dict[str, float | int | None]:
    """How far the repeats lie apart, and what that leaves of the speedup."""
    ends: Sequence[float | None] = (cell.speedup_range if cell else None) or (None, None)
    return {
        "median_absolute_deviation_samples_per_s": cell.median_absolute_deviation if cell else None,
        "coefficient_of_variation": cell.coefficient_of_variation if cell else None,
        "range_coverage": cell.range_coverage if cell else None,
        "speedup_at_least": ends[0],
        "speedup_at_most": ends[1],
        "repeats_left_out": sum(len(part.repeats) for part in cell.left_out) if cell else None,
    }


def tables(scope: Scope) -> list[Sheet]:
    """A table per batch size and precision, with the remarks and warnings about it."""
    return [Sheet(title(group), table(group), _below(scope, group)) for group in scope.groups]


def table(group: Group) -> Table:
    """Header and rows as DLPerf prints them; a cell without a figure says why."""
    device = group.summary.device if group.summary else None
    devices = "gpu_num" if device and device.kind == "cuda" else "device_num"
    header = ["framework", "node_num", devices, group.unit, "speedup", "average", "range", "repeats", "efficiency"]
    return header, [_row(row) for row in group.rows]


def _row(row: Row) -> list[str]:
    nodes = f"{row.topology.nodes} (simulated)" if row.topology.simulated else str(row.topology.nodes)
    start = [row.shown, nodes, str(row.topology.world)]
    cell = row.cell
    if cell is None or cell.median_speed is None:
        return [*start, row.label, "", "", "", f"0/{cell.n}" if cell else "", ""]
    return [
        *start,
        speed(cell.median_speed),
        speed(cell.speedup),
        speed(cell.average_speed),
        f"{speed(cell.min)} to {speed(cell.max)}",
        f"{cell.n_ok}/{cell.n}",
        percent(cell.efficiency),
    ]


def _below(scope: Scope, group: Group) -> list[str]:
    """Remarks, what the words in the table mean, what a proof covers, and the warnings about its cells."""
    seen = dict.fromkeys(row.status for row in group.rows if row.status != "ok")
    lines = [group.summary.remarks] if group.summary and group.summary.remarks else []
    lines += [f"{STATUS_LABELS[status]}: {STATUS_MEANINGS[status]}" for status in seen if status in STATUS_MEANINGS]
    every = [*equivalence.notes(scope, group), *notes(scope, group)]
    return lines + [f"{note.where}: {note.text}" for note in every]


def notes(scope: Scope, group: Group) -> list[Note]:
    """Reasons and warnings of its cells."""
    return cells.notes(group)


def drawings(scope: Scope) -> Iterator[Drawing]:
    """Throughput and speedup of every group."""
    for group in scope.groups:
        rows = [row for name in group.frameworks for row in group.series(name)]
        scales = any(row.cell and row.cell.speedup and row.topology.world > 1 for row in rows)
        for what, draw, shown in (("throughput", throughput, bool(rows)), ("speedup", speedup, scales)):
            name, heading = f"{group.name}_{what}", f"{group.benchmark}: {what}, {group.precision}, {group.batch_text}"
            yield Drawing(name, heading, partial(draw, group), describe(group, what), group, on_page=shown)


def describe(group: Group, what: str) -> str:
    """A plot's numbers in words, for those who do not see it."""
    parts = []
    for framework in group.frameworks:
        base = _times(group, framework)
        values = []
        for row in group.series(framework):
            cell = row.cell
            if cell and what == "throughput":
                values.append(f"{row.topology} {reading(cell.median_speed)} {group.unit}")
            elif cell and cell.speedup is not None:
                values.append(f"{row.topology} {cell.speedup:.2f} times {base}")
        parts += [f"{framework}: {', '.join(values)}."] if values else []
    return " ".join(parts)


def _times(group: Group, framework: str) -> str:
    """What a framework's speedups are over."""
    base = group.summary.baselines.get(framework, baseline.ONE_DEVICE) if group.summary else baseline.ONE_DEVICE
    return "one device" if base == baseline.ONE_DEVICE else base


def series(group: Group, framework: str) -> Series:
    """The measured throughput of one framework."""
    points = ((row.topology, of_cell(framework, row.cell)) for row in group.series(framework))
    return Series(framework, tuple(Point(topology, value) for topology, value in points if value))


def throughput(group: Group, theme: Theme, elsewhere: Sequence[Series] = ()) -> Figure:
    """Throughput over devices: medians as a line, every repeat a point, the range a whisker, ideal scaling dotted.

    `elsewhere`: series that were not measured here, such as published ones; dashed, and named with their source.
    """
    figure, axes = draws.blank(theme, f"{group.benchmark}: throughput, {settings(group)}", group.unit)
    measured = [one for name in group.frameworks if (one := series(group, name)).points]
    labels: list[Label] = []
    for one in [*measured, *elsewhere]:
        place = group.frameworks.index(one.name) if one.name in group.frameworks else len(labels)
        colour, marker = theme.colour(place), MARKERS[place % len(MARKERS)]
        first, last = one.points[0], one.points[-1]
        if one.source == MEASURED and first.topology.world == 1 < last.topology.world:
            ideal = [first.value.median, first.value.median * last.topology.world]
            axes.plot([1, last.topology.world], ideal, ":", color=colour, lw=1.0, alpha=0.7)
        draws.line(axes, one, colour, theme, marker, markers=False)
        for point in one.points if one.source == MEASURED else ():
            draws.repeats(axes, point, colour, theme, marker)
        labels.append(_label(one, colour))
    topologies = [point.topology for one in [*measured, *elsewhere] for point in one.points]
    draws.device_axis(axes, topologies, theme)
    words = ["dots: repeats; dotted: ideal, the framework's own 1n1g times devices"]
    if not any(topology.world == 1 for topology in topologies) or len(topologies) < 2:
        words = []
    words += ["dashed: not measured here"] if elsewhere else []
    if words:
        draws.legend(axes, theme, "; ".join(words))
    draws.direct_labels(axes, labels, theme)
    return draws.or_nothing(figure, axes, bool(topologies), theme)


def _label(one: Series, colour: str) -> Label:
    last = one.points[-1]
    source = "" if one.source == MEASURED else f", {one.source}"
    return last.topology.world, last.value.median, f"{one.name}{source}", reading(last.value.median), colour


def speedup(group: Group, theme: Theme) -> Figure:
    """Median over that of the same framework's baseline, over devices, with the ideal line."""
    bases = list(dict.fromkeys(group.summary.baselines.values())) if group.summary else [baseline.ONE_DEVICE]
    over = ", ".join(bases) or baseline.ONE_DEVICE
    figure, axes = draws.blank(theme, f"{group.benchmark}: speedup, {settings(group)}", f"speedup over {over}")
    labels, shown = [], []
    for index, framework in enumerate(group.frameworks):
        rows = [row for row in group.series(framework) if row.cell and row.cell.speedup]
        if not rows:
            continue
        shown += rows
        colour = theme.colour(index)
        worlds = [row.topology.world for row in rows]
        values = [row.cell.speedup or 0.0 for row in rows if row.cell]
        axes.plot(
            worlds, values, "-", marker=MARKERS[index % len(MARKERS)], color=colour, lw=1.6, ms=6, mec=theme.surface,
            mew=1.0, zorder=3,
        )  # fmt: skip
        last = rows[-1].cell
        text = f"{values[-1]:.2f}× ({percent(last.efficiency if last else None)})"
        labels.append((worlds[-1], values[-1], framework, text, colour))
    draws.device_axis(axes, [row.topology for row in shown], theme)
    most, least = max((row.topology.world for row in shown), default=1), Topology.parse(bases[0]).world if bases else 1
    if most > 1 and len(bases) == 1:
        axes.plot([least, most], [1, most / least], ":", color=theme.muted, lw=1.2, zorder=2)
        draws.legend(axes, theme, "dotted: ideal; in brackets: efficiency, speedup over devices")
    draws.direct_labels(axes, labels, theme)
    return draws.or_nothing(figure, axes, bool(shown), theme)


def settings(group: Group) -> str:
    """What a figure's title says of its group."""
    return f"{group.precision}, {group.batch_text}" + ("" if group.exchanges else ", no exchange")


TOPIC = Topic("throughput", "Throughput", frame=frame, sheets=tables, drawings=drawings, notes=notes)
