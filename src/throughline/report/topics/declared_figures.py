"""A table and plots of the additional figures that a workload declares, and of its throughput in other units."""

from collections.abc import Iterator
from functools import partial

from matplotlib.figure import Figure as Plot

from throughline.numbers import reading
from throughline.records import CellRecord, Figure
from throughline.report.analysis.cells import Cell, Group
from throughline.report.render import plots as draws
from throughline.report.render.plots import Theme
from throughline.report.render.tables import Column, Entry, Table, lines
from throughline.report.topic import Drawing, Scope, Topic
from throughline.spec import job
from throughline.workloads import LATENCY


def table(scope: Scope) -> Table | None:
    """Return a row for each cell; None if no record has such a figure or another unit.

    The figures of single calls have a topic of their own.
    """
    cells = [cell.record for cell in scope.cells]
    beside = [cell.record for cell in scope.cells if cell.group.trains]
    declared = {_key(figure): figure for cell in beside for figure in cell.figures if figure.name not in job.FIGURES}
    units = list(dict.fromkeys(unit for cell in cells for unit in cell.other_units))
    if not (declared or units):
        return None
    columns = []
    for unit in units:
        key = unit.replace("/", "_per_")
        columns += [Column(key, unit, "median"), Column(f"{key}_per_device", unit, "per device")]
    for key, figure in declared.items():
        size = [] if figure.at is None else [f"at {figure.at}"]
        columns.append(Column(key, figure.name, ", ".join([*size, figure.unit, f"{figure.better} is better"])))

    def shown(cell: CellRecord) -> list[Entry]:
        every = [cell.other_units.get(unit) for unit in units]
        speeds = [speed for value in every for speed in (value, value and value / cell.world_size)]
        values = {_key(figure): figure.value for figure in cell.figures}
        return [Entry.of(value, reading) for value in (*speeds, *map(values.get, declared))]

    return Table(columns, lines(scope.groups, shown), of_cells=True)


def _key(figure: Figure) -> str:
    """Return the name of a figure's column in the CSV: name, size and unit."""
    return "_".join([figure.name, *([str(figure.at)] if figure.at is not None else []), figure.unit])


def drawings(scope: Scope) -> Iterator[Drawing]:
    """Yield a plot for each group and declared figure that has a value.

    Latency is the inverse of the throughput, which has plots of its own. So it has one only where tables of others
    state single iterations.
    """
    for group in scope.groups:
        if not group.trains:
            continue
        left_out = () if group.by_iteration else (LATENCY.name,)
        every = (figure for cell in group.cells for figure in cell.record.figures if figure.value is not None)
        known = {figure.name: figure for figure in every if figure.name not in (*job.FIGURES, *left_out)}
        for name, figure in known.items():
            heading = f"{group.benchmark}: {name}, {group.precision}, {group.batch_text}"
            yield Drawing(
                f"{group.name}_{name}", heading, partial(draw, group, figure, heading), f"{name}, {figure.unit}", group
            )


def draw(group: Group, figure: Figure, heading: str, theme: Theme) -> Plot:
    """Draw one figure over devices, with a line for each framework and size."""
    plot, axes = draws.blank(theme, heading, figure.unit)
    labels, topologies = [], []
    for index, framework in enumerate(group.frameworks):
        sizes = dict.fromkeys(figure.at for cell in group.series(framework) for figure in cell.record.figures)
        for order, at in enumerate(sizes):
            name = framework if at is None else f"{framework}, {at}"
            line = draws.series(group, framework, partial(_value, figure.name, at), name)
            if line.points:
                labels.append(draws.line(axes, line, theme.colour(index), theme, theme.marker(order)))
                topologies += [point.topology for point in line.points]
    draws.device_axis(axes, topologies, theme, share_scale=False)
    return draws.finish(plot, axes, labels, theme, f"{figure.better} is better")


def _value(name: str, at: object, cell: Cell) -> float | None:
    """Return the median of one figure at one size."""
    figures = cell.record.figures
    return next((f.value for f in figures if (f.name, f.at) == (name, at) and f.value is not None), None)


TOPIC = Topic("figures", "Other figures", order=60, table=table, drawings=drawings)
