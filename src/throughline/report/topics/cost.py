"""A table of what training costs: price and energy for each cell, with the cheapest cell marked."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from throughline.numbers import reading
from throughline.ratios import Tested
from throughline.records import Cell
from throughline.report.analysis import judged_pairs
from throughline.report.analysis.best_value import Rated, best_of, by_value, ratio
from throughline.report.analysis.noise import Twice
from throughline.report.analysis.sides import Side, in_rounds
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
    costs = [line.row.cell.cost for line in cells if line.row.cell]
    sources = dict.fromkeys(cost.price_source for cost in costs if cost.price_source)
    tasks = dict.fromkeys(cost.total_samples for cost in costs if cost.total_samples)
    facts = [("price", source) for source in sources] + [("whole task", f"{samples:,} samples") for samples in tasks]
    ranked = [line for line in cells if line.group and line.row and not line.row.unequal]
    again = judged_pairs.twice_measured(scope.groups, scope.everything, ())
    best = by_value(list(map(_side, ranked)), again)
    found = {id(side.row) for side in best}
    if not best:
        return Table(COLUMNS, cells, facts)
    first = next(line for line in ranked if line.row is best[0].row)
    alike = [line for line in ranked if id(line.row) in found and line is not first]
    if not alike:
        hour, price, *others = first.entries
        marked = replace(first, entries=[hour, replace(price, kind="best"), *others])
        cells = [marked if line is first else line for line in cells]
    return Table(COLUMNS, cells, facts, list(_value(ranked, first, alike, again)))


def _cost(cell: Cell) -> list[Entry]:
    cost = cell.cost
    money = cost.currency or ""

    def text(name: str, value: float) -> str:
        return f"{reading(value)} {money if name in ('per_million_samples', 'task_price') else ''}".strip()

    names = ("per_million_samples", "samples_per_currency_unit", "task_hours", "task_price")
    reason = cost.reasons.get("per_million_samples")
    hour = Entry.of(cost.price_per_device_hour, lambda price: f"{price:g} {money}", reason)
    joules = Entry.of(cell.energy_j_per_sample, reading, "no device told its energy")
    return [hour, *read(cost, names, text), joules]


def _value(
    lines: Sequence[CellLine], best: CellLine, alike: Sequence[CellLine], again: Sequence[Twice]
) -> Iterator[str]:
    """Name the best value and the fastest cell. alike: the cells that cannot be distinguished from the best value."""
    cell = best.row.cell
    assert cell
    if alike:
        every = [f"{_named(line)}: {_samples(line)}" for line in (best, *alike)]
        yield f"best value: inconclusive, samples for 1 {cell.cost.currency}: {'; '.join(every)}"
        return
    yield f"best value: {_named(best)}, {_samples(best)} samples for 1 {cell.cost.currency}"
    rated = [(Rated(_side(line), 1.0), line) for line in lines if _side(line).value]
    named = {id(one): line for one, line in rated}
    fastest = [named[id(one)] for one in best_of([one for one, _ in rated], again)]
    if len(fastest) > 1:
        yield f"fastest: inconclusive: {'; '.join(map(_speed, fastest))}"
    elif fastest[0] is not best:
        yield f"fastest: {_speed(fastest[0])}{_beside(fastest[0], best, [one.side for one, _ in rated], again)}"


def _beside(fastest: CellLine, best: CellLine, every: Sequence[Side], again: Sequence[Twice]) -> str:
    """Return what the fastest cell takes for the same samples, as tested ratios over the best value."""
    found = ratio(Rated(_side(fastest), 1.0), Rated(_side(best), 1.0), again, paired=in_rounds(every))
    if not found:
        return ""
    text = f"; for the same samples it needs {_times(found, 1.0)} the time of the best value"
    hours = _per_hour(fastest), _per_hour(best)
    return f"{text} and costs {_times(found, hours[0] / hours[1])} as much" if hours[0] and hours[1] else text


def _per_hour(line: CellLine) -> float | None:
    """Return the price of an hour on all devices of a cell."""
    cell = line.row.cell
    price = cell.cost.price_per_device_hour if cell else None
    return price * cell.world_size if cell and price else None


def _times(found: Tested, factor: float) -> str:
    """Return a tested ratio with its interval, such as `0.17 times (0.16 to 0.18)`."""
    return f"{reading(factor * found.ratio)} times ({reading(factor * found.low)} to {reading(factor * found.high)})"


def _side(line: CellLine) -> Side:
    return Side(line.group, line.row)


def _speed(line: CellLine) -> str:
    value = _side(line).value
    return f"{_named(line)}, {reading(value.median if value else None)} {line.group.unit}"


def _samples(line: CellLine) -> str:
    cost = line.row.cell.cost if line.row.cell else None
    return reading(cost.samples_per_currency_unit if cost else None)


def _named(line: CellLine) -> str:
    return f"{line.row.shown} {line.row.topology}, {line.group.precision}, {line.group.batch_name}"


TOPIC = Topic("cost", "Cost", order=140, table=table)
