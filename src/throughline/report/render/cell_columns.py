"""The columns of a cell that the results and the overview of the page share."""

from collections.abc import Callable, Iterable

from markupsafe import Markup

from throughline.numbers import mebibytes, percent, reading, span
from throughline.report.analysis.cells import STATUS_LABELS, Cell, Group
from throughline.report.render import sparks
from throughline.report.render.tables import NOT_KNOWN, Column, Entry

Link = Callable[[Group, str], str | None]
"""Returns the address of a log of a group; None if the log is not there."""


def measured(read: Callable[[Cell], Entry | str]) -> Callable[[Cell], Entry | str]:
    """Return a reader of cells with a median; for other cells the entry is empty."""
    return lambda cell: read(cell) if cell.ok else Entry("")


def median(cell: Cell, unit: str = "") -> Entry:
    """Return the median, with those in other units below it. unit: stands behind it."""
    if not cell.ok:
        return Entry.outcome(cell)
    html = Markup(reading(cell.median)) + (Markup(' <span class="unit">{}</span>').format(unit) if unit else "")
    for other, value in cell.record.other_units.items():
        html += Markup("<small>{} {}</small>").format(reading(value), other)
    return Entry(reading(cell.median), cell.median, kind="strong", html=html)


def _per_device(cell: Cell) -> Entry:
    if cell.together:
        return Entry("", reason="a call is made by all devices together")
    each = cell.median / cell.topology.world
    return Entry(reading(each), each)


def _not_known(reason: str) -> Entry:
    return Entry(NOT_KNOWN, reason=reason, kind="quiet")


def _speedup(cell: Cell) -> Entry:
    value, ends, sure = cell.record.speedup, cell.record.speedup_range, cell.record.speedup_coverage
    if value is None or cell.no_speedup:
        return _not_known(cell.no_speedup)
    html = Markup(f"{value:.2f}")
    if ends and cell.scales:
        said = f"the true speedup is in this range with a probability of at least {percent(sure, 1)}"
        html += Markup('<small title="{}">{}</small>').format(said, span(ends))
    return Entry(f"{value:.2f}", value, html=html)


def _efficiency(cell: Cell) -> Entry:
    value = cell.record.efficiency
    if value is None or cell.no_speedup:
        return _not_known(cell.no_speedup)
    bar = Markup('<i class="bar" style="--share:{}"></i>').format(f"{min(value, 1.0):.3f}")
    return Entry(percent(value), value, html=Markup("{}{}").format(percent(value), bar))


def repeats(cells: Iterable[Cell]) -> Column:
    """Return the column of the repeats: as dots, and from the slowest to the fastest. All cells have one scale."""
    share = sparks.reach(cells)

    def read(cell: Cell) -> Entry:
        ends = f"{reading(cell.record.min)} to {reading(cell.record.max)}"
        return Entry(html=Markup("{}<small>{}</small>").format(sparks.strip(cell, share), ends))

    heading = f"median ± {percent(share)}"
    return Column(heading="repeats", small=heading, read=measured(read), style="text plain")


def _valid(cell: Cell) -> Entry:
    """Return how many repeats are valid, with the statuses of the others as the title."""
    record = cell.record
    if not cell.ok:
        return Entry(f"0/{record.n}" if record.statuses else "", 0)
    others = [f"{n} {STATUS_LABELS.get(status, status)}" for status, n in record.statuses.items() if status != "ok"]
    missing = record.n - sum(record.statuses.values())
    others += [f"{missing} missing"] if missing > 0 else []
    kind = "short" if record.n_ok < record.n else ""
    return Entry(f"{record.n_ok}/{record.n}", record.n_ok, ", ".join(others) or None, kind)


def _steps(cell: Cell) -> Entry:
    """Return how many steps each valid repeat timed."""
    counts = [count for count in cell.record.steps_timed if count]
    ends = " to ".join(map(str, dict.fromkeys((min(counts), max(counts)))))
    short = min(counts) < cell.group.summary.steps.timed and not cell.group.summary.job
    return Entry(ends, min(counts), kind="short" if short else "")


def _memory(cell: Cell) -> Entry:
    return Entry(mebibytes(cell.record.peak_memory_bytes) or NOT_KNOWN, cell.record.peak_memory_bytes)


def logs(link: Link) -> Column:
    """Return the column with a link to the log of each repeat."""

    def read(cell: Cell) -> Entry:
        shown = []
        for log in cell.record.logs:
            repeat, address = log.rpartition("run")[2].removesuffix(".log"), link(cell.group, log)
            there = Markup('<a href="{0}" aria-label="log of repeat {1}">{1}</a> ')
            gone = Markup('<span class="quiet" title="its log is not there">{1}</span> ')
            shown.append((there if address else gone).format(address, repeat))
        return Entry(html=Markup("").join(shown))

    return Column(heading="logs", read=read, style="text logs plain")


FRAMEWORK = Column(heading="framework", read=Entry.framework, names=True)
TOPOLOGY = Column(
    heading="topology",
    read=lambda cell: Entry(str(cell.topology), cell.topology.world),
    style="text named",
    by_value=True,
)
DEVICES = Column(heading="devices", read=lambda cell: str(cell.topology.world), style="devices")
PER_DEVICE = Column(heading="per device", read=measured(_per_device), style="devices", by_value=True)
SPEEDUP = Column(heading="speedup", small="range", read=measured(_speedup), by_value=True)
EFFICIENCY = Column(heading="efficiency", read=measured(_efficiency), by_value=True)
VALID = Column(heading="repeats", small="valid", read=_valid, by_value=True)
STEPS = Column(heading="steps", small="timed", read=measured(_steps), by_value=True)
MEMORY = Column(heading="memory", small="MiB, peak", read=measured(_memory), by_value=True)
