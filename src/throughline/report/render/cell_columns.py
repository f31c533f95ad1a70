"""The columns of a cell, and the tables of the page that have them: the overview, and the cells without a figure."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup, escape

from throughline.numbers import mebibytes, percent, reading, span
from throughline.report.analysis.cells import STATUS_LABELS, STATUS_MEANINGS, Cell, Group
from throughline.report.analysis.judged_pairs import leader, usable
from throughline.report.render.tables import NOT_KNOWN, Column, Entry, Line, Table, texts
from throughline.report.topic import Scope

Link = Callable[[Group, str], str | None]
"""Returns the address of a log of a group; None if the log is not there."""
REACHES = (0.02, 0.05, 0.1, 0.2, 0.5)
"""A strip of repeats shows the median plus and minus one of these shares, or what else all of its table's repeats need.
"""


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


def _speedup(cell: Cell) -> Entry:
    value, ends, sure = cell.record.speedup, cell.record.speedup_range, cell.record.speedup_coverage
    if value is None or cell.no_speedup:
        return Entry(reason=cell.no_speedup, kind="quiet")
    html = Markup(f"{value:.2f}")
    if ends and cell.scales:
        said = f"the true speedup is in this range with a probability of at least {percent(sure, 1)}"
        html += Markup('<small title="{}">{}</small>').format(said, span(ends))
    return Entry(f"{value:.2f}", value, html=html)


def _efficiency(cell: Cell) -> Entry:
    value = cell.record.efficiency
    if value is None or cell.no_speedup:
        return Entry(reason=cell.no_speedup, kind="quiet")
    if cell.beyond_devices:
        return Entry(percent(value), value, "more than its devices can give: see the notes", "short")
    bar = Markup('<i class="bar" style="--share:{}"></i>').format(f"{min(value, 1.0):.3f}")
    return Entry(percent(value), value, html=Markup("{}{}").format(percent(value), bar))


def repeats(cells: Iterable[Cell]) -> Column:
    """Return the column of the repeats: as dots, and from the slowest to the fastest.

    All cells have one scale, which reaches so far from the median to both sides that all repeats are inside.
    """
    most = max((abs(value / cell.median - 1) for cell in cells if cell.ok for value in cell.repeats), default=0.0)
    reach = next((share for share in REACHES if share >= most), most)

    def read(cell: Cell) -> Entry:
        ends = f"{reading(cell.record.min)} to {reading(cell.record.max)}"
        return Entry(html=Markup("{}<small>{}</small>").format(_strip(cell, reach), ends))

    return Column(heading="repeats", small=f"median ± {percent(reach)}", read=measured(read), style="text plain")


def _strip(cell: Cell, reach: float) -> Markup:
    """Return every repeat as a dot on a line that reaches from a share below the median to as much above it."""
    unit, marks = escape(cell.group.unit), []
    for repeat, value in enumerate(cell.record.values, start=1):
        if value is not None:
            offset = value / cell.median - 1
            where = f"{percent(abs(offset), 1)} {'above' if offset > 0 else 'below'} the median"
            marks.append(
                f"<g><title>repeat {repeat}: {reading(value)} {unit}, {where if offset else 'the median'}</title>"
                f'<circle cx="{50 + 46 * offset / reach:.1f}" cy="8" r="3.4"/></g>'
            )
    said = f"repeats: {', '.join(map(reading, cell.repeats))} {unit}"
    start = f'<svg class="strip" viewBox="0 0 100 16" role="img" aria-label="{said}"><path d="M4 8H96M50 3V13"/>'
    return Markup(start + "".join(marks) + "</svg>")


def _valid(cell: Cell) -> Entry:
    """Return how many repeats are valid, with the statuses of the others as the title."""
    record = cell.record
    if not cell.ok:
        return Entry(f"0/{record.n}" if record.statuses else "", 0)
    others = [f"{n} {STATUS_LABELS.get(status, status)}" for status, n in record.statuses.items() if status != "ok"]
    missing = record.n - sum(record.statuses.values())
    others += [f"{missing} missing"] if missing > 0 else []
    others += record.reasons
    kind = "short" if record.n_ok < record.n else ""
    return Entry(f"{record.n_ok}/{record.n}", record.n_ok, ", ".join(others) or None, kind)


def _steps(cell: Cell) -> Entry:
    """Return how many steps each valid repeat timed."""
    counts = [count for count in cell.record.steps_timed if count]
    ends = " to ".join(map(str, dict.fromkeys((min(counts), max(counts)))))
    short = min(counts) < cell.group.summary.steps.timed and not cell.group.summary.job
    return Entry(ends, min(counts), kind="short" if short else "")


def logs(link: Link) -> Column:
    """Return the column with a link to the log of each repeat. It is left out if no log is there."""
    there = Markup('<a href="{0}" aria-label="log of repeat {1}">{1}</a> ')
    gone = Markup('<span class="quiet" title="its log is not there">{1}</span> ')

    def read(cell: Cell) -> Entry:
        shown, addresses = [], [link(cell.group, log) for log in cell.record.logs]
        for log, address in zip(cell.record.logs, addresses, strict=True):
            repeat = log.rpartition("run")[2].removesuffix(".log")
            shown.append((there if address else gone).format(address, repeat))
        return Entry(value=len([*filter(None, addresses)]) or None, html=Markup("").join(shown))

    return Column(heading="logs", read=read, style="text logs plain", optional=True)


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
MEMORY = Column(
    heading="memory",
    small="MiB, peak",
    read=measured(
        lambda cell: Entry(mebibytes(cell.record.peak_memory_bytes) or NOT_KNOWN, cell.record.peak_memory_bytes)
    ),
    by_value=True,
)


@dataclass(frozen=True)
class Best:
    """The best cell of a framework, one of so many `cells`, of which `measured` have figures.

    leads: the comparisons find it faster than all other frameworks. identity: the id of the benchmark's section.
    """

    cell: Cell
    leads: bool
    measured: int
    cells: int
    identity: str


def best_cells(scope: Scope, identity: str) -> Iterator[Best]:
    """Yield the fastest usable cell of each framework, or its first cell if none has a figure."""
    leads = leader(scope.groups, scope.pairs)
    for framework in dict.fromkeys(cell.framework for cell in scope.cells):
        cells = [cell for cell in scope.cells if cell.framework == framework]
        measured = [cell for cell in cells if cell.ok]
        best = usable(measured, scope.pairs) or cells[0]
        yield Best(best, best is leads, len(measured), len(cells), identity)


def _benchmark(best: Best) -> Entry:
    summary = best.cell.group.summary
    html = Markup('<a href="#{}">{}</a><small>{}</small>').format(best.identity, summary.benchmark, summary.model)
    return Entry(html=html)


def _framework(best: Best) -> Entry:
    star = Markup(' <span class="best" title="faster than every other framework, by the comparisons">★</span>')
    return Entry(html=Markup("{}{}").format(best.cell.shown, star if best.leads else ""))


def _precision(best: Best) -> Entry:
    group = best.cell.group
    return Entry(html=Markup("{}<small>{}</small>").format(group.precision, group.batch_name))


def _figures(best: Best) -> Entry:
    kind = "short" if best.measured < best.cells else ""
    return Entry(f"{best.measured}/{best.cells}", best.measured, kind=kind)


def overview(every: Sequence[Best]) -> Table:
    """Return the overview of several benchmarks: the fastest usable cell of every framework."""

    def of_cell(column: Column, **changes: str) -> Column:
        return replace(column, read=lambda best: column.read(best.cell), **changes)  # type: ignore[arg-type]

    throughput = Column(heading="throughput", small="median", by_value=True, read=lambda c: median(c, c.group.unit))
    columns = [
        Column(heading="benchmark", small="model", names=True, read=_benchmark),
        Column(heading="framework", style="text name named", read=_framework),
        of_cell(throughput),
        of_cell(TOPOLOGY, style="text"),
        Column(heading="precision", small="batch", style="text", read=_precision),
        *map(of_cell, (PER_DEVICE, SPEEDUP, EFFICIENCY, repeats([best.cell for best in every]), STEPS)),
        Column(heading="cells", small="with a figure", by_value=True, read=_figures),
    ]
    lines, before = [], None
    for best in every:
        name, style = best.cell.shown + " ★" * best.leads, "" if best.identity == before else " first"
        entries = [column.entry(best) for column in columns]
        lines.append(Line(entries, best.cell, name, best.cell.status + style))
        before = best.identity
    return Table(columns, lines, style="results")


def counts(groups: Sequence[Group]) -> list[tuple[str, str, int]]:
    """Count the cells of each status: (status, label, count)."""
    every = [cell.status for group in groups for cell in group.cells]
    labels = {**STATUS_LABELS, "ok": "measured"}
    return [(status, label, every.count(status)) for status, label in labels.items() if status in every]


def without_figure(groups: Sequence[Group]) -> Table | None:
    """Return a line for each cell without a figure, with the reason; None if every cell has one."""
    return texts(
        [
            {
                "cell": f"{group.benchmark}, {group.precision}, {group.batch_name}, {cell.framework}, {cell.topology}",
                "outcome": Entry.words(cell.label, chip=cell.status),
                "meaning": STATUS_MEANINGS[cell.status],
                "reason": "; ".join(cell.record.reasons),
            }
            for group in groups
            for cell in group.cells
            if cell.status in STATUS_MEANINGS
        ],
        style="words",
    )
