"""Figures of a cell as the results and the overview of the page show them."""

from collections.abc import Callable

from markupsafe import Markup

from throughline.numbers import mebibytes, percent, reading, span
from throughline.records import Cell
from throughline.report.analysis.cells import STATUS_LABELS, Group, Row
from throughline.report.render import sparks
from throughline.report.render.tables import NOT_KNOWN, Entry

Link = Callable[[Group, str], str | None]
"""Returns the address of a log of a group; None if the log is not there."""


def measured(read: Callable[[Group, Cell], Entry]) -> Callable[[Group, Row], Entry]:
    """Return a reader of cells with a median; for other cells the entry is empty."""

    def entry(group: Group, row: Row) -> Entry:
        return read(group, row.cell) if row.cell and row.cell.median_speed is not None else Entry("")

    return entry


def topology(_: Group, row: Row) -> Entry:
    return Entry(str(row.topology), row.topology.world)


def median(_: Group, row: Row) -> Entry:
    cell = row.cell
    if cell is None or cell.median_speed is None:
        return Entry.outcome(row)
    html = Markup("{}{}").format(reading(cell.median_speed), in_other_units(cell))
    return Entry(reading(cell.median_speed), cell.median_speed, kind="strong", html=html)


def in_other_units(cell: Cell) -> Markup:
    """Return a cell's throughput in its other units, a small line each."""
    lines = (Markup("<small>{} {}</small>").format(reading(value), unit) for unit, value in cell.other_units.items())
    return Markup("").join(lines)


@measured
def per_device(group: Group, cell: Cell) -> Entry:
    if group.together(cell):
        return Entry("", reason="a call is made by all devices together")
    each = (cell.median_speed or 0.0) / cell.world_size
    return Entry(reading(each), each)


@measured
def speedup(_: Group, cell: Cell) -> Entry:
    if cell.speedup is None:
        return Entry(html=Markup('<span class="quiet" title="the baseline was not measured">n/a</span>'))
    ends = Markup('<small title="range of the speedup">{}</small>').format(span(cell.speedup_range))
    text = f"{cell.speedup:.2f}"
    return Entry(text, cell.speedup, html=Markup("{}{}").format(text, ends if cell.speedup_range else ""))


@measured
def efficiency(_: Group, cell: Cell) -> Entry:
    if cell.efficiency is None:
        return Entry(html=Markup('<span class="quiet">n/a</span>'))
    bar = Markup('<i class="bar" style="--share:{}"></i>').format(f"{min(cell.efficiency, 1.0):.3f}")
    text = percent(cell.efficiency)
    return Entry(text, cell.efficiency, html=Markup("{}{}").format(text, bar))


repeats = measured(lambda group, cell: Entry(html=sparks.strip(cell, group.unit)))
memory = measured(lambda _, cell: Entry(mebibytes(cell.peak_memory_bytes) or NOT_KNOWN, cell.peak_memory_bytes))


@measured
def range_of(group: Group, cell: Cell) -> Entry:
    """Return the slowest and the fastest repeat, and how far the repeats are apart."""
    text = f"{reading(cell.min)} to {reading(cell.max)}"
    deviation = cell.median_absolute_deviation
    if deviation is None:
        return Entry(text, cell.min)
    apart = f"{deviation:.2g}" if deviation < 100 else f"{deviation:,.0f}"
    small = Markup(
        '{}<small title="median absolute deviation in {}, coefficient of variation">MAD {}, CV {}</small>'
    ).format(text, group.unit, apart, percent(cell.coefficient_of_variation, 1))
    return Entry(text, cell.min, html=small)


def valid(_: Group, row: Row) -> Entry:
    """Return how many repeats are valid, with the statuses of the others as the title."""
    cell = row.cell
    if cell is None or cell.median_speed is None:
        return Entry(f"0/{cell.n}" if cell else "", 0)
    others = [f"{n} {STATUS_LABELS.get(status, status)}" for status, n in cell.statuses.items() if status != "ok"]
    missing = cell.n - sum(cell.statuses.values())
    others += [f"{missing} missing"] if missing > 0 else []
    return Entry(f"{cell.n_ok}/{cell.n}", cell.n_ok, ", ".join(others) or None, "short" if cell.n_ok < cell.n else "")


def logs(link: Link, group: Group, row: Row) -> Entry:
    """Return a link to the log of each repeat."""
    shown = []
    for log in row.cell.logs if row.cell else ():
        repeat = log.rpartition("run")[2].removesuffix(".log")
        address = link(group, log)
        there = Markup('<a href="{0}" aria-label="log of repeat {1}">{1}</a> ')
        gone = Markup('<span class="quiet" title="its log is not there">{1}</span> ')
        shown.append((there if address else gone).format(address, repeat))
    return Entry(html=Markup("").join(shown))
