"""The table over all machines: what each cell costs there, which is the best value, and the break-even prices."""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from markupsafe import Markup

from throughline import ratios
from throughline.numbers import percent, reading, span
from throughline.records.compared import MachineCell
from throughline.report.render.tables import NOT_KNOWN, Column, Entry, Table
from throughline.report.topic import Topic

INTRO = (
    "Cells that do the same work on several machines: the same model, data, optimizer, dropout, clipping and job. The "
    "best value is the lowest price per sample. It is named if all prices are in one currency and the repeats tell it "
    "apart from all others. A device hour is worth so many device hours of the first machine. This number times the "
    "price of the first machine is the break-even price. The small numbers are intervals with "
    f"{percent(ratios.INTERVAL)}. The fastest cells are compared, on the fewest and on the most devices of both."
)
NO_PAIR = "only the fastest cell on the fewest and on the most devices is compared with the first machine"
TWO_LINES = Markup("{}<small>{}</small>")
IN_FILE = [name for name in MachineCell.model_fields if name not in ("price_source", "reasons")]
"""The columns of the CSV."""


def _machine(cell: MachineCell) -> Entry:
    name = f"{cell.machine}, {cell.device}" if cell.device else cell.machine
    return Entry(cell.machine, cell.machine, html=Markup('{}<br><span class="quiet">{}</span>').format(name, cell.name))


def _throughput(cell: MachineCell) -> Entry:
    return Entry("", cell.throughput, html=TWO_LINES.format(reading(cell.throughput), cell.unit))


def _money(name: str, read: Callable[[Any], str] = reading) -> Callable[[MachineCell], Entry]:
    """Return the reader of a price, with its currency in the text."""
    return lambda cell: Entry.of(
        getattr(cell, name), lambda price: f"{read(price)} {cell.currency}", cell.reasons.get("per_million_samples")
    )


def _task(cell: MachineCell) -> Entry:
    if cell.task_hours is None:
        return Entry(reason=cell.reasons.get("task_hours"))
    price = f"{reading(cell.task_price)} {cell.currency}" if cell.task_price else NOT_KNOWN
    return Entry("", cell.task_hours, html=TWO_LINES.format(f"{reading(cell.task_hours)} h", price))


def _best(cell: MachineCell) -> Entry:
    if cell.best_value is None:
        return Entry(reason=cell.reasons.get("best_value"))
    html = Markup('<span class="best">{}</span>').format("★ yes") if cell.best_value == "yes" else None
    return Entry(cell.best_value, cell.best_value or None, html=html)


def _worth(cell: MachineCell) -> Entry:
    pair = cell.break_even_with and f"compared with {cell.break_even_with}"
    return _with_interval(cell.worth, (cell.worth_at_least, cell.worth_at_most), 3, pair or NO_PAIR)


def _break_even(cell: MachineCell) -> Entry:
    ends = cell.break_even_at_least, cell.break_even_at_most
    why = "no price of the first machine is known" if cell.worth else NO_PAIR
    return _with_interval(cell.break_even_price, ends, 2, why, cell.break_even_currency or "")


def _with_interval(value: float | None, ends: Sequence[Any], places: int, title: str, unit: str = "") -> Entry:
    text = "" if value is None else f"{value:.{places}f} {unit}".rstrip()
    return Entry("", value, title, html=TWO_LINES.format(text, "" if None in ends else span(ends, places)))


COLUMNS = (
    Column(heading="machine and cell", read=_machine, style="text", names=True),
    Column(heading="throughput", small="median", read=_throughput, by_value=True),
    Column(
        heading="price",
        small="device hour",
        read=_money("price_per_device_hour", "{:.4g}".format),
        optional=True,
        by_value=True,
    ),
    Column(
        heading="price",
        small="million samples",
        read=_money("price_per_million_samples"),
        optional=True,
        by_value=True,
    ),
    Column(heading="whole task", read=_task, optional=True, by_value=True),
    Column(heading="best value", read=_best, optional=True),
    Column(heading="worth", small="hours of the first", read=_worth, by_value=True),
    Column(heading="break-even", small="price", read=_break_even, optional=True, by_value=True),
    Column(heading="price is", read=lambda cell: Entry(cell.price_is or "", cell.price_is), optional=True),
)


def in_file(cells: Sequence[MachineCell]) -> Table:
    """Return the table for the CSV."""
    whole = ("work", "batch", "repeats")
    return Table.of(cells, [Column(key, read=attrgetter(key), whole=key in whole) for key in IN_FILE])


def section(cells: Sequence[MachineCell]) -> dict[str, Any]:
    """Return the table over all machines as the page prints it."""
    sources = dict.fromkeys(cell.price_source for cell in cells if cell.price_source)
    table = Table.of(cells, COLUMNS, facts=[("price", source) for source in sources], style="grid")
    reasons = {cell.benchmark: why for cell in cells if (why := cell.reasons.get("best_value"))}
    remarks = [f"{benchmark}: no best value, because {why}." for benchmark, why in reasons.items()]
    return {"topic": Topic("machines", "All machines", INTRO), "table": table, "plots": [], "remarks": remarks}
