"""A table of what training costs: price and energy for each cell, with the cheapest cell marked."""

from dataclasses import replace

from throughline.numbers import reading
from throughline.report.analysis import judged_pairs
from throughline.report.analysis.cells import Cell
from throughline.report.render.tables import Column, Entry, Table
from throughline.report.topic import Scope, Topic


def _figure(name: str, heading: str, small: str, money: bool = False, key: str = "") -> Column:
    """Return the column of a field of a cell's cost, with its currency if it is `money`. key: if it is not the name."""

    def read(cell: Cell) -> Entry:
        cost = cell.record.cost
        reason = cost.reasons.get(name) or cost.reasons.get("per_million_samples")
        text = f"{{}} {cost.currency}" if money else "{}"
        shown = reading if "per_device_hour" not in name else "{:g}".format
        return Entry.of(getattr(cost, name), lambda value: text.format(shown(value)), reason)

    return Column(key or name, heading, small, read, optional=name == MONTHLY)


MONTHLY = "monthly_price_per_device_hour"
PRICE = _figure("per_million_samples", "price", "million samples", money=True, key="price_per_million_samples")
COLUMNS = (
    _figure("price_per_device_hour", "device hour", "price", money=True),
    _figure(MONTHLY, "device hour", "by the month", money=True),
    PRICE,
    _figure("samples_per_currency_unit", "samples", "per unit of money"),
    _figure("task_hours", "hours", "task"),
    _figure("task_price", "price", "task", money=True),
    Column("energy_j_per_sample", "energy", "J per sample", lambda cell: cell.record.energy_j_per_sample, reading,
           "no device told its energy"),
)  # fmt: skip


def table(scope: Scope) -> Table | None:
    """Return a line for each cell; None for a workload that trains nothing.

    The best value is marked and named if the repeats tell it apart from all others.
    """
    if not any(group.trains for group in scope.groups):
        return None
    costs = [cell.record.cost for cell in scope.cells]
    sources = dict.fromkeys(cost.price_source for cost in costs if cost.price_source)
    tasks = dict.fromkeys(cost.total_samples for cost in costs if cost.total_samples)
    facts = [("price", source) for source in sources] + [("whole task", f"{samples:,} samples") for samples in tasks]
    again, notes = judged_pairs.twice_measured(scope.groups, scope.everything), []
    best, _ = judged_pairs.best_value({cell: cell.record.cost for cell in scope.measured if not cell.barred}, again)
    if best:
        named = "; ".join(f"{cell.where}: {reading(cell.record.cost.samples_per_currency_unit)}" for cell in best)
        verdict = "best value" if len(best) == 1 else "best value: inconclusive"
        notes = [f"{verdict}, samples for 1 {best[0].record.cost.currency}: {named}"]

    def marked(cell: Cell) -> Entry:
        price = PRICE.entry(cell)
        return replace(price, kind="best") if best == [cell] else price

    columns = [replace(PRICE, read=marked) if column is PRICE else column for column in COLUMNS]
    return Table.of_groups(scope.groups, columns, facts=facts, notes=notes)


TOPIC = Topic("cost", "Cost", order=140, table=table)
