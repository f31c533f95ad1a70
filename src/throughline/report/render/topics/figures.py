"""The figures that a workload declares beside throughput, and its throughput in other units: a table, and plots."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pandas as pd
from matplotlib.figure import Figure as Plot

from throughline.records import Cell, Figure
from throughline.report.analysis.cells import Group
from throughline.report.analysis.values import Point, Series, Value
from throughline.report.numbers import reading
from throughline.report.render import axes as draws
from throughline.report.render.axes import MARKERS
from throughline.report.render.grid import Column, Grid, lines
from throughline.report.render.grid import Figure as Shown
from throughline.report.render.sheets import Sheet, grid_frame, of_grid
from throughline.report.render.theme import Theme
from throughline.report.topics import Drawing, Scope, Topic


def grid(scope: Scope) -> Grid | None:
    """A row per cell; None where no record has a figure."""
    cells = [row.cell for group in scope.groups for row in group.rows if row.cell]
    declared = {_key(one): one for cell in cells for one in cell.figures}
    if not declared:
        return None
    units = list(dict.fromkeys(unit for cell in cells for unit in cell.other_units))
    columns = [Column(unit.replace("/", "_per_"), unit, "median") for unit in units]
    columns += [Column(key, one.name, _small(one)) for key, one in declared.items()]
    return Grid("figures", "Figures", columns, lines(scope.groups, lambda cell: _figures(cell, units, list(declared))))


def _key(one: Figure) -> str:
    """Its column in the CSV: name, size and unit."""
    return "_".join([one.name, *([str(one.at)] if one.at is not None else []), one.unit])


def _small(one: Figure) -> str:
    size = [] if one.at is None else [f"at {one.at}"]
    return ", ".join([*size, one.unit, f"{one.better} is better"])


def _figures(cell: Cell, units: list[str], keys: list[str]) -> list[Shown]:
    values = {_key(one): one.value for one in cell.figures}
    rates = [cell.other_units.get(unit) for unit in units]
    return [Shown.of(value, reading(value)) for value in [*rates, *(values.get(key) for key in keys)]]


def frame(scope: Scope) -> pd.DataFrame | None:
    made = grid(scope)
    return grid_frame(made) if made else None


def sheets(scope: Scope) -> list[Sheet]:
    made = grid(scope)
    return [of_grid(made)] if made else []


def drawings(scope: Scope) -> Iterator[Drawing]:
    """A plot per group and declared figure that has a value."""
    for group in scope.groups:
        known = {one.name: one for row in group.rows if row.cell for one in row.cell.figures if one.value is not None}
        for name, one in known.items():
            heading = f"{group.benchmark}: {name}, {group.precision}, {group.batch_text}"
            yield Drawing(f"{group.name}_{name}", heading, partial(draw, group, one), f"{name}, {one.unit}", group)


def draw(group: Group, figure: Figure, theme: Theme) -> Plot:
    """One figure over devices, a line per framework and size."""
    heading = f"{group.benchmark}: {figure.name}, {group.precision}, {group.batch_text}"
    plot, axes = draws.blank(theme, heading, figure.unit)
    labels, topologies = [], []
    for place, framework in enumerate(group.frameworks):
        sizes = dict.fromkeys(one.at for row in group.series(framework) if row.cell for one in row.cell.figures)
        for order, at in enumerate(sizes):
            one = series(group, framework, figure.name, at)
            if one.points:
                colour, last = theme.colour(place), one.points[-1]
                draws.line(axes, one, colour, theme, MARKERS[order % len(MARKERS)])
                labels.append((last.topology.world, last.value.median, one.name, reading(last.value.median), colour))
                topologies += [point.topology for point in one.points]
    draws.device_axis(axes, topologies, theme, share_scale=False)
    draws.legend(axes, theme, f"{figure.better} is better")
    draws.direct_labels(axes, labels, theme)
    return draws.or_nothing(plot, axes, bool(topologies), theme)


def series(group: Group, framework: str, name: str, at: object) -> Series:
    """The medians of one figure at one size."""
    label = framework if at is None else f"{framework}, {at}"
    found = (
        (row.topology, one.value)
        for row in group.series(framework) if row.cell
        for one in row.cell.figures if (one.name, one.at) == (name, at)
    )  # fmt: skip
    return Series(label, tuple(Point(topology, Value(label, value)) for topology, value in found if value is not None))


TOPIC = Topic("figures", "Figures", grid=grid, frame=frame, sheets=sheets, drawings=drawings)
