"""A table of the additional figures that a workload declares, and of its throughput in other units."""

from functools import partial

from throughline.numbers import reading
from throughline.records import Figure
from throughline.report.analysis.cells import Cell
from throughline.report.render.tables import Column, Table
from throughline.report.topic import Scope, Topic
from throughline.spec import job

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


TOPIC = Topic("figures", "Other figures", order=60, table=table)
