"""The cells of all benchmarks and machines, with one set of prices, and which of them are the best value."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from throughline.records import Cell
from throughline.report.analysis import cost, noise
from throughline.report.analysis.best_value import by_value
from throughline.report.analysis.cells import Group, Row
from throughline.report.analysis.sides import Side
from throughline.spec import canonical, values
from throughline.study.result_sections import Price

SOFTWARE = ("environment.framework.", "environment.code")
"""Facts that are no part of a machine: versions of the framework's libraries, and the digest of the measured code."""
HERE = "this machine"
"""The name of the machine whose results the configuration makes."""


@dataclass(frozen=True)
class Option:
    """A measured cell of a machine. best: `yes`, or `inconclusive` with the cheapest, or empty."""

    machine: str
    side: Side
    best: str = ""

    @property
    def cell(self) -> Cell:
        assert self.side.row.cell
        return self.side.row.cell


@dataclass(frozen=True)
class Compared:
    """The options that do the same work, so that their prices can be compared, and why no best value is named.

    again: the A/A runs of all machines, which say how much whole measurements differ.
    """

    benchmark: str
    options: tuple[Option, ...]
    why: str = ""
    again: tuple[noise.Twice, ...] = ()


def compare(machines: Mapping[str, Sequence[Group]], prices: Mapping[str, Price]) -> list[Compared]:
    """Return the measured cells of all benchmarks and machines, those that do the same work together.

    A device has the price that `prices` names, otherwise the one of its own summary. Benchmarks that are derived from
    others, simulated nodes, and ranks that do not exchange are no options.
    """
    again = [twice for groups in machines.values() for twice in noise.measured_twice(groups)]
    alike: dict[tuple[str, str], list[Option]] = {}
    tasks = _tasks(machines)
    for machine, groups in machines.items():
        for group in groups:
            for row in group.measured if "__" not in group.benchmark and group.exchanges else ():
                if row.cell and not row.cell.simulated:
                    whose = "" if machine == HERE else f"{machine}: "
                    side = Side(group, _priced(group, row, prices, tasks.get(group.benchmark), whose))
                    alike.setdefault((group.benchmark, work(group, row)), []).append(Option(machine, side))
    benchmarks = [name for name, _ in alike]
    order = sorted(alike, key=lambda key: benchmarks.index(key[0]))
    return [_judged(key[0], alike[key], again) for key in order]


def _tasks(machines: Mapping[str, Sequence[Group]]) -> dict[str, int]:
    """Return the samples of each benchmark's whole training. The first machine that states them counts."""
    tasks: dict[str, int] = {}
    for group in (group for groups in machines.values() for group in groups):
        for row in group.measured:
            if row.cell and row.cell.cost.total_samples:
                tasks.setdefault(group.benchmark, row.cell.cost.total_samples)
    return tasks


def _priced(group: Group, row: Row, prices: Mapping[str, Price], task: int | None, whose: str) -> Row:
    """Return a row with the cost of its device by `prices`; without such a price, the one that its summary states.

    whose: begins the source of a price that its summary states.
    """
    cell = row.cell
    assert cell
    device, stated = group.device(row), cell.cost
    rated = cost.rate(device, prices)
    named = isinstance(rated, cost.Rate) and rated.source.startswith("prices.")
    if not named and stated.price_per_device_hour and stated.currency:
        source = whose + (stated.price_source or "its summary")
        rated = cost.Rate(stated.price_per_device_hour, stated.currency, source)
    priced = cost.of(cell.median_speed, cell.world_size, rated, task)
    return replace(row, cell=cell.model_copy(update={"cost": priced}))


def work(group: Group, row: Row) -> str:
    """Return everything that decides the work of a cell, apart from its devices, framework, precision and batch."""
    summary = group.summary
    assert summary
    job = values(summary.job) if summary.job else None
    options = summary.options
    alike: list[Any] = [summary.model, summary.parameters, summary.unit, summary.scaling, job, summary.optimizer.name]
    alike += [options.data, options.dropout, options.clip, group.facts(row).get("data.content_digest")]
    return canonical(json.loads(json.dumps(alike, default=str)))


def _judged(benchmark: str, options: Sequence[Option], again: Sequence[noise.Twice]) -> Compared:
    """Name the best value of options that do the same work, or say why there is none."""
    ranked = [option for option in options if not option.side.row.unequal]
    currencies = sorted({cost.currency for option in ranked if (cost := option.cell.cost).currency})
    best = by_value([option.side for option in ranked], again)
    verdict = "yes" if len(best) == 1 else "inconclusive"
    found = {id(side) for side in best}
    judged = tuple(replace(option, best=verdict if id(option.side) in found else "") for option in options)
    why = ""
    if not best:
        why = f"prices are in {' and '.join(currencies)}" if len(currencies) > 1 else "no price is known"
    return Compared(benchmark, judged, why, tuple(again))


def software(options: Iterable[Option]) -> Iterator[str]:
    """Yield what differs in the software of a framework between these cells, such as `torch: cuda is 12.8 and 13.0`."""
    seen: dict[str, dict[str, dict[str, None]]] = {}
    for option in options:
        facts = option.side.group.facts(option.side.row)
        for key, value in facts.items():
            if key.startswith(SOFTWARE) and value is not None:
                values_of = seen.setdefault(option.side.row.framework, {}).setdefault(key.rpartition(".")[2], {})
                values_of[str(value)] = None
    for framework, parts in seen.items():
        differ = [f"{name} is {' and '.join(found)}" for name, found in parts.items() if len(found) > 1]
        if differ:
            yield f"{framework}: {', '.join(differ)}"
