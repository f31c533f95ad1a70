"""Figures of a cell as the results and the overview of the page show them."""

from collections.abc import Callable

from markupsafe import Markup

from throughline.numbers import mebibytes, percent, reading, span
from throughline.report.analysis.cells import STATUS_LABELS, Cell, Group
from throughline.report.render import sparks
from throughline.report.render.tables import NOT_KNOWN, Entry

Link = Callable[[Group, str], str | None]
"""Returns the address of a log of a group; None if the log is not there."""


def measured(read: Callable[[Cell], Entry]) -> Callable[[Cell], Entry]:
    """Return a reader of cells with a median; for other cells the entry is empty."""
    return lambda cell: read(cell) if cell.ok else Entry("")


def topology(cell: Cell) -> Entry:
    return Entry(str(cell.topology), cell.topology.world)


def median(cell: Cell) -> Entry:
    if not cell.ok:
        return Entry.outcome(cell)
    html = Markup("{}{}").format(reading(cell.median), in_other_units(cell))
    return Entry(reading(cell.median), cell.median, kind="strong", html=html)


def in_other_units(cell: Cell) -> Markup:
    """Return a cell's throughput in its other units, a small line each."""
    units = cell.record.other_units.items()
    return Markup("").join(Markup("<small>{} {}</small>").format(reading(value), unit) for unit, value in units)


@measured
def per_device(cell: Cell) -> Entry:
    if cell.together:
        return Entry("", reason="a call is made by all devices together")
    each = cell.median / cell.topology.world
    return Entry(reading(each), each)


@measured
def speedup(cell: Cell) -> Entry:
    value, ends = cell.record.speedup, cell.record.speedup_range
    if value is None:
        return Entry(html=Markup('<span class="quiet" title="the baseline was not measured">n/a</span>'))
    small = Markup('<small title="range of the speedup">{}</small>').format(span(ends)) if ends else ""
    return Entry(f"{value:.2f}", value, html=Markup("{}{}").format(f"{value:.2f}", small))


@measured
def efficiency(cell: Cell) -> Entry:
    value = cell.record.efficiency
    if value is None:
        return Entry(html=Markup('<span class="quiet">n/a</span>'))
    bar = Markup('<i class="bar" style="--share:{}"></i>').format(f"{min(value, 1.0):.3f}")
    return Entry(percent(value), value, html=Markup("{}{}").format(percent(value), bar))


repeats = measured(lambda cell: Entry(html=sparks.strip(cell.record, cell.group.unit)))
memory = measured(
    lambda cell: Entry(mebibytes(cell.record.peak_memory_bytes) or NOT_KNOWN, cell.record.peak_memory_bytes)
)


@measured
def range_of(cell: Cell) -> Entry:
    """Return the slowest and the fastest repeat, and how far the repeats are apart."""
    record = cell.record
    text = f"{reading(record.min)} to {reading(record.max)}"
    deviation = record.median_absolute_deviation
    if deviation is None:
        return Entry(text, record.min)
    apart = f"{deviation:.2g}" if deviation < 100 else f"{deviation:,.0f}"
    small = Markup(
        '{}<small title="median absolute deviation in {}, coefficient of variation">MAD {}, CV {}</small>'
    ).format(text, cell.group.unit, apart, percent(record.coefficient_of_variation, 1))
    return Entry(text, record.min, html=small)


def valid(cell: Cell) -> Entry:
    """Return how many repeats are valid, with the statuses of the others as the title."""
    record = cell.record
    if not cell.ok:
        return Entry(f"0/{record.n}" if record.statuses else "", 0)
    others = [f"{n} {STATUS_LABELS.get(status, status)}" for status, n in record.statuses.items() if status != "ok"]
    missing = record.n - sum(record.statuses.values())
    others += [f"{missing} missing"] if missing > 0 else []
    kind = "short" if record.n_ok < record.n else ""
    return Entry(f"{record.n_ok}/{record.n}", record.n_ok, ", ".join(others) or None, kind)


def logs(link: Link, cell: Cell) -> Entry:
    """Return a link to the log of each repeat."""
    shown = []
    for log in cell.record.logs:
        repeat = log.rpartition("run")[2].removesuffix(".log")
        address = link(cell.group, log)
        there = Markup('<a href="{0}" aria-label="log of repeat {1}">{1}</a> ')
        gone = Markup('<span class="quiet" title="its log is not there">{1}</span> ')
        shown.append((there if address else gone).format(address, repeat))
    return Entry(html=Markup("").join(shown))
