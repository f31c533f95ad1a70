"""The table of all benchmarks and machines: what each option costs, and which is the best value."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from throughline import ratios
from throughline.files import write_text
from throughline.numbers import percent, reading, span
from throughline.report.analysis.break_even import BreakEven, break_evens
from throughline.report.analysis.machines import HERE, Compared, Option, software
from throughline.report.render import table_files
from throughline.report.render.tables import Column, Entry, Line, Table

COLUMNS = (
    Column("benchmark", "benchmark", style="text named"),
    Column("machine", "machine", style="text named"),
    Column("device", "device", style="text named"),
    Column("framework", "framework", names=True),
    Column("topology", "topology", style="text", by_value=True),
    Column("precision", "precision", style="text"),
    Column("batch", "batch", by_value=True),
    Column("throughput", "throughput", "median", by_value=True),
    Column("unit", "unit", style="text"),
    Column("repeats", "repeats", "valid", whole=True),
    Column("price_per_device_hour", "device hour", "price", by_value=True),
    Column("price_per_million_samples", "price", "million samples", by_value=True),
    Column("samples_per_currency_unit", "samples", "per unit of money", by_value=True),
    Column("task_hours", "hours", "task", by_value=True),
    Column("task_price", "price", "task", by_value=True),
    Column("currency", "currency", style="text"),
    Column("best_value", "best value", style="text"),
)


def table(compared: Sequence[Compared]) -> Table:
    """Return a line for each option of every benchmark and machine, with the verdicts below it."""
    lines = [_line(same, option) for same in compared for option in same.options]
    costs = [option.cell.cost for same in compared for option in same.options]
    sources = dict.fromkeys(cost.price_source for cost in costs if cost.price_source)
    facts = [("price", source) for source in sources]
    notes = [text for same in compared for text in _verdict(same, compared)]
    notes += map(break_even, break_evens(compared))
    return Table(COLUMNS, lines, facts, notes, heading="All benchmarks and machines", spaced=True, style="grid")


def is_shown(compared: Sequence[Compared]) -> bool:
    """True if the page shows the table: it tells of other machines, or of the prices of several benchmarks."""
    options = [option for same in compared for option in same.options]
    priced = {option.side.group.benchmark for option in options if option.cell.cost.currency}
    return any(option.machine != HERE for option in options) or len(priced) > 1


def _line(same: Compared, option: Option) -> Line:
    group, row, cell = option.side.group, option.side.row, option.cell
    device, cost = group.device(row), cell.cost
    no_price = cost.reasons.get("per_million_samples")
    no_task = cost.reasons.get("task_hours")

    def figure(name: str, reason: str | None, read: Callable[[Any], str] = reading) -> Entry:
        return Entry.of(getattr(cost, name), read, reason)

    named = [same.benchmark, option.machine, device.name if device else "n/a"]
    price = figure("per_million_samples", no_price)
    return Line(
        [
            *map(Entry.words, named),
            Entry.framework(row),
            Entry(str(row.topology), str(row.topology)),
            Entry.words(group.precision),
            Entry(str(group.batch), group.batch),
            Entry.of(cell.median_speed, reading),
            Entry.words(group.unit),
            Entry(f"{cell.n_ok} of {cell.n}", cell.n_ok),
            figure("price_per_device_hour", no_price, lambda value: f"{value:.4g}"),
            price,
            figure("samples_per_currency_unit", no_price),
            figure("task_hours", no_task),
            figure("task_price", no_task or no_price),
            Entry.words((cost and cost.currency) or ""),
            _best(option),
        ],
        name=f"{same.benchmark}, {option.machine}",
    )


def _best(option: Option) -> Entry:
    html = Markup('<span class="best">{}</span>').format("★ yes") if option.best == "yes" else None
    return Entry(option.best, option.best or None, html=html)


def _verdict(same: Compared, compared: Sequence[Compared]) -> list[str]:
    """Return the sentences about the options of one benchmark that do the same work."""
    several = len({option.machine for option in same.options}) > 1
    apart = sum(other.benchmark == same.benchmark for other in compared) > 1
    machines = " and ".join(dict.fromkeys(option.machine for option in same.options))
    about = f"{same.benchmark} on {machines}" if apart else same.benchmark
    notes = [f"{about}: {_best_value(same)}"]
    if apart:
        notes.append(f"{about}: other cells of {same.benchmark} train other work (model, data or options), so no price "
                     "is compared with theirs")  # fmt: skip
    if several:
        notes += [f"{about}: the machines differ in software as well: {text}" for text in software(same.options)]
    return notes


def _best_value(same: Compared) -> str:
    best = [option for option in same.options if option.best]
    if not best:
        return f"no best value: {same.why}"
    money = best[0].cell.cost.currency
    named = [f"{_named(option)}: {_samples(option)}" for option in best]
    verdict = "best value" if len(best) == 1 else "best value: inconclusive"
    return f"{verdict}, samples for 1 {money}: {'; '.join(named)}"


def _named(option: Option) -> str:
    group, row = option.side.group, option.side.row
    return f"{option.machine}, {row.shown} {row.topology}, {group.precision}, {group.batch_name}"


def _samples(option: Option) -> str:
    return reading(option.cell.cost.samples_per_currency_unit)


def break_even(found: BreakEven) -> str:
    """Say at which price of a device hour one machine is worth as much as the other."""
    base, other, tested = found.base, found.other, found.tested
    ends = f" ({span((tested.low, tested.high), 3)} with {percent(ratios.INTERVAL)})" if tested else ""
    text = (
        f"break-even on {_devices(other)}: a device hour of {_machine(other)} is worth {found.ratio:.3f}{ends} device "
        f"hours of {_machine(base)}"
    )
    price, money = found.base_price, base.cell.cost.currency
    if price:
        at = f" ({span((price * tested.low, price * tested.high))})" if tested else ""
        text += (
            f". At {price:.4g} {money} for the latter, its break-even price is {price * found.ratio:.2f}{at} {money}"
        )
    if found.verdict:
        paid = f"{other.cell.cost.price_per_device_hour:.4g} {money}"
        told = "not distinguishable from it" if found.verdict == "inconclusive" else f"{found.verdict} it"
        text += f"; its price, {paid}, is {told}"
    if not tested:
        text += f". Its interval is not known: a test needs {ratios.LEAST_REPEATS} repeats on each side"
    return f"{text}. Compared: {_named(other)}, and {_named(base)}"


def _devices(option: Option) -> str:
    world = option.cell.world_size
    return f"{world} device{'s' if world > 1 else ''}"


def _machine(option: Option) -> str:
    """Return a machine with the name of its devices."""
    device = option.side.group.device(option.side.row)
    return f"{option.machine} ({device.name})" if device else option.machine


def write(compared: Sequence[Compared], output: Path) -> None:
    """Write the table as CSV, unrounded, and beside it as Markdown."""
    shown = table(compared)
    write_text(output, table_files.csv(shown).to_csv(index=False, lineterminator="\n"))
    write_text(output.with_suffix(".md"), table_files.markdown(shown))
