"""A table and plots of the additional figures that a workload declares, and of its throughput in other units."""

from collections.abc import Iterator
from functools import partial

from matplotlib.figure import Figure as Plot

from throughline.numbers import reading
from throughline.records import Figure
from throughline.report.analysis.cells import Cell, Group
from throughline.report.render import plots as draws
from throughline.report.render.plots import Theme
from throughline.report.render.tables import Column, Table
from throughline.report.topic import Drawing, Scope, Topic
from throughline.spec import job
from throughline.workloads import LATENCY

Key = tuple[str, object, str]


def _key(figure: Figure) -> Key:
    """Return the name, the size and the unit of a figure."""
    return figure.name, figure.at, figure.unit


def _value(key: Key, cell: Cell) -> float | None:
    """Return the median of one figure at one size."""
    return next((figure.value for figure in cell.record.figures if _key(figure) == key), None)


def table(scope: Scope) -> Table | None:
    """Return a row for each cell; None if no record has such a figure or another unit.

    The figures of single calls have a topic of their own.
    """
    figures = [figure for cell in scope.cells if cell.group.trains for figure in cell.record.figures]
    declared = {_key(figure): figure for figure in figures if figure.name not in job.FIGURES}
    columns = []
    for unit in dict.fromkeys(unit for cell in scope.cells for unit in cell.record.other_units):
        name = unit.replace("/", "_per_")
        columns += [
            Column(name, unit, "median", partial(_speed, unit, False), reading),
            Column(f"{name}_per_device", unit, "per device", partial(_speed, unit, True), reading),
        ]
    for key, figure in declared.items():
        parts = [str(part) for part in (figure.name, figure.at, figure.unit) if part is not None]
        size = [] if figure.at is None else [f"at {figure.at}"]
        small = ", ".join([*size, figure.unit, f"{figure.better} is better"])
        columns.append(Column("_".join(parts), figure.name, small, partial(_value, key), reading))
    return Table.of_groups(scope.groups, columns) if columns else None


def _speed(unit: str, per_device: bool, cell: Cell) -> float | None:
    speed = cell.record.other_units.get(unit)
    return speed / cell.topology.world if speed and per_device else speed


def drawings(scope: Scope) -> Iterator[Drawing]:
    """Yield a plot for each group and declared figure that has a value.

    Latency is the inverse of the throughput, which has plots of its own. So it has one only where tables of others
    state single iterations.
    """
    for group in filter(lambda group: group.trains, scope.groups):
        left_out = (*job.FIGURES, *(() if group.by_iteration else (LATENCY.name,)))
        figures = (figure for cell in group.cells for figure in cell.record.figures if figure.value is not None)
        for name, figure in {figure.name: figure for figure in figures if figure.name not in left_out}.items():
            heading = f"{group.benchmark}: {name}, {group.settings}"
            draw = partial(_draw, group, figure, heading)
            yield Drawing(f"{group.name}_{name}", heading, draw, group)


def _draw(group: Group, figure: Figure, heading: str, theme: Theme) -> Plot:
    """Draw one figure over devices, with a line for each framework and size."""
    plot, axes = draws.blank(theme, heading, figure.unit)
    labels, topologies = [], []
    for index, framework in enumerate(group.frameworks):
        sizes = dict.fromkeys(each.at for cell in group.series(framework) for each in cell.record.figures)
        for order, at in enumerate(sizes):
            name = framework if at is None else f"{framework}, {at}"
            line = draws.series(group, framework, partial(_value, (figure.name, at, figure.unit)), name)
            if line.points:
                labels.append(draws.line(axes, line, theme.colour(index), theme, theme.marker(order)))
                topologies += [point.topology for point in line.points]
    draws.device_axis(axes, topologies, share_scale=False)
    return draws.finish(plot, axes, labels, theme, f"{figure.better} is better")


TOPIC = Topic("figures", "Other figures", order=60, table=table, drawings=drawings)
