"""The table over all machines: what each cell costs there, which is the best value, and the break-even prices."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from markupsafe import Markup

from throughline import ratios
from throughline.numbers import percent, reading, span
from throughline.records.compared import BreakEven, MachineCell
from throughline.report.render.tables import CSV, NOT_KNOWN, PAGE, Column, Entry, Line, Table
from throughline.report.topic import Topic

INTRO = (
    "The cells whose work several machines do: the same model, data, optimizer, dropout, clipping and job. The best "
    "value is the lowest price per sample. It is named only if all prices are in one currency and the repeats tell it "
    "apart from all others. At the break-even price of a device hour, a machine is worth as much as the first one; the "
    "fastest cells on the fewest and on the most devices of both say it, with an interval of "
    f"{percent(ratios.INTERVAL)}."
)
NO_PAIR = "only the fastest cell on the fewest and on the most devices is compared with the first machine"
NO_PRICE = "no price of the first machine is known"
TWO_LINES = Markup("{}<small>{}</small>")
Read = Callable[[MachineCell], Entry]


def _cost(name: str, read: Callable[[Any], str] = reading) -> Read:
    reason = name if name in ("task_hours", "task_price") else "per_million_samples"
    return lambda cell: Entry.of(getattr(cell.cost, name), read, cell.cost.reasons.get(reason))


def _money(name: str, read: Callable[[Any], str] = reading) -> Read:
    """Return the reader of a price, with its currency in the text."""
    return lambda cell: _cost(name, lambda price: f"{read(price)} {cell.cost.currency}")(cell)


def _machine(cell: MachineCell) -> Entry:
    name = f"{cell.machine}, {cell.device}" if cell.device else cell.machine
    return Entry(cell.machine, cell.machine, html=Markup('{}<br><span class="quiet">{}</span>').format(name, cell.name))


def _task(cell: MachineCell) -> Entry:
    hours, price = cell.cost.task_hours, cell.cost.task_price
    if hours is None:
        return Entry(reason=cell.cost.reasons.get("task_hours"))
    money = f"{reading(price)} {cell.cost.currency}" if price else NOT_KNOWN
    return Entry("", hours, html=TWO_LINES.format(f"{reading(hours)} h", money))


def _best(cell: MachineCell) -> Entry:
    if cell.best_value is None:
        return Entry(reason=cell.why)
    html = Markup('<span class="best">{}</span>').format("★ yes") if cell.best_value == "yes" else None
    return Entry(cell.best_value, cell.best_value or None, html=html)


def _even(read: Callable[[BreakEven], Entry]) -> Read:
    return lambda cell: read(cell.break_even) if cell.break_even else Entry("", reason=NO_PAIR)


def _worth(even: BreakEven) -> Entry:
    entry = _with_interval(even.worth, even.worth_at_least, even.worth_at_most, 3)
    return replace(entry, reason=f"compared with {even.against}")


def _with_interval(value: float | None, low: float | None, high: float | None, places: int) -> Entry:
    interval = span((low, high), places) if low and high else ""
    html = TWO_LINES.format("" if value is None else f"{value:.{places}f}", interval)
    return Entry("", value, html=html) if value else Entry(reason=NO_PRICE)


COLUMNS: Sequence[tuple[Column, Read]] = (
    (Column("work", forms=(CSV,), whole=True), lambda cell: Entry(value=cell.work)),
    (Column("machine", "machine and cell", style="text", names=True), _machine),
    (Column("device", forms=(CSV,)), lambda cell: Entry(value=cell.device)),
    *(
        (Column(key, forms=(CSV,)), lambda cell, key=key: Entry(value=getattr(cell, key)))
        for key in ("benchmark", "framework", "topology", "precision", "batch")
    ),
    (
        Column("throughput", "throughput", "median", by_value=True),
        lambda cell: Entry("", cell.samples_per_s, html=TWO_LINES.format(reading(cell.samples_per_s), cell.unit)),
    ),
    (Column("unit", forms=(CSV,)), lambda cell: Entry(value=cell.unit)),
    (Column("repeats", forms=(CSV,), whole=True), lambda cell: Entry(value=cell.repeats)),
    (
        Column("price_per_device_hour", "price", "device hour", by_value=True),
        _money("price_per_device_hour", "{:.4g}".format),
    ),
    (Column("price_per_million_samples", "price", "million samples", by_value=True), _money("per_million_samples")),
    (Column("samples_per_currency_unit", forms=(CSV,)), _cost("samples_per_currency_unit")),
    (Column(heading="whole task", forms=(PAGE,), by_value=True), _task),
    (Column("task_hours", forms=(CSV,)), _cost("task_hours")),
    (Column("task_price", forms=(CSV,)), _cost("task_price")),
    (Column("currency", forms=(CSV,)), _cost("currency", str)),
    (Column("best_value", "best value"), _best),
    (Column("break_even_with", forms=(CSV,)), _even(lambda even: Entry.words(even.against))),
    (Column("worth", "worth", "hours of the first", by_value=True), _even(_worth)),
    (Column("worth_at_least", forms=(CSV,)), _even(lambda even: Entry(value=even.worth_at_least))),
    (Column("worth_at_most", forms=(CSV,)), _even(lambda even: Entry(value=even.worth_at_most))),
    (
        Column("break_even_price", "break-even", "price", by_value=True),
        _even(lambda even: _with_interval(even.price, even.price_at_least, even.price_at_most, 2)),
    ),
    (Column("break_even_at_least", forms=(CSV,)), _even(lambda even: Entry(value=even.price_at_least))),
    (Column("break_even_at_most", forms=(CSV,)), _even(lambda even: Entry(value=even.price_at_most))),
    (
        Column("price_is", "price is"),
        _even(lambda even: Entry.of(even.verdict, str, "a price is not known, or there is no test")),
    ),
)


def table(cells: Sequence[MachineCell], form: str) -> Table:
    """Return a line for each cell. The page has no columns without a value."""
    shown = [(column, read) for column, read in COLUMNS if form in column.forms]
    if form == PAGE:
        shown = [(column, read) for column, read in shown if any(read(cell).value is not None for cell in cells)]
    lines = [Line([read(cell) for _, read in shown]) for cell in cells]
    sources = dict.fromkeys(cell.cost.price_source for cell in cells if cell.cost.price_source)
    return Table([column for column, _ in shown], lines, [("price", source) for source in sources], style="grid")


def section(cells: Sequence[MachineCell]) -> dict[str, Any]:
    """Return the table over all machines as the page prints it."""
    why = dict.fromkeys(f"{cell.benchmark}: no best value, because {cell.why}." for cell in cells if cell.why)
    topic = Topic("machines", "All machines", INTRO)
    return {"topic": topic, "table": table(cells, PAGE), "plots": [], "remarks": list(why)}
