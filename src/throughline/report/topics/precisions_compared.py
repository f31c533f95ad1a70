"""Plots of throughput per device, which compare precisions."""

from collections.abc import Iterator, Sequence
from functools import partial

from matplotlib.figure import Figure as Plot

from throughline.numbers import reading
from throughline.records import Cell
from throughline.report.analysis.cells import PRECISIONS, Group
from throughline.report.analysis.values import Value
from throughline.report.render import plots as draws
from throughline.report.render.plots import Theme
from throughline.report.topic import Drawing, Scope, Topic


def drawings(scope: Scope) -> Iterator[Drawing]:
    """Yield one figure with all precisions for the files, and one per framework for the page.

    The page has them only if there are several precisions.
    """
    yield Drawing("precisions", "", partial(draw, scope.groups), on_page=False)
    measured = [(group, row) for group in scope.groups for row in group.rows if row.cell and row.cell.median_speed]
    if len({group.precision for group, _ in measured}) > 1:
        for index, name in enumerate(dict.fromkeys(row.framework for _, row in measured)):
            words = " ".join(
                f"{point.topology} {group.precision} {group.batch_name}: {reading(point.value.median)} {group.unit}."
                for group in scope.groups
                for point in draws.series(group, name, _per_device).points
            )
            heading = f"{name}: throughput per device by precision"
            yield Drawing(f"precisions-{index}", heading, partial(draw, scope.groups, only=name), words, in_files=False)


def draw(groups: Sequence[Group], theme: Theme, only: str | None = None) -> Plot:
    """Draw throughput per device over devices: a panel for each framework, a line for each precision and batch size.

    `only` is the name of a framework that is drawn alone. All panels have the same axes, also when drawn alone.
    """
    every = [
        (name, group.precision, theme.marker(order), series)
        for order, group in enumerate(groups)
        for name in group.frameworks
        if (series := draws.series(group, name, _per_device, f"{group.precision}, {group.batch_name}")).points
    ]
    points = [point for *_, series in every for point in series.points]
    frameworks = [only] if only else list(dict.fromkeys(name for name, *_ in every)) or [""]
    size = (theme.size[0], theme.size[1] * (1 if len(frameworks) == 1 else 0.82 * len(frameworks)))
    figure = Plot(figsize=size)
    for index, framework in enumerate(frameworks):
        axes = figure.add_axes(draws.inside(size, index, len(frameworks)))
        heading = f"{groups[0].benchmark if groups else ''}: throughput per device, {framework}"
        draws.style(axes, theme, heading.removesuffix(", "), f"{groups[0].unit if groups else 'throughput'} per device")
        draws.device_axis(axes, (point.topology for point in points), theme, share_scale=False)
        axes.set_ylim(0, 1.12 * max((point.value.high for point in points), default=1.0))
        labels = []
        for _, precision, marker, series in (drawn for drawn in every if drawn[0] == framework):
            colour = theme.colour(PRECISIONS.index(precision))
            labels.append(draws.line(axes, series, colour, theme, marker))
            for world, value in ((point.topology.world, point.value) for point in series.points):
                axes.vlines(world, value.low, value.high, color=colour, lw=1.2, zorder=2)
        words = "a flat line scales without loss; whiskers: range of the repeats"
        draws.finish(figure, axes, labels, theme, words)
    return figure


def _per_device(cell: Cell) -> Value | None:
    """Return the median of a cell per device, and the range of its repeats."""
    ends = (cell.min / cell.world_size, cell.max / cell.world_size) if cell.min and cell.max else ()
    return Value("", cell.median_speed / cell.world_size, ends) if cell.median_speed else None


TOPIC = Topic("precisions", "precisions compared", order=230, drawings=drawings)
