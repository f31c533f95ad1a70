"""A table of what training costs: price and energy for each cell, with the cheapest cell marked."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from throughline.numbers import reading
from throughline.records import Cell
from throughline.report.analysis import judged_pairs
from throughline.report.analysis.best_value import by_value
from throughline.report.analysis.sides import Side
from throughline.report.render.tables import CellLine, Column, Entry, Table, lines, read
from throughline.report.topic import Scope, Topic

COLUMNS = (
    Column("price_per_device_hour", "device hour", "price"),
    Column("price_per_million_samples", "price", "million samples"),
    Column("samples_per_currency_unit", "samples", "per unit of money"),
    Column("task_hours", "hours", "task"),
    Column("task_price", "price", "task"),
    Column("energy_j_per_sample", "energy", "J per sample"),
)


def table(scope: Scope) -> Table:
    """Return a row for each cell. The best value is marked and named if the repeats tell it apart from all others."""
    cells = lines(scope.groups, _cost)
    costs = [line.row.cell.cost for line in cells if line.row.cell and line.row.cell.cost]
    sources = dict.fromkeys(cost.price_source for cost in costs if cost.price_source)
    tasks = dict.fromkeys(cost.task_samples for cost in costs if cost.task_samples)
    facts = [("price", source) for source in sources] + [("whole task", f"{samples:,} samples") for samples in tasks]
    ranked = [line for line in cells if line.group and line.row and not line.row.unequal]
    again = judged_pairs.twice_measured(scope.groups, scope.everything, ())
    best = by_value([Side(line.group, line.row) for line in ranked], again)
    found = {id(side.row) for side in best}
    if not best:
        return Table(COLUMNS, cells, facts)
    first = next(line for line in ranked if line.row is best[0].row)
    alike = [line for line in ranked if id(line.row) in found and line is not first]
    if not alike:
        hour, price, *others = first.entries
        marked = replace(first, entries=[hour, replace(price, kind="best"), *others])
        cells = [marked if line is first else line for line in cells]
    return Table(COLUMNS, cells, facts, list(_value(ranked, first, alike)))


def _cost(cell: Cell) -> list[Entry]:
    cost, old = cell.cost, "the summary is older than this figure"
    money = cost.currency or "" if cost else ""

    def text(name: str, value: float) -> str:
        return f"{reading(value)} {money if name in ('per_million_samples', 'task_price') else ''}".strip()

    names = ("per_million_samples", "samples_per_currency_unit", "task_hours", "task_price")
    reason = cost.reasons.get("per_million_samples") if cost else old
    hour = Entry.of(cost.price_per_device_hour if cost else None, lambda price: f"{price:g} {money}", reason)
    joules = Entry.of(cell.energy_j_per_sample, reading, "no device told its energy")
    return [hour, *read(cost, names, text, old), joules]


def _value(lines: Sequence[CellLine], best: CellLine, alike: Sequence[CellLine]) -> Iterator[str]:
    """Name the best value and the fastest cell. alike: the cells that are not told apart from the best value."""
    cell = best.row.cell
    assert cell and cell.cost and cell.median_speed
    if alike:
        every = [f"{_named(line)}: {_samples(line)}" for line in (best, *alike)]
        yield f"best value: not told apart, samples for 1 {cell.cost.currency}: {'; '.join(every)}"
        return
    yield f"best value: {_named(best)}, {_samples(best)} samples for 1 {cell.cost.currency}"
    fastest = max(lines, key=lambda line: line.row.cell.median_speed or 0.0 if line.row.cell else 0.0)
    other = fastest.row.cell
    if fastest is not best and other and other.cost and other.cost.per_million_samples and other.median_speed:
        dearer = other.cost.per_million_samples / (cell.cost.per_million_samples or 1.0)
        quicker = cell.median_speed / other.median_speed
        yield (
            f"fastest: {_named(fastest)}; for the same samples it needs {quicker:.2f} times the time of the "
            f"best value and costs {dearer:.2f} times as much"
        )


def _samples(line: CellLine) -> str:
    cost = line.row.cell.cost if line.row.cell else None
    return reading(cost.samples_per_currency_unit if cost else None)


def _named(line: CellLine) -> str:
    return f"{line.row.shown} {line.row.topology}, {line.group.precision}, {line.group.batch_name}"


TOPIC = Topic("cost", "Cost", order=140, table=table)
