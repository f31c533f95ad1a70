"""The table of cost: money and hours per cell, the best value among them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from throughline.records import Cell
from throughline.report.numbers import reading
from throughline.report.render.tables import Column, Figure, Grid, Line, lines, read
from throughline.report.topics import Scope, Topic

COLUMNS = (
    Column("price_per_device_hour", "device hour", "price"),
    Column("price_per_million_samples", "price", "million samples"),
    Column("samples_per_currency_unit", "samples", "per unit of money"),
    Column("task_hours", "hours", "task"),
    Column("task_price", "price", "task"),
    Column("energy_j_per_sample", "energy", "J per sample"),
)


def grid(scope: Scope) -> Grid:
    """A row per cell; the cheapest one is marked, and the fastest within twice its price is named."""
    made = lines(scope.groups, _figures)
    costs = [line.row.cell.cost for line in made if line.row.cell and line.row.cell.cost]
    sources = dict.fromkeys(cost.price_source for cost in costs if cost.price_source)
    tasks = dict.fromkeys(cost.task_samples for cost in costs if cost.task_samples)
    facts = [("price", source) for source in sources] + [("whole task", f"{samples:,} samples") for samples in tasks]
    best = _cheapest(made)
    if best is None:
        return Grid(COLUMNS, made, facts)
    hour, price, *others = best.figures
    marked = replace(best, figures=[hour, replace(price, kind="best"), *others])
    return Grid(COLUMNS, [marked if line is best else line for line in made], facts, list(_value(made, best)))


def _figures(cell: Cell) -> list[Figure]:
    cost, old = cell.cost, "the summary is older than this figure"
    money = cost.currency or "" if cost else ""

    def text(name: str, value: float) -> str:
        return f"{reading(value)} {money if name in ('per_million_samples', 'task_price') else ''}".strip()

    names = ("per_million_samples", "samples_per_currency_unit", "task_hours", "task_price")
    why = cost.reasons.get("per_million_samples") if cost else old
    hour = Figure.of(cost.price_per_device_hour if cost else None, lambda price: f"{price:g} {money}", why)
    joules = Figure.of(cell.energy_j_per_sample, reading, "no device told its energy")
    return [hour, *read(cost, names, text, old), joules]


def _cheapest(made: Iterable[Line]) -> Line | None:
    """The line with the least cost per sample, where all costs are in one currency."""
    priced = [(line, c) for line in made if line.row.cell and (c := line.row.cell.cost) and c.per_million_samples]
    if len({cost.currency for _, cost in priced}) != 1:
        return None
    return min(priced, key=lambda one: one[1].per_million_samples or 0.0)[0]


def _value(made: Sequence[Line], best: Line) -> Iterator[str]:
    cell = best.row.cell
    assert cell and cell.cost and cell.median_speed
    samples = reading(cell.cost.samples_per_currency_unit)
    yield f"best value: {_named(best)}, {samples} samples for 1 {cell.cost.currency}"
    fastest = max(made, key=lambda line: line.row.cell.median_speed or 0.0 if line.row.cell else 0.0)
    other = fastest.row.cell
    if fastest is not best and other and other.cost and other.cost.per_million_samples and other.median_speed:
        dearer = other.cost.per_million_samples / (cell.cost.per_million_samples or 1.0)
        quicker = cell.median_speed / other.median_speed
        yield f"the fastest, {_named(fastest)}, takes {quicker:.2f} of its time for {dearer:.2f} times its money"


def _named(line: Line) -> str:
    return f"{line.row.shown} {line.row.topology}, {line.group.precision}, batch {line.group.batch}"


TOPIC = Topic("cost", "Cost", grid=grid)
