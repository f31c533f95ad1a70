"""The table of cost: money and hours per cell, the best value among them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from throughline.records import Cell
from throughline.report.numbers import reading
from throughline.report.render.grid import Column, Figure, Grid, Line, lines
from throughline.report.render.sheets import grid_topic
from throughline.report.topics import Scope

COLUMNS = (
    Column("price_per_device_hour", "device hour", "price"),
    Column("price_per_million_samples", "price", "million samples"),
    Column("samples_per_currency_unit", "samples", "per unit of money"),
    Column("task_hours", "hours", "task"),
    Column("task_price", "price", "task"),
    Column("energy_j_per_sample", "energy", "J per sample"),
)
CHEAPEST = COLUMNS[1]


def grid(scope: Scope) -> Grid:
    """A row per cell; the cheapest one is marked, and the fastest within twice its price is named."""
    made = lines(scope.groups, _figures)
    cells = [(line, line.row.cell.cost) for line in made if line.row.cell and line.row.cell.cost]
    sources = dict.fromkeys(cost.price_source for _, cost in cells if cost.price_source)
    tasks = dict.fromkeys(cost.task_samples for _, cost in cells if cost.task_samples)
    facts = [("price", source) for source in sources] + [("whole task", f"{samples:,} samples") for samples in tasks]
    best = _cheapest(made)
    if best is None:
        return Grid("cost", "Cost", COLUMNS, made, facts)
    marked = [replace(line, figures=_marked(line.figures)) if line is best else line for line in made]
    return Grid("cost", "Cost", COLUMNS, marked, facts, list(_value(made, best)))


def _figures(cell: Cell) -> list[Figure]:
    cost, energy = cell.cost, cell.energy_j_per_sample
    joules = Figure.of(energy, reading(energy), "no device told its energy")
    if cost is None:
        return [*[Figure(why="the summary is older than this figure")] * (len(COLUMNS) - 1), joules]
    money = cost.currency or ""

    def figure(name: str, unit: str = "") -> Figure:
        value = getattr(cost, name)
        return Figure.of(value, f"{reading(value)} {unit}".strip(), cost.reasons.get(name))

    price = cost.price_per_device_hour
    return [
        Figure.of(price, f"{price or 0.0:g} {money}", cost.reasons.get("per_million_samples")),
        figure("per_million_samples", money), figure("samples_per_currency_unit"),
        figure("task_hours"), figure("task_price", money), joules,
    ]  # fmt: skip


def _marked(figures: Sequence[Figure]) -> list[Figure]:
    return [replace(figure, kind="best") if index == 1 else figure for index, figure in enumerate(figures)]


def _cheapest(made: Iterable[Line]) -> Line | None:
    """The line with the least cost per sample, where all costs are in one currency."""
    priced = [(line, c) for line in made if line.row.cell and (c := line.row.cell.cost) and c.per_million_samples]
    if len({cost.currency for _, cost in priced}) != 1:
        return None
    return min(priced, key=lambda one: one[1].per_million_samples or 0.0)[0]


def _value(made: Sequence[Line], best: Line) -> Iterable[str]:
    cell = best.row.cell
    assert cell and cell.cost and cell.median_speed
    yield (
        f"best value: {_named(best)}, {reading(cell.cost.samples_per_currency_unit)} samples for 1 {cell.cost.currency}"
    )
    fastest = max(made, key=lambda line: line.row.cell.median_speed or 0.0 if line.row.cell else 0.0)
    other = fastest.row.cell
    if fastest is not best and other and other.cost and other.cost.per_million_samples and other.median_speed:
        dearer = other.cost.per_million_samples / (cell.cost.per_million_samples or 1.0)
        quicker = cell.median_speed / other.median_speed
        yield f"the fastest, {_named(fastest)}, takes {quicker:.2f} of its time for {dearer:.2f} times its money"


def _named(line: Line) -> str:
    return f"{line.row.shown} {line.row.topology}, {line.group.precision}, batch {line.group.batch}"


TOPIC = grid_topic("cost", "Cost", grid)
