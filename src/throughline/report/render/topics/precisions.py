"""Precisions side by side: throughput per device over devices, in a panel for each framework."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from throughline.report.analysis.cells import PRECISIONS, Group, Row
from throughline.report.numbers import reading
from throughline.report.render import axes as draws
from throughline.report.render.axes import MARKERS, Label
from throughline.report.render.theme import Theme
from throughline.report.topics import Drawing, Scope, Topic


def drawings(scope: Scope) -> Iterator[Drawing]:
    """All of them in one file; on the page one figure per framework, where there are several precisions."""
    yield Drawing("precisions", "", partial(precisions, scope.groups), on_page=False)
    measured = [(group, row) for group in scope.groups for row in group.rows if row.cell and row.cell.median_speed]
    if len({group.precision for group, _ in measured}) > 1:
        for index, name in enumerate(dict.fromkeys(row.framework for _, row in measured)):
            words = " ".join(
                f"{row.topology} {group.precision} batch {group.batch}: {reading(_per_device(row))} {group.unit}."
                for group, row in measured if row.framework == name
            )  # fmt: skip
            heading = f"{name}: throughput per device by precision"
            draw = partial(precisions, scope.groups, only=name)
            yield Drawing(f"precisions-{index}", heading, draw, words, in_files=False)


def precisions(groups: Sequence[Group], theme: Theme, only: str | None = None) -> Figure:
    """Throughput per device over devices, a panel per framework (or `only` one), a line per precision and batch size.

    All panels have the same axes, also those that are drawn one by one.
    """
    measured = [row for group in groups for name in group.frameworks for row in group.series(name)]
    frameworks = [only] if only else list(dict.fromkeys(row.framework for row in measured)) or [""]
    top = max((row.cell.max / row.topology.world for row in measured if row.cell and row.cell.max), default=1.0)
    size = (theme.size[0], theme.size[1] * (1 if len(frameworks) == 1 else 0.82 * len(frameworks)))
    figure = Figure(figsize=size)
    for index, framework in enumerate(frameworks):
        axes = figure.add_axes(draws.inside(size, index, len(frameworks)))
        heading = f"{groups[0].benchmark if groups else ''}: throughput per device, {framework}"
        draws.style(axes, theme, heading.removesuffix(", "), f"{groups[0].unit if groups else 'throughput'} per device")
        draws.device_axis(axes, [row.topology for row in measured], theme, share_scale=False)
        axes.set_ylim(0, top * 1.12)
        labels = [
            _precision(axes, group, group.series(framework), order, theme)
            for order, group in enumerate(groups)
            if group.series(framework)
        ]
        draws.legend(axes, theme, "a flat line scales without loss; whiskers: range of the repeats")
        draws.direct_labels(axes, labels, theme)
        draws.or_nothing(figure, axes, bool(labels), theme)
    return figure


def _precision(axes: Axes, group: Group, rows: Sequence[Row], order: int, theme: Theme) -> Label:
    """One line of `precisions`: colour by precision, marker by the group's place."""
    colour = theme.colour(PRECISIONS.index(group.precision))
    worlds = [row.topology.world for row in rows]
    values = [_per_device(row) for row in rows]
    axes.plot(
        worlds, values, "-", marker=MARKERS[order % len(MARKERS)], color=colour, lw=1.6, ms=6, mec=theme.surface,
        mew=1.0, zorder=3,
    )  # fmt: skip
    for row, world in zip(rows, worlds, strict=True):
        if row.cell and row.cell.min and row.cell.max:
            axes.vlines(world, row.cell.min / world, row.cell.max / world, color=colour, lw=1.2, zorder=2)
    return worlds[-1], values[-1], f"{group.precision}, batch {group.batch}", reading(values[-1]), colour


def _per_device(row: Row) -> float:
    return (row.cell.median_speed or 0.0 if row.cell else 0.0) / row.topology.world


TOPIC = Topic("precisions", "precisions compared", drawings=drawings)
