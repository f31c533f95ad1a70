"""All machines in one table: what a cell costs on each, which cell is the best value, and the break-even prices.

The break-even price is the price of a device hour at which one machine is worth as much as another. Both do the same
work on as many devices. Then a device hour of the one is worth as many device hours of the other as its throughput is
times the other's. The interval of that ratio is the one of two configurations (see `ratios`).
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from throughline import ratios
from throughline.grouping import grouped
from throughline.records import Cost
from throughline.records.compared import MachineCell
from throughline.report.analysis import cost, judged_pairs
from throughline.report.analysis.cells import Cell, Group
from throughline.report.analysis.comparison import Pair
from throughline.spec import canonical, values
from throughline.study.result_sections import Price

HERE = "here"
"""The name of the machine whose results the configuration makes."""


@dataclass(frozen=True, eq=False)
class Option:
    """A measured cell of a machine, with its cost."""

    machine: str
    cell: Cell
    cost: Cost

    @property
    def device(self) -> str | None:
        return self.cell.device.name if self.cell.device else None


def compare(machines: Mapping[str, Sequence[Group]], prices: Mapping[str, Price]) -> list[MachineCell]:
    """Return the measured cells whose work several machines do, by benchmark and cell, then by machine.

    A device has the price that `prices` names, otherwise the one of its own summary. Benchmarks that are derived from
    others, simulated nodes, and ranks that do not exchange are left out.
    """
    again = [twice for groups in machines.values() for twice in judged_pairs.measured_twice(groups)]
    alike = grouped(_options(machines, prices), lambda option: work(option.cell))
    shared = [options for options in alike.values() if len({option.machine for option in options}) > 1]
    found = [cell for number, options in enumerate(shared, start=1) for cell in _cells(number, options, again)]
    benchmarks = list(dict.fromkeys(cell.benchmark for cell in found))
    names = list(dict.fromkeys(cell.name for cell in found))
    return sorted(found, key=lambda cell: (benchmarks.index(cell.benchmark), names.index(cell.name)))


def _options(machines: Mapping[str, Sequence[Group]], prices: Mapping[str, Price]) -> Iterator[Option]:
    cells = [(machine, cell) for machine, groups in machines.items() for group in groups for cell in group.measured]
    tasks: dict[str, int] = {}  # the samples of a whole training; the first machine that states them counts
    for _, cell in cells:
        if cell.record.cost.total_samples:
            tasks.setdefault(cell.group.benchmark, cell.record.cost.total_samples)
    for machine, cell in cells:
        group = cell.group
        if "__" not in group.benchmark and group.exchanges and not cell.record.simulated:
            rated, task = _rate(machine, cell, prices), tasks.get(group.benchmark)
            yield Option(machine, cell, cost.of(cell.median, cell.topology.world, rated, task))


def _rate(machine: str, cell: Cell, prices: Mapping[str, Price]) -> cost.Rate | str:
    """Return the price of a cell's device by `prices`; without such a price, the one that its summary states."""
    rated, stated = cost.rate(cell.device, prices), cell.record.cost
    is_named = isinstance(rated, cost.Rate) and rated.source.startswith("prices.")
    if is_named or not (stated.price_per_device_hour and stated.currency):
        return rated
    whose = "" if machine == HERE else f"{machine}: "
    return cost.Rate(stated.price_per_device_hour, stated.currency, whose + (stated.price_source or "its summary"))


def work(cell: Cell) -> str:
    """Return everything that decides the work of a cell, apart from its devices, framework, precision and batch."""
    summary = cell.group.summary
    job = values(summary.job) if summary.job else None
    options = summary.options
    alike: list[Any] = [summary.model, summary.parameters, summary.unit, summary.scaling, job, summary.optimizer.name]
    alike += [options.data, options.dropout, options.clip, cell.facts.get("data.content_digest")]
    return canonical(json.loads(json.dumps(alike, default=str)))


def _cells(work: int, options: Sequence[Option], again: Sequence[Pair]) -> Iterator[MachineCell]:
    """Yield the options that do the same work, with the best value of each benchmark and the break-even prices."""
    even = dict(_break_evens([option for option in options if not option.cell.barred], again))
    for benchmark in dict.fromkeys(option.cell.group.benchmark for option in options):
        same = [option for option in options if option.cell.group.benchmark == benchmark]
        costs = {option.cell: option.cost for option in same if not option.cell.barred}
        best, why = judged_pairs.best_value(costs, again)
        for option in same:
            cell, money = option.cell, option.cost
            yield MachineCell(
                work=work,
                machine=option.machine,
                device=option.device,
                benchmark=benchmark,
                framework=cell.shown,
                topology=str(cell.topology),
                precision=cell.group.precision,
                batch=cell.group.batch,
                throughput=cell.median,
                unit=cell.group.unit,
                repeats=cell.record.n_ok,
                price_per_device_hour=money.price_per_device_hour,
                price_per_million_samples=money.per_million_samples,
                samples_per_currency_unit=money.samples_per_currency_unit,
                task_hours=money.task_hours,
                task_price=money.task_price,
                currency=money.currency,
                best_value=None if why else "" if cell not in best else "yes" if len(best) == 1 else "inconclusive",
                price_source=money.price_source,
                reasons=money.reasons | ({"best_value": why} if why else {}),
                **even.get(option, {}),
            )


def _break_evens(options: Iterable[Option], again: Sequence[Pair]) -> Iterator[tuple[Option, dict[str, Any]]]:
    """Yield the fields of the break-even price of each machine and device, against the first one.

    The fastest options are compared, on the fewest and on the most devices that both were measured on.
    """
    kinds: dict[tuple[str, str], dict[int, Option]] = {}
    for option in options:
        if option.device:
            fastest, number = kinds.setdefault((option.machine, option.device), {}), option.cell.topology.world
            fastest[number] = max(fastest.get(number, option), option, key=lambda one: one.cell.median)
    base, *others = kinds.values() or [{}]
    for other in others:
        both = sorted(base.keys() & other.keys())
        for number in dict.fromkeys([*both[:1], *both[-1:]]):
            yield other[number], _break_even(base[number], other[number], again)


def _break_even(base: Option, other: Option, again: Sequence[Pair]) -> dict[str, Any]:
    noise = judged_pairs.noise_of((base.cell, other.cell), again)
    tested = ratios.tested(base.cell.repeats, other.cell.repeats, paired=False, noise=noise)
    worth = tested.ratio if tested else other.cell.median / base.cell.median
    price, paid = base.cost.price_per_device_hour, other.cost.price_per_device_hour
    fields: dict[str, Any] = {
        "break_even_with": f"{base.machine} ({base.device}): {base.cell.where}",
        "worth": worth,
        "break_even_price": price and price * worth,
        "break_even_currency": base.cost.currency if price else None,
    }
    if tested:
        fields |= {"worth_at_least": tested.low, "worth_at_most": tested.high}
    if tested and price:
        low, high = price * tested.low, price * tested.high
        fields |= {"break_even_at_least": low, "break_even_at_most": high}
        if paid and base.cost.currency == other.cost.currency:
            fields["price_is"] = "below" if paid < low else "above" if paid > high else "inconclusive"
    return fields
